"""Write the first facts of a log from the objects of an API server.

This is used when Koordstream is installed in a cluster with running pods, or after the log was lost. The facts are
those that the gateway and a scheduler would have written. A pod with a node counts as placed on it, with the allocation
in its annotations. The stream has to be empty.

Source:
    event-bus spec, 9.3
"""

from collections.abc import Iterable, Iterator
from typing import Final

from koordcore.events.envelope import AggregateRef, BasedOn, Draft, name_token
from koordcore.events.objects.gateway import GENESIS, GenesisRecorded
from koordcore.events.scheduling.node_ledger import NodeResourcesTaken, PodOnNode, pod_on_node
from koordcore.events.scheduling.placement_explanation import PlacementExplanation
from koordcore.events.scheduling.pod import PodPlaced
from koordcore.protocol.annotations.allocation import allocation_of
from koordcore.protocol.annotations.gang import bound_gang_of
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.mirror import Seen, next_draft

EPOCH_CONFIG_MAP: Final = "koordstream-cluster"
"""ConfigMap with the epoch of the cluster."""
POLICY: Final = "genesis"
"""Policy version of placements that were observed and not decided."""

_FINISHED: Final = ("Succeeded", "Failed")


def genesis_drafts(seen: Iterable[Seen], *, cluster_epoch: int, now: str) -> Iterator[Draft]:
    """Yield the first facts of a log, each for a new aggregate.

    They are the mirrored objects, then the placements of running pods and the ledgers of nodes. The last fact records
    the genesis itself.

    Args:
        seen: The objects of the API server.
        cluster_epoch: Number of this log of the cluster, greater than that of any earlier log.
        now: Time for pods whose object has no creation time, RFC 3339.
    """
    nothing = ManagerView()
    observed: dict[str, int] = {}
    on_node: dict[str, list[PodOnNode]] = {}
    for item in seen:
        draft = next_draft(nothing, item)
        if draft is None:
            continue
        yield _counted(observed, draft)
        if isinstance(item.object, Pod):
            placed = _placement(item.object, now)
            if placed is not None:
                yield _counted(observed, Draft(AggregateRef("pod", item.ref.id), placed, 0))
                entry = pod_on_node(item.ref.id, item.object, placed.allocation)
                on_node.setdefault(placed.node, []).append(entry)
    for node, pods in on_node.items():
        yield _counted(observed, Draft(AggregateRef("node", name_token(node)), NodeResourcesTaken(pods=pods), 0))
    yield Draft(GENESIS, GenesisRecorded(cluster_epoch=cluster_epoch, observed=observed), 0)


def _counted(observed: dict[str, int], draft: Draft) -> Draft:
    observed[draft.ref.kind] = observed.get(draft.ref.kind, 0) + 1
    return draft


def _placement(pod: Pod, now: str) -> PodPlaced | None:
    if not pod.spec.node_name or pod.status.phase in _FINISHED:
        return None
    try:
        requests = pod_requests(pod)
    except InvalidInput:
        return None  # no scheduler would have placed it; the API server's word that it runs there stays in its object
    meta = pod.metadata
    return PodPlaced(
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
