"""Views that are kept current in pieces are the ones that a new start makes from the same state."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.sharing import SharedParts
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.events.objects.mirror import NodeSpecAdded, NodeSpecDeleted, PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.protocol.objects import Pod, node_from_json, pod_from_json
from koordcore.protocol.priority import BANDS, PriorityBand
from support.histories import stored

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
                self._tell(AggregateRef("podspec", f"u{number}"), kind(object=pod(number, value)))
            case "pod gone" if number in self.pods:
                self.pods.discard(number)
                gone = PodSpecDeleted(namespace="d", name=f"p{number}")
                self._tell(AggregateRef("podspec", f"u{number}"), gone)
            case "node" if number not in self.nodes:
                self.nodes.add(number)
                self._tell(AggregateRef("nodespec", f"n{number}"), NodeSpecAdded(object=node(number)))
            case "node gone" if number in self.nodes:
                self.nodes.discard(number)
                self._tell(AggregateRef("nodespec", f"n{number}"), NodeSpecDeleted(name=f"n{number}"))
            case "set" | "deployment":
                document = workload(what, number, value)
                self._tell(custom_ref(f"{KINDS[what]}", "d", f"w{number}"), CustomObjectObserved(object=document))
            case "set gone" | "deployment gone":
                plural = KINDS[what.removesuffix(" gone")]
                deleted = CustomObjectDeleted(kind="X", namespace="d", name=f"w{number}")
                self._tell(custom_ref(plural, "d", f"w{number}"), deleted)
            case "refresh":
                self.builder.refresh(value)
            case _:
                pass

    def _tell(self, ref: AggregateRef, event: Event) -> None:
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


@settings(max_examples=150, deadline=None)
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
