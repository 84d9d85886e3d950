"""The status of a Reservation, computed from its placement, from the ledger of its node, and from how it ended.

Source: scheduler-fine-grained spec, 3.1, 3.3; see `events.reservation`.
"""

from collections.abc import Iterable, Mapping

from koordcore.events.envelope import AggregateRef, name_token
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol import reservation_status as statuses
from koordcore.state.aggregates import NodeLedger, PodState, ReservationState
from koordcore.state.cluster import ClusterState
from koordcore.values.allocation import is_reservation


def node_of_reservation(uid: str, placed: PodState | None, ended: ReservationState | None) -> str:
    """Return the node on which a Reservation holds resources, or held them when it ended; "" for none. `placed`: state
    of the aggregate `pod.<uid>`; None if there is none. `ended`: state of the aggregate `reservation.<uid>`; None if
    there is none.
    """
    if ended is not None and ended.phase:
        return ended.node
    return placed.node if placed is not None and is_reservation(uid, placed.allocation) else ""


def reservation_status(
    uid: str, placed: PodState | None, ended: ReservationState | None, ledger: NodeLedger | None
) -> statuses.ReservationStatus:
    """Compute the status of a Reservation from the aggregates that record what happened to it.

    Args:
        placed: State of the aggregate `pod.<uid>`; None if there is none.
        ended: State of the aggregate `reservation.<uid>`; None if there is none.
        ledger: Ledger of the node that `node_of_reservation` returns; None if there is none.
    """
    status = statuses.ReservationStatus()
    if ended is not None and ended.unschedulable_since:
        status = statuses.unschedulable(status, ended.message, ended.unschedulable_since)
        status = statuses.unschedulable(status, ended.message, ended.unschedulable_at)
    node = node_of_reservation(uid, placed, ended)
    has_ended = ended is not None and bool(ended.phase)
    if has_ended and ended is not None:
        allocatable, since = ended.allocatable, ended.available_since
    else:
        allocatable, since = (placed.requests, placed.placed_at) if node and placed is not None else ({}, "")
    if since:
        status = statuses.bound(status, node, dict(allocatable), since)
        owners = owners_of(uid, ledger.pods if ledger is not None else {})
        status = statuses.owned(
            status,
            [statuses.ReservationOwner(entry.namespace, entry.name, entry.uid) for entry in owners],
            _summed(allocatable, (entry.requests for entry in owners)),
            _summed(allocatable, (used.amounts for entry in owners if (used := entry.allocation.reservation))),
        )
    if ended is None or not has_ended:
        return status
    if ended.phase == statuses.SUCCEEDED:
        return statuses.succeeded(status, ended.ended_at)
    return statuses.expired(status, ended.ended_at, ended.message)


def reservation_of_log(state: ClusterState, uid: str) -> statuses.ReservationStatus:
    """Compute the status of a Reservation: find its aggregates in the cluster state, then call `reservation_status`."""
    placed, ended = state.of_kind(PodState).get(uid), state.of_kind(ReservationState).get(uid)
    node = node_of_reservation(uid, placed, ended)
    ledger = state.get(AggregateRef("node", name_token(node))) if node else None
    return reservation_status(uid, placed, ended, ledger if isinstance(ledger, NodeLedger) else None)


def unused_amounts(entries: Mapping[str, PodOnNode]) -> dict[str, dict[str, int]]:
    """Return uid of each Reservation on a node -> resource -> amount that no pod has taken from the Reservation.
    `entries`: uid -> entry of the ledger of a node.
    """
    rests = {uid: dict(entry.requests) for uid, entry in entries.items() if is_reservation(uid, entry.allocation)}
    if not rests:
        return rests
    for uid, entry in entries.items():
        used = entry.allocation.reservation
        if used is not None and used.uid in rests and used.uid != uid:
            rest = rests[used.uid]
            for name, amount in used.amounts.items():
                if name in rest:
                    rest[name] = max(0, rest[name] - amount)
    return rests


def owners_of(uid: str, entries: Mapping[str, PodOnNode]) -> list[PodOnNode]:
    """Return the pods that use a Reservation, sorted by uid. `entries`: uid -> entry of the ledger of its node."""
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
