"""Native plugins on small clusters: rules that the vectors do not pin."""

from collections.abc import Sequence
from typing import Any

from koord_descheduler.domain.framework.eviction import EvictionLimiter, EvictionLimits
from koord_descheduler.domain.framework.plugin import BalancePlugin, SetDeletionCost
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, RoundOutcome, run_round
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric
from koord_descheduler.domain.view.pods import PodView
from koordcore.protocol.annotations.pods import NEVER_EVICT
from support.descheduler.views import node_view_from_json, pod_view_from_json

PROTECTED = "protected"
AT_ONCE = {"consecutiveAbnormalities": 1, "consecutiveNormalities": 1}


class Evictor:
    """Accepts all pods but those whose name begins with "protected"."""

    name = "evictor"

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        return (PROTECTED,) if pod.name.startswith(PROTECTED) else ()

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        return ()

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        return True


def cluster_of(placed: dict[str, Sequence[str]], usage: int = 0) -> ClusterView:
    """Return nodes of 10 cores with these pods. Each pod requests a core and uses `usage` milli-cores."""
    status = {"allocatable": {"cpu": "10", "memory": "10Gi", "pods": "110"}}
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return ClusterView(
        now=0.0,
        nodes=tuple(node_view_from_json({"metadata": {"name": node}, "status": status}) for node in placed),
        pods=tuple(
            pod_view_from_json(
                {
                    "metadata": {"name": pod, "namespace": "d", "uid": pod},
                    "spec": {"nodeName": node, "containers": [{"name": "c", "resources": requests}]},
                }
            )
            for node, pods in placed.items()
            for pod in pods
        ),
        metrics={
            node: NodeMetric(updated=0.0, pods={f"d/{pod}": {"cpu": usage, "memory": 0} for pod in pods})
            for node, pods in placed.items()
        },
    )


def balanced(name: str, args: dict[str, Any], cluster: ClusterView) -> RoundOutcome:
    """Return the outcome of a round with one plugin."""
    kind, evictor = BUILT_IN[name], Evictor()
    plugin = kind.make(kind.decode(args), SharedState())
    assert isinstance(plugin, BalancePlugin)
    profile = Profile(name="p", balance=(plugin,), filters=(evictor,), evict=evictor)
    outcome = run_round((profile,), cluster, EvictionLimiter(EvictionLimits()))
    assert not outcome.faults
    return outcome


def evicted(outcome: RoundOutcome) -> list[str]:
    return [attempt.pod.name for attempt in outcome.attempts if attempt.is_move]


def test_a_pool_without_selector_has_the_nodes_that_an_earlier_pool_relieved() -> None:
    cluster = cluster_of({"hot": [f"p{number}" for number in range(9)], "idle": []}, usage=1000)
    pool = {"name": "strict", "highThresholds": {"cpu": 50}}
    args = {"anomalyCondition": AT_ONCE, "lowThresholds": {"cpu": 10}, "highThresholds": {"cpu": 80}}

    def moves(**selector: Any) -> int:
        return len(evicted(balanced("LowNodeLoad", {**args, "nodePools": [{**pool, **selector}]}, cluster)))

    assert moves(nodeSelector={}) == 1
    assert moves() == 1 + 4


def test_protected_pods_get_no_deletion_cost_on_a_node_without_pods_that_may_leave() -> None:
    cluster = cluster_of({"mixed": ["protected-1", "free"], "fixed": ["protected-2"]})
    outcome = balanced("ScaleDownBinPack", {}, cluster)
    costs = {each.pod: each.cost for each in outcome.proposals if isinstance(each, SetDeletionCost)}
    assert costs == {"free": 0, "protected-1": NEVER_EVICT}
