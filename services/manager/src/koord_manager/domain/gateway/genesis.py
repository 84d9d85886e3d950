"""Write the first facts of a log from the objects of an API server.

This is used when Koordstream is installed in a cluster with running pods, or after the log was lost. The facts are
those that the gateway and a scheduler would have written. A pod with a node counts as placed on it, with the allocation
in its annotations. A Reservation counts as its status says. The stream has to be empty.

Source:
    event-bus spec, 9.3
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, name_token
from koordcore.events.gateway import GENESIS, GenesisRecorded
from koordcore.events.node_ledger import NodeResourcesTaken, PodOnNode, pod_on_node
from koordcore.events.objects import CustomObjectObserved, plural_of
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.events.reservation import ReservationFailed, ReservationSucceeded
from koordcore.protocol.annotations.allocation import allocation_of
from koordcore.protocol.annotations.gang import bound_gang_of
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservation_status import AVAILABLE, FINAL_PHASES, SUCCEEDED
from koordcore.protocol.reservations import PLURAL, Reservation, phase_by_others, readable_reservation, reserve_pod
from koordcore.values.allocation import ReservationUse
from koordcore.values.invalid import InvalidInput
from msgspec import structs

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.mirror import Seen, next_draft

EPOCH_CONFIG_MAP: Final = "koordstream-cluster"
"""ConfigMap with the epoch of the cluster."""
POLICY: Final = "genesis"
"""Policy version of placements that were observed and not decided."""

_FINISHED: Final = ("Succeeded", "Failed")


class _Found(NamedTuple):
    uid: str
    pod: Pod
    placed: PodPlaced


def genesis_drafts(seen: Iterable[Seen], *, cluster_epoch: int, now: str) -> Iterator[Draft]:
    """Yield the first facts of a log, each for a new aggregate.

    They are the mirrored objects, then the placements of running pods and of Reservations, and the ledgers of nodes.
    The last fact records the genesis itself.

    Args:
        seen: The objects of the API server.
        cluster_epoch: Number of this log of the cluster, greater than that of any earlier log.
        now: Time for pods whose object has no creation time, RFC 3339.
    """
    nothing = ManagerView()
    observed: dict[str, int] = {}
    found: list[_Found] = []
    unused: dict[str, dict[str, int]] = {}
    for item in seen:
        draft = next_draft(nothing, item)
        if draft is None:
            continue
        yield _counted(observed, draft)
        if isinstance(item.object, Pod):
            found += _placement(item.ref.id, item.object, now)
        elif plural_of(item.ref.id) == PLURAL and isinstance(draft.event, CustomObjectObserved):
            reservation = readable_reservation(draft.event.object)
            phase = phase_by_others(reservation)
            if reservation is not None and phase in FINAL_PHASES:
                ref = AggregateRef("reservation", reservation.metadata.uid)
                yield _counted(observed, Draft(ref, _end(reservation, phase), 0))
            elif reservation is not None and phase == AVAILABLE:
                held = _placement_of(reservation, now)
                found += held
                unused.update({each.uid: dict(each.placed.requests) for each in held})
    on_node: dict[str, list[PodOnNode]] = {}
    for each in found:
        placed = _with_amounts(each, unused)
        yield _counted(observed, Draft(AggregateRef("pod", each.uid), placed, 0))
        on_node.setdefault(placed.node, []).append(pod_on_node(each.uid, each.pod, placed.allocation))
    for node, pods in on_node.items():
        yield _counted(observed, Draft(AggregateRef("node", name_token(node)), NodeResourcesTaken(pods=pods), 0))
    yield Draft(GENESIS, GenesisRecorded(cluster_epoch=cluster_epoch, observed=observed), 0)


def _counted(observed: dict[str, int], draft: Draft) -> Draft:
    observed[draft.ref.kind] = observed.get(draft.ref.kind, 0) + 1
    return draft


def _end(reservation: Reservation, phase: str) -> Event:
    """Return the fact that a Reservation has succeeded or failed, from the status of its object."""
    name, node = reservation.metadata.name, reservation.status.node_name
    if phase == SUCCEEDED:
        owner = next((each.get("uid", "") for each in reservation.status.current_owners), "")
        return ReservationSucceeded(name=name, node=node, owner=owner)
    return ReservationFailed(name=name, node=node)


def _placement_of(reservation: Reservation, now: str) -> list[_Found]:
    """Return the placement of an available Reservation; empty if its amounts are invalid."""
    try:
        pod = reserve_pod(reservation, is_bound=True)
    except InvalidInput:
        return []
    meta = reservation.metadata
    found = _placement(meta.uid, pod, now)
    own = ReservationUse(name=meta.name, uid=meta.uid)
    return [each._replace(placed=_using(each.placed, own)) for each in found]


def _with_amounts(found: _Found, unused: dict[str, dict[str, int]]) -> PodPlaced:
    """Return the placement of a pod with the amounts that it takes from its Reservation, which annotations do not say.

    They are what it requests, at most what is left of the Reservation.

    Args:
        found: The pod; its placement is returned as it is if the pod uses no Reservation that is available.
        unused: Uid of an available Reservation -> resource -> unused amount; it decreases by the amounts.
    """
    placed = found.placed
    used = placed.allocation.reservation
    left = None if used is None else unused.get(used.uid)
    if used is None or left is None or used.uid == found.uid:
        return placed
    amounts = {name: min(amount, left[name]) for name, amount in placed.requests.items() if left.get(name, 0) > 0}
    for name, amount in amounts.items():
        left[name] -= amount
    return _using(placed, structs.replace(used, amounts=amounts))


def _using(placed: PodPlaced, used: ReservationUse) -> PodPlaced:
    return structs.replace(placed, allocation=structs.replace(placed.allocation, reservation=used))


def _placement(uid: str, pod: Pod, now: str) -> list[_Found]:
    if not pod.spec.node_name or pod.status.phase in _FINISHED:
        return []
    try:
        requests = pod_requests(pod)
    except InvalidInput:
        return []  # no scheduler would have placed it; the API server's word that it runs there stays in its object
    meta = pod.metadata
    placed = PodPlaced(
        namespace=meta.namespace,
        name=meta.name,
        node=pod.spec.node_name,
        requests=requests,
        attempt=0,
        queued_at=meta.creation_timestamp or now,
        allocation=allocation_of(meta.annotations),
        gang=bound_gang_of(meta.annotations),
        explanation=PlacementExplanation(
            nodes_considered=0, nodes_feasible=0, policy_version=POLICY, based_on=BasedOn()
        ),
    )
    return [_Found(uid, pod, placed)]
