"""Decide the writes to Reservation objects and to bound pods that use one, or that act as one.

Reservation objects get their computed status, and collected ones are deleted. The status of a Reservation depends on
its placement, on its end, and on the ledger of its node.

Source:
    scheduler-fine-grained spec, 3.1, 3.3, 3.11, 3.12
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from koordcore.events.envelope import AggregateRef, Event, name_token
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref, plural_of
from koordcore.events.pod import PodPlaced, PodReleased
from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import allocation_annotations
from koordcore.protocol.reservation_status import PENDING, ReservationStatus
from koordcore.protocol.reservations import PLURAL, is_operating, phase_by_others, readable_reservation
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger, PodSpecState, PodState, ReservationState
from koordcore.state.reservations import owners_of, reservation_of_log
from koordcore.values import codec
from koordcore.values.resources import format_resources, quantity_of

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.requests import JSON, MERGE_PATCH, Json, Request

_PATH: Final = f"/apis/scheduling.koordinator.sh/v1alpha1/{PLURAL}"


def status_document(status: ReservationStatus) -> Json:
    return {
        "phase": status.phase,
        "nodeName": status.node,
        "allocatable": _quantities(status.allocatable),
        "allocated": _quantities(status.allocated),
        "currentOwners": [
            {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid} for owner in status.owners
        ],
        "conditions": codec.to_builtins(status.conditions),
    }


def with_reservation_status(state: ClusterState, document: Json) -> Json:
    """Return a Reservation object with its computed status. The given object is not changed.

    An object without a uid is returned as it is.
    """
    uid = str(document["metadata"].get("uid", ""))
    return {**document, "status": status_document(reservation_of_log(state, uid))} if uid else document


def pending_reservation(view: ManagerView, name: str) -> list[Request]:
    """Return the requests that write the status of a Reservation, and its allocation as annotations.

    Return the request that deletes the object if the Reservation was collected. Return an empty list if all is up to
    date, or if another scheduler placed or ended the Reservation and so writes its status.
    """
    stored = view.custom(PLURAL, "", name)
    if stored is None:
        return []
    found = stored.object
    uid = str(found["metadata"].get("uid", ""))
    ended = view.state.of_kind(ReservationState).get(uid)
    if ended is not None and ended.is_collected:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        return [Request("delete-reservation", "DELETE", f"{_PATH}/{name}", options, JSON)]
    if ended is None and uid not in view.state.of_kind(PodState) and phase_by_others(readable_reservation(found)):
        return []  # another scheduler placed or ended it, and writes its status
    status = reservation_of_log(view.state, uid)
    requests = _allocation_requests(view, name, uid, status.node, found["metadata"].get("annotations") or {})
    wanted = status_document(status)
    # An absent phase means Pending, to koord-scheduler too. So a Reservation that is placed at once is written once.
    present: Json = {"phase": PENDING, **(found.get("status") or {})}
    if all((present.get(key) or type(value)()) == value for key, value in wanted.items()):
        return requests
    for key in ("allocatable", "allocated"):  # null removes a resource that is no longer there
        wanted[key] = {**dict.fromkeys(cast("Json", present.get(key) or {})), **wanted[key]}
    body: Json = {"metadata": {"uid": uid}, "status": wanted}
    return [*requests, Request("reservation-status", "PATCH", f"{_PATH}/{name}/status", body, MERGE_PATCH)]


def _allocation_requests(
    view: ManagerView, name: str, uid: str, node: str, present: Mapping[str, str]
) -> list[Request]:
    """Return the request that writes the CPUs, zones and devices of a Reservation as annotations; empty if written.

    Source: scheduler-fine-grained spec, 3.9.
    """
    ledger = view.state.of_kind(NodeLedger).get(name_token(node)) if node else None
    entry = None if ledger is None else ledger.pods.get(uid)
    if entry is None:
        return []
    rendered = allocation_annotations(entry.allocation, {})
    written = {key: rendered[key] for key in (keys.RESOURCE_STATUS, keys.DEVICE_ALLOCATED) if key in rendered}
    if all(present.get(key) == text for key, text in written.items()):
        return []
    body: Json = {"metadata": {"uid": uid, "annotations": written}}
    return [Request("reservation-allocation", "PATCH", f"{_PATH}/{name}", body, MERGE_PATCH)]


def pending_pod_annotations(view: ManagerView, uid: str) -> list[Request]:
    """Return the request that writes to a bound pod which Reservation it uses, or which pod uses it; empty if written.

    A binding writes these annotations, too. They change later if a Reservation takes over the resources of the pod, or
    if its Reservation is deleted. A pod in operating mode Reservation names the pod that uses it.
    """
    placed, spec = view.state.of_kind(PodState).get(uid), view.state.of_kind(PodSpecState).get(uid)
    if spec is None or not spec.object.spec.node_name:
        return []
    meta, wanted = spec.object.metadata, dict[str, str | None]()
    if placed is not None and placed.node == spec.object.spec.node_name:
        wanted[keys.RESERVATION_ALLOCATED] = allocation_annotations(placed.allocation, {}).get(
            keys.RESERVATION_ALLOCATED
        )
    if is_operating(spec.object) and (owner := _owner_of(view, uid, spec.object.spec.node_name)) is not None:
        current = {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid}
        wanted[keys.RESERVATION_CURRENT_OWNER] = codec.encode(current).decode()
    changed = {key: text for key, text in wanted.items() if meta.annotations.get(key) != text}
    if not changed:
        return []
    body: Json = {"metadata": {"uid": uid, "annotations": changed}}
    return [Request("pod-reservation", "PATCH", pod_path(meta.namespace, meta.name), body, MERGE_PATCH)]


def _owner_of(view: ManagerView, uid: str, node: str) -> PodOnNode | None:
    """Return the pod that uses a pod in operating mode Reservation; None if no pod uses it."""
    ledger = view.state.of_kind(NodeLedger).get(name_token(node))
    owners = () if ledger is None else owners_of(uid, ledger.pods)
    return next(iter(owners), None)


class ReservationNames:
    """Finds the Reservations that a fact concerns: uid -> name, and pod -> the Reservation from which it takes.

    Args:
        view: The fold, from which the present Reservations and their pods are taken; None to begin without any.
    """

    def __init__(self, view: ManagerView | None = None) -> None:
        self._names: dict[str, str] = {}
        self._uids: dict[str, str] = {}
        self._used: dict[str, str] = {}
        if view is None:
            return
        for _, stored in view.customs(PLURAL):
            self._observe(stored.object["metadata"])
        for ledger in view.state.of_kind(NodeLedger).values():
            for uid, entry in ledger.pods.items():
                if entry.allocation.reservation is not None:
                    self._used[uid] = entry.allocation.reservation.uid

    def all(self) -> Iterable[str]:
        return self._names.values()

    def concerned(self, ref: AggregateRef, event: Event) -> list[str]:
        """Fold one fact and return the names of the Reservations whose status may have changed."""
        match event:
            case CustomObjectObserved() if plural_of(ref.id) == PLURAL:
                return [self._observe(event.object["metadata"])]
            case CustomObjectDeleted() if plural_of(ref.id) == PLURAL:
                self._names.pop(self._uids.pop(event.name, ""), None)
                return []
            case NodeResourcesTaken():
                taken = {entry.uid: entry.allocation.reservation for entry in event.pods}
                for uid, reservation in taken.items():
                    if reservation is not None:
                        self._used[uid] = reservation.uid
                    else:
                        self._used.pop(uid, None)
                return self._named(self._used.get(uid, uid) for uid in taken)
            case NodeResourcesReturned():
                return self._named(self._used.pop(uid, uid) for uid in event.pods)
            case PodPlaced() | PodReleased():
                return self._named((ref.id,))
            case _:
                return self._named((ref.id,)) if ref.kind == "reservation" else []

    def _observe(self, metadata: Json) -> str:
        name, uid = str(metadata["name"]), str(metadata.get("uid", ""))
        self._names.pop(self._uids.get(name, ""), None)
        self._names[uid], self._uids[name] = name, uid
        return name

    def _named(self, uids: Iterable[str]) -> list[str]:
        return [self._names[uid] for uid in dict.fromkeys(uids) if uid in self._names]


def reservation_ref(name: str) -> AggregateRef:
    return custom_ref(PLURAL, "", name)


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return format_resources({name: quantity_of(name, amount) for name, amount in amounts.items()})
