"""Pods share equal parts, and so do nodes, and nothing else changes by that."""

from hypothesis import given
from hypothesis import strategies as st
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin, StoredEvent
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol.objects import Node, object_from_json, pod_from_json
from koordcore.state import ClusterState
from koordcore.state.aggregates import PodSpecState
from koordcore.state.shared_parts import LONGEST, MOST_PARTS, SharedParts
from koordcore.values import codec

Json = dict[str, object]
Fields = dict[str, st.SearchStrategy[object]]


def documents(required: Fields, optional: Fields | None = None) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(required, optional=optional or {})


TEXTS = st.dictionaries(st.sampled_from(["app", "priorityClassName"]), st.sampled_from(["a", "b"]), max_size=2)
OWNERS = st.lists(documents({"kind": st.just("ReplicaSet"), "uid": st.sampled_from("xy")}), max_size=2)
VOLUMES = st.lists(
    st.sampled_from(
        [{"name": "kube-api-access-a"}, {"name": "kube-api-access-b"}, {"name": "a", "hostPath": {"path": "/"}}]
    ),
    max_size=2,
)
SPECS = documents(
    {"containers": st.just([{"name": "main", "resources": {"requests": {"cpu": "1"}}}])},
    {
        "nodeName": st.sampled_from(["m", "n"]),
        "priorityClassName": st.sampled_from(["a", "b"]),
        "volumes": VOLUMES,
    },
)
METADATA = documents(
    {"name": st.just("p"), "uid": st.just("u"), "labels": TEXTS, "annotations": TEXTS, "ownerReferences": OWNERS},
    {"creationTimestamp": st.sampled_from(["t1", "t2"])},
)
CONDITIONS = st.lists(
    documents(
        {"type": st.sampled_from(["Ready", "PodScheduled"]), "status": st.sampled_from(["True", "False"])},
        {"reason": st.just("PodCompleted"), "lastTransitionTime": st.sampled_from(["t1", "t2"])},
    ),
    max_size=3,
)
CONTAINERS = st.lists(
    documents({"name": st.sampled_from("ab")}, {"restartCount": st.sampled_from([1, 2])}),
    max_size=2,
)
STATUSES = documents(
    {},
    {
        "phase": st.sampled_from(["Running", "Pending"]),
        "qosClass": st.just("Burstable"),
        "startTime": st.sampled_from(["t1", "t2"]),
        "conditions": CONDITIONS,
        "containerStatuses": CONTAINERS,
        "initContainerStatuses": CONTAINERS,
    },
)
PODS = st.lists(documents({"metadata": METADATA, "spec": SPECS, "status": STATUSES}), max_size=10)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2"]), max_size=2)
IMAGES = st.lists(documents({"names": st.lists(st.sampled_from("ab"), max_size=2)}), max_size=3)
NODES = st.lists(
    documents(
        {
            "metadata": documents({"name": st.just("n")}),
            "status": documents(
                {"images": IMAGES, "capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": CONDITIONS}
            ),
        }
    ),
    max_size=10,
)


@given(PODS)
def test_a_pod_with_shared_parts_is_the_same_pod(found: list[Json]) -> None:
    shared, pods = SharedParts(), [pod_from_json(document) for document in found]
    for pod in pods:
        shared.share(pod, "u")
    for pod, document in zip(pods, found, strict=True):  # what a pod was given is not changed by later pods
        assert pod == pod_from_json(document)
        assert codec.encode(pod) == codec.encode(pod_from_json(document))


@given(NODES)
def test_a_node_with_shared_parts_is_the_same_node(found: list[Json]) -> None:
    shared, nodes = SharedParts(), [object_from_json(document, Node) for document in found]
    for node in nodes:
        shared.share_node(node)
    for node, document in zip(nodes, found, strict=True):
        assert node == object_from_json(document, Node)


def test_pods_of_one_node_share_the_texts_of_their_status() -> None:
    shared, condition = SharedParts(), {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "conditions": [condition], "containerStatuses": [{"name": "main"}]}
    document: Json = {"metadata": {"uid": "u", "namespace": "team"}, "spec": {"nodeName": "n"}, "status": status}
    one, other = (pod_from_json(document) for _ in range(2))
    uid = "".join(["u"])
    for pod in (one, other):
        shared.share(pod, uid)
    assert one.metadata.uid is other.metadata.uid is uid
    assert one.metadata.namespace is other.metadata.namespace
    assert one.spec.node_name is other.spec.node_name
    assert one.status.phase is other.status.phase
    first, second = one.status.conditions[0], other.status.conditions[0]
    assert first.type is second.type
    assert first.last_transition_time is second.last_transition_time
    assert one.status.container_statuses is other.status.container_statuses


def test_nodes_share_images_and_amounts() -> None:
    status = {"images": [{"names": ["a:1"]}, {"names": ["b:1"]}], "capacity": {"cpu": "64"}}
    one, other = (object_from_json({"status": status}, Node) for _ in range(2))
    shared = SharedParts()
    for node in (one, other):
        shared.share_node(node)
    assert all(mine is theirs for mine, theirs in zip(one.status.images, other.status.images, strict=True))
    assert one.status.capacity is other.status.capacity


def test_the_status_of_a_pod_is_its_own() -> None:
    shared, document = SharedParts(), {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    one, other = (pod_from_json(document) for _ in range(2))
    for pod in (one, other):
        shared.share(pod, "u")
    one.status.phase = "Failed"
    one.status.conditions.clear()
    one.spec.node_name = "n"
    assert other == pod_from_json(document)


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
        first, second = (pod_from_json({"metadata": {"labels": {"app": text}}}) for _ in range(2))
        for made in (first, second):
            shared.share(made, "u")
        return first.metadata.labels, second.metadata.labels

    first, second = labels("a" * 100)
    assert first is second
    first, second = labels("a" * LONGEST)
    assert first == second
    assert first is not second


def test_labels_stay_shared_while_annotations_differ_and_when_all_places_are_taken() -> None:
    shared = SharedParts()

    def labels(app: int, address: int) -> dict[str, str]:
        meta = {"labels": {"app": str(app)}, "annotations": {"address": str(address)}}
        pod = pod_from_json({"metadata": meta})
        shared.share(pod, "u")
        return pod.metadata.labels

    first = labels(0, 0)
    for number in range(1, MOST_PARTS):
        labels(number, number)
    assert labels(0, MOST_PARTS) is first
    labels(MOST_PARTS, 0)
    assert labels(0, 0) is not first, "all were forgotten"
