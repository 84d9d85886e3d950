"""Whatever happens to the pods of a workload, in whatever order, an eviction is allowed only below the limit."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.limits import Availability
from koord_descheduler.domain.view.building import ViewBuilder
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.objects import (
    CustomObjectObserved,
    NodeSpecAdded,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
    custom_ref,
)
from koordcore.protocol.objects import node_from_json, pod_from_json
from support.depth import examples
from support.histories.recording import stored

REPLICAS = 6
NODES = 2
OPERATIONS = ("ask", "preempt", "give up", "leave", "come", "unready", "ready", "lose node", "add node")


def pod(index: int, *, ready: bool) -> Any:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    metadata = {"name": f"p{index}", "namespace": "d", "uid": f"u{index}", "ownerReferences": [owner]}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
    return pod_from_json({"metadata": metadata, "spec": {"nodeName": f"n{index % NODES}"}, "status": status})


class Workload:
    """A workload in the fold, and a plain model of it."""

    def __init__(self) -> None:
        self.builder = ViewBuilder()
        self.ready: dict[int, bool] = {}
        self.leaving: set[int] = set()
        self.nodes: set[int] = set()
        self._seq = 0
        metadata = {"namespace": "d", "name": "r", "uid": "r"}
        document = {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": REPLICAS}}
        self._tell(custom_ref("replicasets", "d", "r"), CustomObjectObserved(object=document))
        for index in range(NODES):
            self.do("add node", index, 0)
        for index in range(REPLICAS):
            self.do("come", index, 0)

    def unavailable(self, besides: int = -1) -> int:
        """Return how many of the replicas, besides one, are missing, not ready, leaving, or on a lost node."""
        fine = sum(
            ready and index not in self.leaving and index % NODES in self.nodes
            for index, ready in self.ready.items()
            if index != besides
        )
        return (REPLICAS if besides not in self.ready else REPLICAS - 1) - fine

    def do(self, operation: str, index: int, limit: int) -> None:
        """Carry out an operation if it is possible."""
        exists, leaves, node = index in self.ready, index in self.leaving, index % NODES
        match operation:
            case "ask" if exists and not leaves:
                self._ask(index, limit)
            case "preempt" if exists and not leaves:
                self._request(index, "scheduler")
            case "give up" if leaves:
                self._tell(AggregateRef("eviction", f"u{index}"), PodEvictionFailed(reason="Gone"))
                self.leaving.discard(index)
            case "leave" if exists:
                if leaves:
                    self._tell(AggregateRef("eviction", f"u{index}"), PodEvicted())
                self._tell(AggregateRef("podspec", f"u{index}"), PodSpecDeleted(namespace="d", name=f"p{index}"))
                self.leaving.discard(index)
                del self.ready[index]
            case "come" if not exists:
                self._tell(AggregateRef("podspec", f"u{index}"), PodSpecAdded(object=pod(index, ready=True)))
                self.ready[index] = True
            case "ready" | "unready" if exists:
                self.ready[index] = operation == "ready"
                changed = PodSpecChanged(object=pod(index, ready=self.ready[index]))
                self._tell(AggregateRef("podspec", f"u{index}"), changed)
            case "lose node" if node in self.nodes:
                self._tell(AggregateRef("nodespec", f"n{node}"), NodeSpecDeleted(name=f"n{node}"))
                self.nodes.discard(node)
            case "add node" if node not in self.nodes:
                document = {"metadata": {"name": f"n{node}"}, "status": {"allocatable": {"cpu": "4"}}}
                self._tell(AggregateRef("nodespec", f"n{node}"), NodeSpecAdded(object=node_from_json(document)))
                self.nodes.add(node)
            case _:
                pass

    def _ask(self, index: int, limit: int) -> None:
        availability = Availability(self.builder, MigrationControllerArgs(max_unavailable_per_workload=limit), ())
        found = self.builder.pod_named("d", f"p{index}")
        assert found is not None
        others = self.unavailable(besides=index)
        full = availability.refusal(found)
        assert (full is None) == (others < limit)
        assert full is None or (full.used, full.limit) == (others, limit)
        if others < limit:
            self._request(index, "descheduler")
            assert self.unavailable() <= limit

    def _request(self, index: int, initiator: str) -> None:
        name = f"p{index}"
        request = PodEvictionRequested(
            namespace="d", name=name, node="", initiator=initiator, method="evict", reason="Evicted"
        )
        self._tell(AggregateRef("eviction", f"u{index}"), request)
        self.leaving.add(index)

    def _tell(self, ref: AggregateRef, event: Event) -> None:
        self._seq += 1
        self.builder.apply(stored(self._seq, Draft(ref, event, 0)))


@settings(max_examples=examples(60))
@given(
    limit=st.integers(1, 4),
    operations=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, REPLICAS - 1)), min_size=20, max_size=60),
)
def test_evictions_stay_within_the_limit_and_are_not_refused_below_it(
    limit: int, operations: list[tuple[str, int]]
) -> None:
    workload = Workload()
    for operation, index in operations:
        workload.do(operation, index, limit)


@given(limit=st.integers(1, 4))
def test_evictions_of_one_pass_count_for_each_other(limit: int) -> None:
    workload = Workload()
    leaving: set[str] = set()
    availability = Availability(workload.builder, MigrationControllerArgs(max_unavailable_per_workload=limit), leaving)
    for pod in (workload.builder.pod_named("d", f"p{index}") for index in range(REPLICAS)):
        assert pod is not None
        if availability.refusal(pod) is None:
            leaving.add(pod.uid)
    assert len(leaving) == limit
