"""Pods share equal parts, and nothing else changes by that."""

from hypothesis import given
from hypothesis import strategies as st
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin, StoredEvent
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.state import ClusterState
from koordcore.state.aggregates import PodSpecState
from koordcore.state.shared_parts import LONGEST, MOST_PARTS, SharedParts
from koordcore.values import codec

Json = dict[str, object]

TEXTS = st.dictionaries(st.sampled_from(["app", "priorityClassName"]), st.sampled_from(["a", "b"]), max_size=2)
OWNERS = st.lists(st.fixed_dictionaries({"kind": st.just("ReplicaSet"), "uid": st.sampled_from("xy")}), max_size=2)
VOLUMES = st.lists(
    st.sampled_from(
        [{"name": "kube-api-access-a"}, {"name": "kube-api-access-b"}, {"name": "a", "hostPath": {"path": "/"}}]
    ),
    max_size=2,
)
SPECS = st.fixed_dictionaries(
    {"containers": st.just([{"name": "main", "resources": {"requests": {"cpu": "1"}}}])},
    optional={
        "nodeName": st.sampled_from(["m", "n"]),
        "priorityClassName": st.sampled_from(["a", "b"]),
        "volumes": VOLUMES,
    },
)
METADATA = st.fixed_dictionaries(
    {"name": st.just("p"), "labels": TEXTS, "annotations": TEXTS, "ownerReferences": OWNERS}
)
PODS = st.lists(st.fixed_dictionaries({"metadata": METADATA, "spec": SPECS}).map(pod_from_json), max_size=10)


@given(PODS)
def test_a_pod_with_shared_parts_is_the_same_pod(pods: list[Pod]) -> None:
    shared = SharedParts()
    for pod in pods:
        before = codec.encode(pod)
        assert shared.pod(pod) == pod
        assert codec.encode(shared.pod(pod)) == codec.encode(pod) == before


def stored(seq: int, uid: str, node: str) -> StoredEvent:
    ref, labels = AggregateRef("podspec", uid), {"app": "a"}
    volumes: list[Json] = [{"name": f"kube-api-access-{uid}", "projected": {}}, {"name": "files", "emptyDir": {}}]
    spec: Json = {"nodeName": node, "volumes": volumes}
    found = pod_from_json({"metadata": {"name": uid, "uid": uid, "labels": labels}, "spec": spec})
    origin = Origin(causation_id=uid, correlation_id=uid, actor="test", occurred_at="2026-01-01T00:00:00Z")
    (new,) = CATALOGUE.seal([Draft(ref, PodSpecAdded(object=found), 0)], origin)
    return StoredEvent(seq, ref, new.headers, new.body)


def test_pods_of_a_fold_and_of_a_snapshot_share_their_parts() -> None:
    folded = ClusterState()
    for seq, node in enumerate(("m", "n"), 1):
        folded.apply(stored(seq, f"pod-{seq}", node))
    restored = ClusterState.restore(b"".join(folded.snapshot()))
    assert restored.hash() == folded.hash()
    for state in (folded, restored):
        first, second = (found.object for found in state.of_kind(PodSpecState).values())
        assert (first.spec.node_name, second.spec.node_name) == ("m", "n")
        assert first.metadata.labels is second.metadata.labels
        assert first.spec.containers is second.spec.containers
        names = [each.name for found in (first, second) for each in found.spec.volumes]
        assert names == ["kube-api-access-pod-1", "files", "kube-api-access-pod-2", "files"]
        assert first.spec.volumes[1] is second.spec.volumes[1]


def test_a_long_part_is_not_kept_after_its_pod() -> None:
    shared = SharedParts()

    def labels(text: str) -> tuple[dict[str, str], dict[str, str]]:
        made = (pod_from_json({"metadata": {"labels": {"app": text}}}) for _ in range(2))
        first, second = (shared.pod(one).metadata.labels for one in made)
        return first, second

    first, second = labels("a" * 100)
    assert first is second
    first, second = labels("a" * LONGEST)
    assert first == second
    assert first is not second


def test_labels_stay_shared_while_annotations_differ_and_when_all_places_are_taken() -> None:
    shared = SharedParts()

    def labels(app: int, address: int) -> dict[str, str]:
        meta = {"labels": {"app": str(app)}, "annotations": {"address": str(address)}}
        return shared.pod(pod_from_json({"metadata": meta})).metadata.labels

    first = labels(0, 0)
    for number in range(1, MOST_PARTS):
        labels(number, number)
    assert labels(0, MOST_PARTS) is first
    labels(MOST_PARTS, 0)
    assert labels(0, 0) is not first, "all were forgotten"
