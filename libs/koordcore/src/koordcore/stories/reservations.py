"""A Reservation as `koord get reservations` and the dashboard show it: its object and its status in one value.

Source: scheduler-fine-grained spec, 3.1, 3.3, 3.4.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import msgspec

from koordcore.protocol import reservation_status as statuses
from koordcore.protocol import reservations as documents
from koordcore.protocol.objects import LabelSelector, ObjectMeta
from koordcore.protocol.pod_resources import pod_requests
from koordcore.values import codec
from koordcore.values.duration import NANOS_PER_SECOND, parse_duration
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

DEFAULT_TTL: Final = "24h"
_DEFAULT_POLICY: Final = "Default"


class ReservationView(msgspec.Struct, frozen=True, kw_only=True):
    """A Reservation at one moment, as people see it. Amounts are milli-cores for cpu, whole units for everything
    else.
    """

    name: str
    uid: str
    phase: str  # Pending, Available, Succeeded or Failed
    node: str = ""  # Node of the Reservation; empty without one
    created_at: str = ""  # RFC 3339 time of its creation
    expires_at: str = ""  # RFC 3339 time at which it expires; empty if it never does, or has ended already
    policy: str = _DEFAULT_POLICY  # Default, Aligned or Restricted
    allocate_once: bool = True  # Whether the Reservation ends as soon as one pod uses it
    for_pods: list[str] = []  # Pods that may use it: one text for each rule in `spec.owners[]`
    reserved: dict[str, int] = {}  # Resource -> amount that the Reservation holds, or requests while it is Pending
    taken: dict[str, int] = {}  # Resource -> amount that its owners take from it
    # Resource -> amount that it holds and that no owner takes; empty unless it is Available.
    unused: dict[str, int] = {}
    allocated: dict[str, int] = {}  # Sum of its owners' requests, for the resources in `reserved`
    owners: list[statuses.ReservationOwner] = []  # The pods that use it
    conditions: list[statuses.ReservationCondition] = []  # Conditions of its status
    message: str = ""  # Why it has no node, or why it ended; empty otherwise
    problem: str = ""  # Why the object of the Reservation is invalid; empty if it is valid


def reservation_view(document: Mapping[str, object], status: statuses.ReservationStatus) -> ReservationView:
    """Combine the object and the status of a Reservation into one value for people.

    Args:
        document: The Reservation object as JSON.
        status: Status of the Reservation, see `koordcore.state.reservations.reservation_status`. If our log has no
            facts about the Reservation, the status in the object replaces it, because another scheduler wrote that
            status.
    """
    try:
        reservation = documents.reservation_from_json(document)
        asked = pod_requests(documents.reserve_pod(reservation))
        if status == statuses.ReservationStatus() and documents.phase_by_others(reservation):
            status = documents.status_by_others(reservation)
        problem = ""
    except (codec.DecodeError, InvalidInput) as error:
        reservation, asked, problem = documents.Reservation(metadata=_metadata(document)), {}, str(error)
    meta, spec = reservation.metadata, reservation.spec
    has_node = bool(status.allocatable)
    is_open = status.phase == statuses.AVAILABLE
    return ReservationView(
        name=meta.name,
        uid=meta.uid,
        phase=status.phase,
        node=status.node,
        created_at=meta.creation_timestamp or "",
        expires_at="" if status.phase in statuses.FINAL_PHASES else ends_at(reservation),
        policy=spec.allocate_policy or _DEFAULT_POLICY,
        allocate_once=spec.allocate_once,
        for_pods=[owner_text(rule) for rule in spec.owners],
        reserved=status.allocatable if has_node else asked,
        taken=status.taken,
        unused={name: amount - min(amount, status.taken.get(name, 0)) for name, amount in status.allocatable.items()}
        if is_open
        else {},
        allocated=status.allocated,
        owners=status.owners,
        conditions=status.conditions,
        message=_message(status),
        problem=problem,
    )


def ends_at(reservation: documents.Reservation) -> str:
    """Return the RFC 3339 time at which a Reservation expires; empty if it never does, or if its times are invalid.
    Without a `ttl` in its spec, 24 h count. With `ttl` 0, it never expires, also if `expires` is set.

    Source: scheduler-fine-grained spec, 3.3 (`expires`, or the creation time plus `ttl`, whichever is earlier).
    """
    spec = reservation.spec
    try:
        nanos = parse_duration(DEFAULT_TTL if spec.ttl is None else spec.ttl)
        ends = [_instant(spec.expires)] if spec.expires else []
        if reservation.metadata.creation_timestamp:
            created = _instant(reservation.metadata.creation_timestamp)
            ends.append(created + timedelta(seconds=nanos / NANOS_PER_SECOND))
    except (InvalidInput, ValueError, OverflowError):
        return ""
    return rfc3339(min(ends)) if nanos and ends else ""


def owner_text(rule: documents.ReservationOwnerRule) -> str:
    """Return a rule of `spec.owners[]` as text, for example "ReplicaSet default/web" or "app=web, tier in (a, b)"."""
    parts: list[str] = []
    if rule.object is not None:
        wanted = rule.object
        name = f"{wanted.namespace}/{wanted.name}" if wanted.namespace else wanted.name
        if not wanted.name and not wanted.uid:
            parts.append(f"pods in {wanted.namespace}" if wanted.namespace else "pods")
        else:
            parts.append(
                " ".join(part for part in ("pod", name.removesuffix("/"), wanted.uid and f"uid {wanted.uid}") if part)
            )
    if rule.controller is not None:
        controller = rule.controller
        name = f"{controller.namespace}/{controller.name}" if controller.namespace else controller.name
        parts.append(" ".join(part for part in (controller.kind or "controller", name) if part))
    if rule.label_selector is not None:
        parts.append(_selector_text(rule.label_selector))
    return " and ".join(parts) or "every pod"


def _selector_text(selector: LabelSelector) -> str:
    parts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for each in selector.match_expressions:
        values = f" ({', '.join(each.values)})" if each.values else ""
        parts.append(f"{each.key} {each.operator}{values}")
    return ", ".join(parts) or "any label"


def _message(status: statuses.ReservationStatus) -> str:
    ended = next((each.message for each in status.conditions if each.type != statuses.SCHEDULED and each.message), "")
    scheduled = status.condition(statuses.SCHEDULED)
    waiting = scheduled.message if scheduled is not None and scheduled.status != "True" else ""
    return ended or waiting


def _metadata(document: Mapping[str, object]) -> ObjectMeta:
    """Return name and uid of an object that cannot be read as a whole."""
    written = document.get("metadata")
    if not isinstance(written, Mapping):
        return ObjectMeta()
    fields = cast("Mapping[str, object]", written)
    return ObjectMeta(name=str(fields.get("name", "")), uid=str(fields.get("uid", "")))


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
