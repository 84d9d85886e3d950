"""Series of nodes and namespaces that come and go do not grow for ever."""

from typing import Any

import pytest
from koord_descheduler.domain.framework.eviction import Result
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.metrics import DeschedulerMetrics
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.objects import (
    NamespaceDeleted,
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecDeleted,
)
from koordcore.protocol.objects import Namespace, ObjectMeta, node_from_json, pod_from_json
from koordcore.service.telemetry.metrics import KEPT_SECONDS
from prometheus_client import CollectorRegistry
from support.histories.recording import stored
from support.manual_clock import ManualClock
from support.reachable import container_sizes

NODE, NAMESPACE, POD = AggregateRef("nodespec", "n"), AggregateRef("namespace", "d"), AggregateRef("podspec", "u")
BORN: dict[AggregateRef, Event] = {
    NODE: NodeSpecAdded(object=node_from_json({"metadata": {"name": "n"}})),
    NAMESPACE: NamespaceObserved(object=Namespace(metadata=ObjectMeta(name="d"))),
    POD: PodSpecAdded(object=pod_from_json({"metadata": {"name": "p", "namespace": "d", "uid": "u"}})),
}
GONE: dict[AggregateRef, Event] = {
    NODE: NodeSpecDeleted(name="n"),
    NAMESPACE: NamespaceDeleted(name="d"),
    POD: PodSpecDeleted(namespace="d", name="p"),
}


class Counted:
    """Metrics of a cluster with one node and one namespace, in which an eviction succeeded."""

    def __init__(self) -> None:
        self.builder, self.clock, self.registry = ViewBuilder(), ManualClock(), CollectorRegistry()
        self.metrics = DeschedulerMetrics(self.registry, self.builder, self.clock)
        self._seq = 0
        self.tell(NODE, BORN[NODE])
        self.tell(NAMESPACE, BORN[NAMESPACE])
        self.call()

    def tell(self, ref: AggregateRef, event: Event) -> None:
        self._seq += 1
        self.builder.apply(stored(self._seq, Draft(ref, event, 0)))
        self.builder.refresh(1)

    def call(self, node: str = "n") -> None:
        self.metrics.called("Drain", "d", node, is_done=True)

    def shown(self) -> Any:
        by = {"result": str(Result.SUCCESS), "strategy": "Drain", "namespace": "d", "node": "n"}
        return self.registry.get_sample_value("descheduler_pods_evicted_total", by)


@pytest.mark.parametrize("gone", [NODE, NAMESPACE])
def test_evictions_of_what_is_gone_are_shown_for_a_while(gone: AggregateRef) -> None:
    it = Counted()
    it.clock.jump(10 * KEPT_SECONDS)
    assert it.shown() == 1
    it.tell(gone, GONE[gone])
    it.call()  # the answer to an eviction may be folded after the node
    it.clock.jump(KEPT_SECONDS)
    assert it.shown() == 2
    it.clock.jump(1)
    assert it.shown() is None
    it.tell(gone, BORN[gone])
    it.call()
    assert it.shown() == 1


def test_evictions_are_shown_while_a_namespace_without_an_object_has_pods() -> None:
    it = Counted()
    it.tell(POD, BORN[POD])
    it.tell(NAMESPACE, GONE[NAMESPACE])
    it.clock.jump(10 * KEPT_SECONDS)
    assert it.shown() == 1
    it.tell(POD, GONE[POD])
    it.clock.jump(10 * KEPT_SECONDS)
    assert it.shown() is None


def test_series_of_nodes_that_are_gone_do_not_grow_if_nobody_reads_the_metrics() -> None:
    it = Counted()
    for number in range(100):
        it.call(f"node-{number}")
        it.clock.jump(10 * KEPT_SECONDS)
        it.metrics.count([], frozenset())
    assert max(container_sizes(it.metrics).values()) < 50
