"""The pure fold: events a second of `ClusterState.apply`, without a bus."""

import time
from collections.abc import Iterator

from bench.results import Result
from koordcore.events.envelope import BasedOn
from koordcore.events.node_ledger import NodeResourcesTaken, pod_on_node
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded
from koordcore.events.pod import NodeScore, PlacementExplanation, PodPlaced
from koordcore.protocol.pod_resources import pod_requests
from koordcore.state import ClusterState
from support.histories.objects import node, pod
from support.histories.recording import Recorder

NODES = 1000
PODS = 10_000


def placements() -> Recorder:
    """A log of 1,000 nodes and 10,000 placed pods: 31,000 events."""
    log = Recorder()
    for number in range(NODES):
        log.write("nodespec", f"node-{number}", NodeSpecAdded(object=node(f"node-{number}")))
    for number in range(PODS):
        spec, name = pod(number), f"node-{number % NODES}"
        log.write("podspec", f"uid-{number}", PodSpecAdded(object=spec))
        explanation = PlacementExplanation(
            nodes_considered=NODES,
            nodes_feasible=NODES,
            top=[NodeScore(name, 90, {"NodeResourcesFit": 90})] * 3,
            policy_version="bench",
            based_on=BasedOn(len(log.events), 0),
        )
        placed = PodPlaced(
            namespace="default",
            name=f"pod-{number}",
            node=name,
            requests=pod_requests(spec),
            attempt=1,
            queued_at="2026-01-01T00:00:00.000000Z",
            explanation=explanation,
        )
        log.write("pod", f"uid-{number}", placed)
        log.write("node", name, NodeResourcesTaken(pods=[pod_on_node(f"uid-{number}", spec)]))
    return log


def measure() -> Iterator[Result]:
    """Fold and hash rates."""
    events = placements().events
    state = ClusterState()
    began = time.perf_counter()
    for event in events:
        state.apply(event)
    seconds = time.perf_counter() - began
    yield Result(name="pure fold", value=len(events) / seconds, unit="events/s", target=30_000)
    began = time.perf_counter()
    state.hash()
    yield Result(
        name="state hash from scratch",
        value=state.aggregate_count / (time.perf_counter() - began),
        unit="aggregates/s",
    )
