"""The status of a Reservation, computed from the aggregates that state what became of it.

Source: scheduler-fine-grained spec, 3.1, 3.3; see `events.scheduling.reservation`.
"""

from collections.abc import Iterable, Mapping

import msgspec

from koordcore.events.envelope import AggregateRef, name_token
from koordcore.events.scheduling.node_ledger import PodOnNode
from koordcore.state.aggregates import NodeLedger, PodState, ReservationState
from koordcore.state.cluster import ClusterState
from koordcore.values.allocation import is_reservation


class ReservationOwner(msgspec.Struct, frozen=True, gc=False):
    """A pod that takes from a Reservation."""

    namespace: str
    name: str
    uid: str


class ReservationCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A condition as in the status of the object. `type` is "Scheduled" or "Ready"; times are RFC 3339."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_probe_time: str
    last_transition_time: str


class ReservationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a Reservation.

    Attributes:
        phase: Pending, Available, Succeeded or Failed.
        node: The node that it holds, or held when it ended; empty if it never had one.
        allocatable: What it holds, or held: milli-cores for cpu, whole units for everything else.
        allocated: Sum of its owners' requests, for names in `allocatable`. May exceed it.
        taken: What its owners take from it and not from the node. Never exceeds `allocatable`.
        owners: The pods that take from it, ascending by uid.
        conditions: Conditions of the object.
    """

    phase: str = "Pending"
    node: str = ""
    allocatable: dict[str, int] = {}
    allocated: dict[str, int] = {}
    taken: dict[str, int] = {}
    owners: list[ReservationOwner] = []
    conditions: list[ReservationCondition] = []


def node_of_reservation(uid: str, placed: PodState | None, ended: ReservationState | None) -> str:
    """Return the node whose ledger `reservation_status` needs; empty if there is none.

    Args:
        uid: Uid of the Reservation.
        placed: State of `pod.<uid>`.
        ended: State of `reservation.<uid>`.
    """
    if ended is not None and ended.phase:
        return ended.node
    return placed.node if placed is not None and is_reservation(uid, placed.allocation) else ""


def reservation_status(
    uid: str, placed: PodState | None, ended: ReservationState | None, ledger: NodeLedger | None
) -> ReservationStatus:
    """Return the status of a Reservation.

    Args:
        uid: Its uid.
        placed: State of `pod.<uid>`.
        ended: State of `reservation.<uid>`.
        ledger: Ledger of the node that `node_of_reservation` returns.
    """
    node = node_of_reservation(uid, placed, ended)
    pods = ledger.pods if ledger is not None else {}
    if ended is not None and ended.phase:
        allocatable, since = ended.allocatable, ended.available_since
    elif node and placed is not None:
        allocatable, since = placed.requests, placed.placed_at
    else:
        return ReservationStatus(conditions=_waiting(ended))
    owners = _owners(uid, pods)
    phase = ended.phase if ended is not None and ended.phase else "Available"
    return ReservationStatus(
        phase=phase,
        node=node,
        allocatable=dict(allocatable),
        allocated=_summed(allocatable, (entry.requests for entry in owners)),
        taken=_summed(allocatable, (used.amounts for entry in owners if (used := entry.allocation.reservation))),
        owners=[ReservationOwner(entry.namespace, entry.name, entry.uid) for entry in owners],
        conditions=_conditions(since, ended),
    )


def reservation_of_log(state: ClusterState, uid: str) -> ReservationStatus:
    """Return the status of a Reservation at the position of a fold.

    Args:
        state: The fold of the log.
        uid: Uid of the Reservation.
    """
    placed, ended = state.of_kind(PodState).get(uid), state.of_kind(ReservationState).get(uid)
    node = node_of_reservation(uid, placed, ended)
    ledger = state.get(AggregateRef("node", name_token(node))) if node else None
    return reservation_status(uid, placed, ended, ledger if isinstance(ledger, NodeLedger) else None)


def unused_rests(entries: Mapping[str, PodOnNode]) -> dict[str, dict[str, int]]:
    """Return the uid of each Reservation in a ledger -> what no pod has taken from it, by resource.

    Args:
        entries: Entries of the ledger of a node, by uid.
    """
    rests = {uid: dict(entry.requests) for uid, entry in entries.items() if is_reservation(uid, entry.allocation)}
    for uid, entry in entries.items():
        used = entry.allocation.reservation
        if used is not None and used.uid in rests and used.uid != uid:
            rest = rests[used.uid]
            for name, amount in used.amounts.items():
                if name in rest:
                    rest[name] = max(0, rest[name] - amount)
    return rests


def _owners(uid: str, entries: Mapping[str, PodOnNode]) -> list[PodOnNode]:
    found = (
        entry
        for entry in entries.values()
        if entry.uid != uid and entry.allocation.reservation is not None and entry.allocation.reservation.uid == uid
    )
    return sorted(found, key=lambda entry: entry.uid)


def _summed(names: Mapping[str, int], parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            if name in names:
                total[name] = total.get(name, 0) + amount
    return total


def _waiting(ended: ReservationState | None) -> list[ReservationCondition]:
    if ended is None or not ended.unschedulable_since:
        return []
    return [
        ReservationCondition(
            type="Scheduled",
            status="False",
            reason="Unschedulable",
            message=ended.message,
            last_probe_time=ended.unschedulable_at,
            last_transition_time=ended.unschedulable_since,
        )
    ]


def _conditions(since: str, ended: ReservationState | None) -> list[ReservationCondition]:
    has_ended = ended is not None and bool(ended.phase)
    found = [_true("Scheduled", "Scheduled", since)] if since else _waiting(ended)
    if ended is None or not has_ended:
        return [*found, _true("Ready", "Available", since)]
    keeps_transition = ended.phase == "Succeeded" and bool(since)
    ready = ReservationCondition(
        type="Ready",
        status="False",
        reason=ended.reason,
        message=ended.message,
        last_probe_time=ended.ended_at,
        last_transition_time=since if keeps_transition else ended.ended_at,
    )
    return [*found, ready]


def _true(type_: str, reason: str, since: str) -> ReservationCondition:
    return ReservationCondition(
        type=type_, status="True", reason=reason, last_probe_time=since, last_transition_time=since
    )
