"""A scheduler that does not lead keeps nothing of pods that come and go: nobody takes what it has collected."""

import re
from itertools import count

import msgspec
import pytest
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koordcore.events.envelope import AggregateRef, BasedOn, Draft
from koordcore.events.gateway import PodBindFailed
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pod_on_node
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded, PodSpecDeleted
from koordcore.events.pod import PlacementExplanation, PodPlaced, PodReleased
from support.depth import repeats
from support.histories.objects import node
from support.histories.objects import pod as histories_pod
from support.histories.recording import stored
from support.reachable import container_sizes
from support.scheduler.scheduling import frameworks

PODS = repeats(10_000)
MOST_ENTRIES = 200
"""Entries of one container, as the queue keeps up to 64 outdated ones of three numbers each."""
OF_OTHERS = re.compile(r"\._gate|\._room\._(nodes|sees_otherwise)")
"""Paths from the queue to the rest of the state."""


@pytest.mark.fuzz
def test_queue_of_a_standby_keeps_nothing_of_pods_that_came_and_went() -> None:
    state, seqs = SchedulerState(frameworks()), count(1)
    fold(state, stored(next(seqs), Draft(AggregateRef("nodespec", "n"), NodeSpecAdded(object=node("n")), 0)))
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="test", based_on=BasedOn())
    submitted = histories_pod(0)
    placed = PodPlaced(
        namespace="default",
        name="p",
        node="n",
        requests={"cpu": 500},
        attempt=1,
        queued_at="2026-01-01T00:00:00.000000Z",
        explanation=explanation,
    )
    for life in range(PODS):
        uid = f"uid-{life}"
        meta = msgspec.structs.replace(submitted.metadata, uid=uid)
        added = PodSpecAdded(object=msgspec.structs.replace(submitted, metadata=meta))
        spec, pod, ledger = AggregateRef("podspec", uid), AggregateRef("pod", uid), AggregateRef("node", "n")
        placement = 0
        for ref, event in (
            (spec, added),
            (pod, placed),
            (ledger, NodeResourcesTaken(pods=[pod_on_node(uid, submitted)])),
            (spec, None),
            (pod, PodReleased(namespace="default", name="p", node="n", reason="bind-failed")),
            (ledger, NodeResourcesReturned(pods=[uid])),
            (spec, PodSpecDeleted(namespace="default", name="p")),
        ):
            seq = next(seqs)
            placement = seq if event is placed else placement
            failed = PodBindFailed(node="n", placement=placement, reason="Forbidden")
            fold(state, stored(seq, Draft(ref, event or failed, 0)))

    assert len(state.queue) == 0
    sizes = container_sizes(state.queue)
    assert {path: size for path, size in sizes.items() if size > MOST_ENTRIES and not OF_OTHERS.match(path)} == {}
