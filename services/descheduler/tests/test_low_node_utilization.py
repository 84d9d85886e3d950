"""LowNodeUtilization by measured usage: `metricsUtilization` of a DeschedulerPolicy. The vectors compare requests."""

from typing import Any

import pytest
from koord_descheduler.domain.config.loading import ConfigurationRefused, load
from koord_descheduler.domain.config.policies import converted
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.plugins.upstream.utilization import measured_usages
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import NodeSpecChanged
from koordcore.protocol.objects import node_from_json
from koordcore.values import codec
from support.descheduler.views import node_view_from_json
from support.descheduler.world import World
from support.until import until


def policy(metrics: dict[str, Any], low: int = 20, resource: str = "cpu") -> bytes:
    """Return our configuration of an upstream policy that compares usage."""
    args = {"thresholds": {resource: low}, "targetThresholds": {resource: 50}, "metricsUtilization": metrics}
    profile = {
        "name": "p",
        "pluginConfig": [{"name": "LowNodeUtilization", "args": args}],
        "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}},
    }
    document = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "metricsProviders": [{"source": "KubernetesMetrics"}],
        "profiles": [profile],
    }
    return codec.encode(converted(document))


@pytest.mark.parametrize("metrics", [{"source": "KubernetesMetrics"}, {"metricsServer": True}])
async def test_a_policy_that_reads_metrics_moves_pods_by_their_measured_usage(metrics: dict[str, Any]) -> None:
    world = World()
    await world.begin()
    for node in ("a", "b"):
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
        changed = NodeSpecChanged(object=node_from_json({"metadata": {"name": node}, "status": status}))
        await world.write(AggregateRef("nodespec", node), changed)
    for name in ("unmeasured", "x", "y"):  # none of them requests anything
        await world.pod(name, "a")
    async with world.service(policy(metrics)) as (_, rounds):
        await until(lambda: rounds.done == 1)
        await world.usage("a", x=2000, y=1500)
        await world.usage("b")
        await until(lambda: len(rounds.builder.view(0.0).metrics) == 2)
        await rounds.run_now()
    (request,) = await world.requests()
    assert (request.name, request.message) == ("x", "node is overutilized by measured usage (LowNodeUtilization)")


def test_nodes_without_a_fresh_report_take_no_part() -> None:
    nodes = tuple(node_view_from_json({"metadata": {"name": name}}) for name in ("fresh", "old", "unmeasured"))
    metrics = {
        "fresh": NodeMetric(updated=821.0, system={"cpu": 1}, pods={"d/p": {"cpu": 2, "memory": 4}}),
        "old": NodeMetric(updated=820.0),
    }
    (found,) = measured_usages(nodes, ClusterView(now=1000.0, nodes=nodes, pods=(), metrics=metrics))
    assert (found.node.name, found.used) == ("fresh", {"cpu": 3, "memory": 4, "pods": 0})


@pytest.mark.parametrize(
    ("metrics", "resource", "refusal"),
    [
        ({"source": "Prometheus"}, "cpu", "metricsUtilization.source: must be KubernetesMetrics (the reports of"),
        ({}, "cpu", "metricsUtilization.source: must be KubernetesMetrics"),
        ({"source": "KubernetesMetrics"}, "nvidia.com/gpu", "thresholds: must be one of cpu, memory, pods: no other"),
    ],
)
def test_sources_and_resources_without_measurement_are_refused(
    metrics: dict[str, Any], resource: str, refusal: str
) -> None:
    with pytest.raises(ConfigurationRefused) as error:
        load(policy(metrics, resource=resource), BUILT_IN)
    assert f"profiles[0].pluginConfig[LowNodeUtilization].args.{refusal}" in str(error.value)
