"""Vectors of Reservation: matching, fit, nomination, life cycle."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koord_scheduler.domain.columns.resource_names import can_be_ignored
from koord_scheduler.domain.plugins.reservation.fit import Held, NodeRoom, refusals
from koord_scheduler.domain.plugins.reservation.life_cycle import OwnerPod, bind, is_garbage, limits_of, synced
from koord_scheduler.domain.plugins.reservation.matching import Match, Terms, match, order_of, terms_of, wish_of
from koord_scheduler.domain.plugins.reservation.usable import nominate, reservation_score
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.reservation_status import (
    PENDING,
    ReservationCondition,
    ReservationOwner,
    ReservationStatus,
    unschedulable,
)
from koordcore.protocol.reservations import reservation_from_json, resized_amounts
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import format_resources, parse_amounts, quantity_of
from koordcore.values.timestamps import unix_seconds


@adapter("scheduler.reservation_match")
def reservation_match(given: dict[str, Json]) -> dict[str, Json]:
    pod = pod_from_json(given["pod"])
    wish, requests = wish_of(pod), parse_amounts(given.get("pod_requests") or {})
    gates: dict[str, bool] = given.get("feature_gates") or {}
    omits = gates.get("OmitNodeLabelsForReservation", False)
    results: dict[str, str] = {}
    for raw in given["reservations"]:
        reservation = reservation_from_json(raw)
        terms, status = terms_of(reservation), reservation.status
        is_used_up = terms.is_once and bool(status.current_owners)
        if status.phase != "Available" or not status.node_name or terms.owners is None or is_used_up:
            results[terms.name] = Match.NOT_MATCHABLE
            continue
        results[terms.name] = match(
            wish,
            terms,
            is_owner=terms.owners.match(pod),
            requests=requests,
            allocatable=parse_amounts(status.allocatable),
            node_labels={} if omits else given.get("node_labels") or {},
        )
    return {"results": results}


def _held(raw: Json, preemptible: Json = None) -> Held:
    labels: dict[str, str] = raw.get("labels") or {}
    terms = Terms(
        name=raw["name"],
        labels=labels,
        owners=None,
        policy=raw.get("policy") or "",
        order=order_of(labels),
        inner=parse_amounts(raw.get("inner_reserved") or {}),
        restricted=frozenset(raw.get("restricted_resources") or ()),
    )
    return Held(
        terms=terms,
        allocatable=parse_amounts(raw.get("allocatable") or {}),
        allocated=parse_amounts(raw.get("allocated") or {}),
        owners=raw.get("allocated_pods") or 0,
        preemptible=parse_amounts(preemptible or {}),
    )


@adapter("scheduler.reservation_fit", exact_text=("reasons",))
def reservation_fit(given: dict[str, Json]) -> dict[str, Json]:
    in_reservation: dict[str, Json] = given.get("preemptible_in_reservation") or {}
    matched = [_held(raw, in_reservation.get(raw["name"])) for raw in given.get("reservations") or ()]
    allocatable = parse_amounts(given["node_allocatable"])
    requested = parse_amounts(given.get("node_requested") or {})
    free = {
        name: amount - requested.get(name, 0) + sum(held.allocated.get(name, 0) for held in matched)
        for name, amount in allocatable.items()
    }
    ignored_names, groups = given.get("ignored_resources") or (), given.get("ignored_resource_groups") or ()

    def ignored(name: str) -> bool:
        return can_be_ignored(name) and (name in ignored_names or name.partition("/")[0] in groups)

    reasons = refusals(
        NodeRoom(free=free, pods=allocatable.get("pods", 0) - (given.get("node_pods") or 0) + len(matched)),
        matched,
        parse_amounts(given.get("pod_requests") or {}),
        has_affinity=given.get("has_affinity") or bool(given.get("affinity_name")),
        only=given.get("affinity_name") or "",
        preemptible=parse_amounts(given.get("preemptible") or {}),
        ignored=ignored,
        skips_node=given.get("skip_node_fit_gate") or False,
    )
    return {"fit": not reasons, "reasons": reasons}


@adapter("scheduler.reservation_nominate")
def reservation_nominate(given: dict[str, Json]) -> dict[str, Json]:
    requests = parse_amounts(given.get("pod_requests") or {})
    candidates = [_held(raw) for raw in given["reservations"]]
    return {
        "scores": {
            each.terms.name: reservation_score(requests, each.allocatable, each.allocated) for each in candidates
        },
        "nominated": nominate(requests, candidates).terms.name,
    }


def _status(raw: Json) -> ReservationStatus:
    return ReservationStatus(
        phase=raw.get("phase") or PENDING,
        node=raw.get("nodeName") or "",
        allocatable=parse_amounts(raw.get("allocatable") or {}),
        allocated=parse_amounts(raw.get("allocated") or {}),
        owners=[codec.convert(owner, ReservationOwner) for owner in raw.get("currentOwners") or ()],
        conditions=[codec.convert(each, ReservationCondition) for each in raw.get("conditions") or ()],
    )


def _written(status: ReservationStatus) -> Json:
    def texts(amounts: dict[str, int]) -> dict[str, str]:
        return format_resources({name: quantity_of(name, amount) for name, amount in amounts.items()})

    return {
        "phase": status.phase,
        "nodeName": status.node,
        "allocatable": texts(status.allocatable),
        "allocated": texts(status.allocated),
        "currentOwners": codec.to_builtins(status.owners),
        "conditions": codec.to_builtins(status.conditions),
    }


@adapter("scheduler.reservation_lifecycle", resource_lists=("allocatable", "allocated"))
def reservation_lifecycle(given: dict[str, Json]) -> dict[str, Json]:
    raw, event, now = given["reservation"], given["event"], given["now"]
    reservation, status = reservation_from_json(raw), _status(raw.get("status") or {})
    requests = parse_amounts(raw["spec"].get("template_requests") or {})
    nodes = event.get("nodes") or ()
    match event["type"]:
        case "bind":
            held = {**requests, **resized_amounts(reservation.metadata.annotations)}
            try:
                return {"status": _written(bind(status, event["node"], held, now))}
            except InvalidInput as error:
                return {"error": error.rule}
        case "unschedulable":
            return {"status": _written(unschedulable(status, event["message"], now))}
        case "gc":
            garbage = is_garbage(
                status, unix_seconds(now), event.get("gc_duration_seconds") or 86_400, lambda name: name in nodes
            )
            return {"deleted": garbage}
        case _:
            pods = [
                OwnerPod(
                    ReservationOwner(pod["namespace"], pod["name"], pod["uid"]),
                    pod.get("node") or "",
                    pod.get("reservation_allocated_uid") or "",
                    parse_amounts(pod.get("requests") or {}),
                )
                for pod in event.get("pods") or ()
            ]
            after, seconds = synced(
                status,
                reservation.metadata.uid,
                limits_of(reservation),
                now,
                is_once=reservation.spec.allocate_once,
                has_node=lambda name: name in nodes,
                pods=pods,
            )
            return {"status": _written(after), "requeue_after_seconds": seconds}
