"""The check against many nodes at once gives the same answer as the check against one node."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import FitIndex, native_misfits
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView
from support.descheduler.views import node_view_from_json, pod_view_from_json

AMOUNTS = st.integers(0, 4)


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeView]:
    def node(name: str) -> NodeView:
        raw: dict[str, Any] = {
            "metadata": {"name": name, "labels": {"zone": draw(st.sampled_from("ab"))}},
            "spec": {
                "unschedulable": draw(st.booleans()),
                "taints": [{"key": "k", "effect": "NoSchedule"}] if draw(st.booleans()) else [],
            },
            "status": {"allocatable": {"cpu": str(draw(AMOUNTS)), "memory": str(draw(AMOUNTS))}},
        }
        return node_view_from_json(raw)

    return [node(f"n{number}") for number in range(draw(st.integers(1, 4)))]


@st.composite
def pods(draw: st.DrawFn) -> list[PodView]:
    def pod(name: str) -> PodView:
        requests = {"cpu": str(draw(AMOUNTS)), "memory": str(draw(AMOUNTS))}
        raw: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "nodeName": draw(st.sampled_from(["n0", "n1", "n2"])),
                "nodeSelector": {"zone": "a"} if draw(st.booleans()) else {},
                "tolerations": [{"key": "k", "operator": "Exists"}] if draw(st.booleans()) else [],
                "containers": [{"name": "main", "resources": {"requests": requests}}],
            },
            "status": {"phase": "Running"},
        }
        return pod_view_from_json(raw)

    return [pod(f"p{number}") for number in range(draw(st.integers(1, 5)))]


@given(nodes=nodes(), pods=pods())
def test_a_pod_fits_the_same_nodes_as_one_by_one(nodes: list[NodeView], pods: list[PodView]) -> None:
    cluster = ClusterView(now=0.0, nodes=tuple(nodes), pods=tuple(pods))
    index = FitIndex(nodes, cluster)
    for pod in pods:
        expected = [position for position, node in enumerate(nodes) if not native_misfits(pod, node, cluster)]
        assert list(index.fitting(pod)) == expected
        assert index.fits_any(pod, other_than="n0") == any(nodes[position].name != "n0" for position in expected)


def test_amounts_of_more_than_64_bits_are_compared() -> None:
    def node(name: str, cpu: str) -> NodeView:
        return node_view_from_json({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}})

    def pod(name: str, cpu: str, node: str = "") -> PodView:
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        raw: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": node, "containers": [container]},
        }
        return pod_view_from_json(raw)

    nodes = [node("full", "4"), node("huge", "20E"), node("small", "4")]
    huge, small = pod("huge", "20E", "full"), pod("small", "4")
    index = FitIndex(nodes, ClusterView(now=0.0, nodes=tuple(nodes), pods=(huge, small)))
    assert list(index.fitting(small)) == [1, 2]
    assert 2 not in index.fitting(huge)
