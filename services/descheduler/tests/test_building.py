"""Views that are kept current in pieces are the ones that a new start makes from the same state."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import SharedParts
from koord_descheduler.shell import folding
from koord_descheduler.shell.folding import follow_reports, observe_all
from koordcore.bus.adapters.memory import MemoryObservationLog
from koordcore.bus.read.report_gate import ReportGate
from koordcore.bus.refusals import Refusals, Refused
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
    custom_ref,
)
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.objects import Pod, node_from_json, pod_from_json
from koordcore.protocol.priority import BANDS, PriorityBand
from koordcore.service.telemetry.logging import logger
from koordcore.state import ClusterState
from koordcore.state.index import MOST_UNKNOWN_NODES
from structlog.testing import capture_logs
from support.depth import examples
from support.histories.recording import stored
from support.manual_clock import ManualClock
from support.reachable import container_sizes
from support.until import until

GATE = ReportGate(ManualClock(), Refusals("test"))

NUMBERS = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), NUMBERS, NUMBERS),
        st.tuples(st.sampled_from(["pod gone", "node", "node gone", "set gone", "deployment gone"]), NUMBERS, NUMBERS),
        st.tuples(st.just("set"), NUMBERS, NUMBERS),
        st.tuples(st.just("deployment"), NUMBERS, NUMBERS),
        st.tuples(st.just("refresh"), NUMBERS, NUMBERS),
    ),
    max_size=30,
)


class Folded:
    """A builder of views, and the events that reach it."""

    def __init__(self) -> None:
        self.builder = ViewBuilder()
        self.pods: set[int] = set()
        self.nodes: set[int] = set()
        self._seq = 0

    def step(self, what: str, number: int, value: int) -> None:
        match what:
            case "pod":
                kind = PodSpecChanged if number in self.pods else PodSpecAdded
                self.pods.add(number)
                self.tell(AggregateRef("podspec", f"u{number}"), kind(object=pod(number, value)))
            case "pod gone" if number in self.pods:
                self.pods.discard(number)
                gone = PodSpecDeleted(namespace="d", name=f"p{number}")
                self.tell(AggregateRef("podspec", f"u{number}"), gone)
            case "node" if number not in self.nodes:
                self.nodes.add(number)
                self.tell(AggregateRef("nodespec", f"n{number}"), NodeSpecAdded(object=node(number)))
            case "node gone" if number in self.nodes:
                self.nodes.discard(number)
                self.tell(AggregateRef("nodespec", f"n{number}"), NodeSpecDeleted(name=f"n{number}"))
            case "set" | "deployment":
                document = workload(what, number, value)
                self.tell(custom_ref(f"{KINDS[what]}", "d", f"w{number}"), CustomObjectObserved(object=document))
            case "set gone" | "deployment gone":
                plural = KINDS[what.removesuffix(" gone")]
                deleted = CustomObjectDeleted(kind="X", namespace="d", name=f"w{number}")
                self.tell(custom_ref(plural, "d", f"w{number}"), deleted)
            case "refresh":
                self.builder.refresh(value)
            case _:
                pass

    def tell(self, ref: AggregateRef, event: Event) -> None:
        self._seq += 1
        self.builder.apply(stored(self._seq, Draft(ref, event, 0)))


KINDS = {"set": "replicasets", "deployment": "deployments"}


def pod(number: int, value: int) -> Any:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": f"set{value}", "controller": True}
    metadata = {"name": f"p{number}", "namespace": f"d{value % 2}", "uid": f"u{number}", "ownerReferences": [owner]}
    return pod_from_json({"metadata": metadata, "spec": {"nodeName": f"n{value}"}})


def node(number: int) -> Any:
    return node_from_json({"metadata": {"name": f"n{number}"}, "status": {"allocatable": {"cpu": "4"}}})


def workload(what: str, number: int, value: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": "d", "name": f"w{number}", "uid": f"{what}{number}"}
    if what == "set" and value:
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": f"deployment{value}"}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return {"kind": what, "metadata": metadata, "spec": {"replicas": value + 1}}


def content(view: ClusterView, builder: ViewBuilder) -> object:
    """Return what a view says, without the identity of its parts."""
    workloads = {uid: (each.replicas, frozenset(each.owners)) for uid, each in view.workloads.items()}
    on_node = {name: [pod.key for pod in builder.pods_on(name)] for name in (f"n{number}" for number in range(4))}
    of_owner = {uid: sorted(pod.key for pod in builder.pods_of(uid)) for uid in (f"set{number}" for number in range(4))}
    pods = [(pod.key, pod.node) for pod in view.pods]
    return [node.name for node in view.nodes], pods, workloads, on_node, of_owner


@settings(max_examples=examples(150))
@given(STEPS)
def test_views_made_in_pieces_are_those_of_a_new_start(steps: Sequence[tuple[str, int, int]]) -> None:
    folded = Folded()
    for what, number, value in steps:
        folded.step(what, number, value)
    while not folded.builder.refresh(1):
        pass
    started = ViewBuilder()
    started.load(folded.builder.state)
    assert content(folded.builder.view(0.0), folded.builder) == content(started.view(0.0), started)


TEXTS = st.sampled_from(["", "a", "b"])
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=2)


@st.composite
def pod_document(draw: st.DrawFn) -> dict[str, Any]:
    taints = [{"key": key, "effect": draw(TEXTS)} for key in draw(st.lists(TEXTS, max_size=2))]
    return {
        "metadata": {"name": draw(TEXTS), "namespace": draw(TEXTS), "labels": draw(LABELS)},
        "spec": {"nodeName": draw(TEXTS), "tolerations": taints, "nodeSelector": draw(LABELS)},
        "status": {"phase": draw(TEXTS)},
    }


@given(st.lists(pod_document(), max_size=6))
def test_pods_that_share_parts_stay_what_they_are(documents: list[dict[str, Any]]) -> None:
    parts = SharedParts()
    pods = [pod_from_json(document) for document in documents]
    for each in pods:
        parts.share(each)
    assert pods == [pod_from_json(document) for document in documents]
    assert pod_from_json({}) == Pod(), "a pod without values has none of another one"


def test_pods_of_one_workload_share_what_is_equal() -> None:
    parts = SharedParts()
    first, second = (pod_from_json({"metadata": {"name": name, "labels": {"app": "web"}}}) for name in ("a", "b"))
    for each in (first, second):
        parts.share(each)
    assert first.metadata.labels is second.metadata.labels
    assert first.spec.tolerations is second.spec.tolerations


def test_pod_without_priority_gets_that_of_its_class_with_the_gate() -> None:
    labels = {"koordinator.sh/priority-class": "koord-batch"}
    document = {"metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": labels}}
    added = stored(1, Draft(AggregateRef("podspec", "u"), PodSpecAdded(object=pod_from_json(document)), 0))
    for replaces, expected in ((False, None), (True, BANDS[PriorityBand.BATCH].default)):
        builder = ViewBuilder(replaces_priority=replaces)
        builder.apply(added)
        assert [pod.priority for pod in builder.view(0.0).pods] == [expected]


def broken_node(number: int) -> Any:
    return node_from_json({"metadata": {"name": f"n{number}"}, "status": {"allocatable": {"cpu": "four"}}})


def test_node_that_is_valid_again_is_not_called_unreadable() -> None:
    folded, ref = Folded(), AggregateRef("nodespec", "n1")
    folded.tell(ref, NodeSpecAdded(object=broken_node(1)))
    assert folded.builder.view(0.0).nodes == ()
    assert list(folded.builder.unreadable) == ["nodespec.n1"]

    folded.tell(ref, NodeSpecChanged(object=node(1)))
    assert [each.name for each in folded.builder.view(0.0).nodes] == ["n1"]
    assert folded.builder.unreadable == {}


def test_state_of_a_snapshot_has_no_unreadable_objects_of_the_state_before() -> None:
    folded = Folded()
    folded.tell(AggregateRef("nodespec", "n1"), NodeSpecAdded(object=broken_node(1)))
    folded.builder.view(0.0)
    folded.builder.load(ClusterState())
    folded.builder.view(0.0)
    assert folded.builder.unreadable == {}


def usage(cpu_milli: int) -> NodeUsageReported:
    return NodeUsageReported(
        updated_at="2026-01-01T00:00:00Z",
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=Usage(cpu_milli, 1),
        system_usage=Usage(cpu_milli, 1),
    )


class Reports(MemoryObservationLog):
    """Usage reports. While the newest ones are read, one node reports again, and then another one."""

    async def report(self, node: str, cpu_milli: int) -> None:
        origin = Origin(causation_id=f"{node}/{cpu_milli}", correlation_id=node, actor="a", occurred_at="")
        await self.publish(AggregateRef("node", node), usage(cpu_milli), origin)

    async def latest(self, refs: Sequence[AggregateRef]) -> list[StoredEvent]:
        first = await super().latest(refs[:1])
        await self.report("n1", 2)
        await self.report("n2", 2)
        return first + await super().latest(refs[1:])


async def test_report_that_arrives_while_the_newest_ones_are_read_is_not_missed() -> None:
    folded, reports = Folded(), Reports()
    for number in (1, 2):
        folded.tell(AggregateRef("nodespec", f"n{number}"), NodeSpecAdded(object=node(number)))
        await reports.report(f"n{number}", 1)
    following = asyncio.create_task(follow_reports(folded.builder, reports, GATE))

    def measured() -> dict[str, int]:
        return {name: metric.system["cpu"] for name, metric in folded.builder.view(0.0).metrics.items()}

    await until(lambda: measured().get("n2") == 2)
    await reports.report("n2", 3)
    await until(lambda: measured()["n2"] == 3)
    following.cancel()
    assert measured() == {"n1": 2, "n2": 3}


def test_usage_is_kept_for_existing_nodes_only() -> None:
    folded, ref = Folded(), AggregateRef("nodespec", "n1")
    folded.builder.observe("n1", usage(100), 1)
    assert folded.builder.view(0.0).metrics == {}
    folded.tell(ref, NodeSpecAdded(object=node(1)))
    assert folded.builder.view(0.0).metrics == {}

    folded.builder.observe("n1", usage(100), 2)
    assert list(folded.builder.view(0.0).metrics) == ["n1"]


def test_an_instance_that_does_not_lead_forgets_the_usage_of_nodes_that_are_gone() -> None:
    folded = Folded()
    for number in range(2 * MOST_UNKNOWN_NODES):
        ref = AggregateRef("nodespec", f"n{number}")
        folded.tell(ref, NodeSpecAdded(object=node(number)))
        folded.builder.observe(ref.id, usage(100), number)
        folded.tell(ref, NodeSpecDeleted(name=ref.id))
    assert container_sizes(folded.builder)["._metrics._of_node"] <= MOST_UNKNOWN_NODES + 1


async def test_report_whose_time_cannot_be_compared_is_told_and_left_out() -> None:
    folded = Folded()
    folded.tell(AggregateRef("nodespec", "n1"), NodeSpecAdded(object=node(1)))
    reports = [
        stored(seq, Draft(AggregateRef("node", "n1"), msgspec.structs.replace(usage(100), updated_at=at), 0))
        for seq, at in enumerate(("yesterday", "2026-01-01T00:00:00"), start=1)
    ]
    refusals = Refusals("test")
    await observe_all(folded.builder, reports, ReportGate(ManualClock(), refusals))
    assert refusals.of_node["n1"].counts == {Refused.UNREADABLE_REPORT: 2}
    assert refusals.of_node["n1"].reason == "updatedAt '2026-01-01T00:00:00' has no time zone"
    assert folded.builder.view(0.0).metrics == {}


async def test_unreadable_object_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "INTERVAL_SECONDS", 0.001)
    folded = Folded()
    folded.tell(AggregateRef("nodespec", "n1"), NodeSpecAdded(object=broken_node(1)))
    with capture_logs() as lines:
        looking = asyncio.create_task(folding.keep_views_current(folded.builder, logger("t")))
        await until(lambda: lines)
        folded.tell(AggregateRef("nodespec", "n2"), NodeSpecAdded(object=broken_node(2)))
        await until(lambda: len(lines) > 1)
        looking.cancel()
    assert [(line["event"], line["aggregate"]) for line in lines] == [
        ("object_unreadable", "nodespec.n1"),
        ("object_unreadable", "nodespec.n2"),
    ]
