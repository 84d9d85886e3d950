"""The memory for equal pods never mixes up pods that differ."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.equivalence_classes import PodClasses
from koord_scheduler.domain.cluster.record import on_node
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koordcore.events.node_ledger import USAGE_PROFILE, pod_on_node
from koordcore.protocol.objects import Pod
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
        found = pod_classes.read_on_node(one)
        assert found.pod == one
        without = structs.replace(one, spec=structs.replace(one.spec, node_name=""))
        assert found.subject is pod_classes.read(without).subject
        assert found.pod.spec.containers is found.sort.pod.spec.containers
        assert found.pod.metadata.labels is found.sort.pod.metadata.labels
