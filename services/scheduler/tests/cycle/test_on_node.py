"""The memory for equal pods never mixes up pods that differ."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.equivalence_classes import PodClasses, Reading
from koord_scheduler.domain.cluster.record import on_node
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koordcore.events.node_ledger import USAGE_PROFILE, pod_on_node
from koordcore.protocol.objects import Pod, Volume, VolumeSource
from msgspec import structs
from support.scheduler.scheduling import pod


@st.composite
def some_pod(draw: st.DrawFn) -> Pod:
    one = pod(
        draw(st.sampled_from("abc")),
        {"cpu": draw(st.sampled_from(["1", "2"]))},
        priority=draw(st.sampled_from([0, 5500, 9500])),
        resources={"limits": {"cpu": "2"}} if draw(st.booleans()) else None,
    )
    for key, values in (("koordinator.sh/qosClass", ["LS", "BE"]), ("koordinator.sh/priority-class", ["koord-mid"])):
        if (value := draw(st.sampled_from(["", *values]))) != "":
            one.metadata.labels[key] = value
    if draw(st.booleans()):
        one.metadata.annotations[USAGE_PROFILE] = draw(st.sampled_from(["constant", "bursty"]))
    one.status.qos_class = draw(st.sampled_from(["", "Guaranteed"]))
    return one


@given(st.lists(some_pod(), max_size=20))
def test_remembered_equals_computed(pods: list[Pod]) -> None:
    pod_classes = PodClasses(NodeColumns())
    for one in pods:
        assert on_node(one.metadata.uid, one, pod_classes.read(one).sort) == pod_on_node(one.metadata.uid, one)


@given(st.lists(some_pod(), min_size=2, max_size=20))
def test_pods_on_nodes_share_what_is_equal_and_nothing_else(pods: list[Pod]) -> None:
    pod_classes = PodClasses(NodeColumns())
    for number, one in enumerate(pods):
        one.metadata.name, one.spec.node_name = f"pod-{number}", f"node-{number}"
        one.spec.volumes = [Volume(name=f"kube-api-access-{number:05}")]  # as an API server adds to every pod
        found = pod_classes.read_on_node(one)
        assert found.pod == one
        without = structs.replace(one, spec=structs.replace(one.spec, node_name=""))
        assert found.subject is pod_classes.read(without).subject
        assert found.pod.spec.containers is found.sort.pod.spec.containers
        assert found.pod.metadata.labels is found.sort.pod.metadata.labels


def test_pods_that_differ_in_the_names_of_their_tokens_volumes_are_read_once() -> None:
    pod_classes = PodClasses(NodeColumns())

    def read(number: int, ephemeral: VolumeSource | None = None) -> Reading:
        one = pod("p", {"cpu": "1"})
        one.spec.volumes = [Volume(name=f"kube-api-access-{number:05}", ephemeral=ephemeral), Volume(name="files")]
        assert pod_classes.read(one).pod is one
        one.spec.node_name = f"node-{number}"
        return pod_classes.read_on_node(one)

    first, second, other = read(1), read(2), read(3, VolumeSource())
    assert first.sort is second.sort is not other.sort
    assert second.pod.spec.containers is first.pod.spec.containers
    assert [each.name for each in second.pod.spec.volumes] == ["kube-api-access-00002", "files"]
