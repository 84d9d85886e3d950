"""A profile that proves its moves counts pods where they are now, not where the last usage report saw them."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from koord_descheduler.domain.framework.eviction import EvictionLimiter, EvictionLimits
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, run_round
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric
from koord_descheduler.domain.view.pods import PodView
from support.descheduler.views import node_view_from_json, pod_view_from_json

USED = {"cpu": 1000, "memory": 0}


def a_pod(name: str, node: str) -> PodView:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    resources = {"requests": {"cpu": "500m", "memory": "1"}}
    return pod_view_from_json(
        {
            "metadata": {"name": name, "namespace": "d", "uid": name, "ownerReferences": [owner]},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


def a_cluster(now_on: dict[str, str], reported_on: dict[str, str]) -> ClusterView:
    """A cluster of three nodes with ten cores: pod -> its node now, and pod -> its node in the last reports."""
    nodes = tuple(
        node_view_from_json(
            {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "10", "memory": "1Gi", "pods": "99"}}}
        )
        for name in ("a", "b", "c")
    )
    metrics = {
        node.name: NodeMetric(
            updated=0.0, pods={f"d/{pod}": USED for pod, where in reported_on.items() if where == node.name}
        )
        for node in nodes
    }
    pods = tuple(a_pod(name, node) for name, node in now_on.items())
    return ClusterView(now=10.0, nodes=nodes, pods=pods, metrics=metrics)


def chosen(cluster: ClusterView, *, proves: bool) -> int:
    """Number of pods that a round of LowNodeLoad chooses at once."""
    kind, evictor = BUILT_IN["LowNodeLoad"], BUILT_IN["DefaultEvictor"]
    args = {
        "lowThresholds": {"cpu": 30.0},
        "highThresholds": {"cpu": 50.0},
        "anomalyCondition": {"consecutiveAbnormalities": 1},
    }
    balance: Any = kind.make(kind.decode(args), SharedState())
    accepts: Any = evictor.make(evictor.decode({}), SharedState())
    profile = Profile(name="p", balance=[balance], filters=[accepts], evict=Accepting(), proves=proves)
    outcome = run_round([profile], cluster, EvictionLimiter(EvictionLimits()))
    assert not outcome.faults, outcome.faults
    return len(outcome.attempts)


class Accepting:
    """An evict plugin that accepts every pod."""

    name = "accepting"

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        return True


SEVEN = {f"p{number}": "a" for number in range(7)}


def test_node_that_has_given_up_enough_pods_since_its_report_keeps_the_others() -> None:
    now_on = {pod: "b" if pod in ("p0", "p1") else "a" for pod in SEVEN}
    cluster = a_cluster(now_on, SEVEN)
    assert chosen(cluster, proves=False) > 0, "the report still has seven pods on the node"
    assert chosen(cluster, proves=True) == 0
    assert chosen(a_cluster(SEVEN, SEVEN), proves=True) == 2


def test_pods_whose_eviction_is_requested_do_not_count_and_new_ones_count_with_their_requests() -> None:
    cluster = replace(a_cluster({**SEVEN, "new": "b"}, SEVEN), migrating=frozenset({"p0"}))
    caught_up = cluster.caught_up
    assert len(caught_up.metrics["a"].pods) == 6
    assert caught_up.metrics["b"].pods == {"d/new": {"cpu": 500, "memory": 1}}


@given(st.lists(st.sampled_from("abc"), max_size=8), st.lists(st.sampled_from("abc"), max_size=8))
def test_every_pod_counts_once_on_its_node_with_its_measured_usage(now: list[str], before: list[str]) -> None:
    now_on = {f"p{number}": node for number, node in enumerate(now)}
    reported = {f"p{number}": node for number, node in enumerate(before)}
    caught_up = a_cluster(now_on, reported).caught_up
    counted = {key: (name, used) for name, metric in caught_up.metrics.items() for key, used in metric.pods.items()}
    assert sum(len(metric.pods) for metric in caught_up.metrics.values()) == len(now_on)
    for pod, node in now_on.items():
        assert counted[f"d/{pod}"] == (node, USED if pod in reported else {"cpu": 500, "memory": 1})
    if now_on == reported:
        assert all(caught_up.metrics[name] is a for name, a in caught_up.metrics.items())
