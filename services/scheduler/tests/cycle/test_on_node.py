"""The memory for equal pods never mixes up pods that differ."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.equivalence_classes import PodClasses
from koord_scheduler.domain.cluster.record import on_node
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koordcore.events.node_ledger import USAGE_PROFILE, pod_on_node
from koordcore.protocol.objects import Pod
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
