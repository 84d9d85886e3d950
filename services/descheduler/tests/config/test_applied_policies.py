"""One policy per plugin, in the format of the reference and in that of the Kubernetes descheduler, is applied.

The whole service runs it on the cluster of a vector, and asks for the evictions that the specification demands.
LowNodeLoad needs several rounds: `test_round_memory` applies it.
"""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from koord_descheduler.domain.config.policies import converted
from koord_descheduler.domain.framework.plugin import Point
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koordcore.events.envelope import AggregateRef, name_token
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.values import codec
from support.descheduler.world import World
from support.until import until

VECTORS = Path(__file__).parents[4] / "tests" / "conformance" / "vectors" / "descheduler"
PLUGINS = {
    "PodLifeTime": "pod_lifetime",
    "RemoveFailedPods": "failed_pods",
    "RemovePodsHavingTooManyRestarts": "too_many_restarts",
    "RemovePodsViolatingNodeTaints": "node_taints",
    "RemovePodsViolatingNodeAffinity": "node_affinity",
    "RemovePodsViolatingInterPodAntiAffinity": "interpod_antiaffinity",
    "RemoveDuplicates": "remove_duplicates",
    "LowNodeUtilization": "low_node_utilization",
    "HighNodeUtilization": "high_node_utilization",
    "RemovePodsViolatingTopologySpreadConstraint": "topology_spread_balance",
    "CustomPriority": "custom_priority",
    "FragmentationAware": "fragmentation_aware",
    "ScaleDownBinPack": "scale_down_binpack",
    "RemovePodsViolatingNodeReservation": "node_reservation_evict",
}
UPSTREAM = [name for name in PLUGINS if not BUILT_IN[name].is_native]
PLAIN = {"now", "args", "evictor", "nodes", "pods"}
"""Inputs of a vector that a cluster and a configuration hold."""


def case_of(plugin: str) -> dict[str, Any]:
    """Return the first vector of a plugin in which pods leave."""
    cases = json.loads((VECTORS / f"{PLUGINS[plugin]}.json").read_text())["cases"]
    return next(
        case
        for case in cases
        if case["input"].keys() <= PLAIN
        and (case["expect"].get("evicted_count") or case["expect"].get("evicted"))
        and not case["expect"].get("node_changes")
        and case["input"].get("evictor", {}).get("plugin", "DefaultEvictor") == "DefaultEvictor"
    )


def arguments(plugin: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments of the plugin and of its evictor, as both formats have them."""
    evictor: dict[str, Any] = given.get("evictor", {}).get("args", {})
    return [{"name": "DefaultEvictor", "args": evictor}, {"name": plugin, "args": given["args"]}]


def of_the_reference(plugin: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the policy as a DeschedulerConfiguration. Without an interval there is one round."""
    only = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
    plugins = {point_of(plugin): {"enabled": [{"name": plugin}]}, "evict": only, "filter": only}
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [{"name": "p", "plugins": plugins, "pluginConfig": arguments(plugin, given)}],
    }


def of_kubernetes(plugin: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the policy as a DeschedulerPolicy."""
    plugins = {point_of(plugin): {"enabled": [plugin]}}
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [{"name": "p", "plugins": plugins, "pluginConfig": arguments(plugin, given)}],
    }


def point_of(plugin: str) -> str:
    return str(next(point for point in (Point.DESCHEDULE, Point.BALANCE) if point in BUILT_IN[plugin].points))


async def apply(case: dict[str, Any], configuration: dict[str, Any]) -> list[tuple[str, str]]:
    """Run the service once on the cluster of a vector, at its time. Return name and plugin of the evicted pods."""
    given, world = case["input"], World()
    for raw in given["nodes"]:
        name = name_token(raw["metadata"]["name"])
        await world.write(AggregateRef("nodespec", name), NodeSpecAdded(object=node_from_json(raw)))
    for raw in given["pods"]:
        await world.write(AggregateRef("podspec", raw["metadata"]["uid"]), PodSpecAdded(object=pod_from_json(raw)))
    moment = datetime.fromisoformat(given["now"]).timestamp() if "now" in given else time.time()
    async with world.service(codec.encode(configuration), flags=[f"--clock=0.001@{time.time()}@{moment}"]) as (
        _,
        rounds,
    ):
        await until(lambda: rounds.done == 1)
    return sorted((request.name, request.trigger) for request in await world.requests())


def expected(plugin: str, case: dict[str, Any], found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the evictions that the vector demands. If it leaves open which pods leave, only their number counts."""
    wanted = case["expect"]
    names: list[str] = wanted.get("evicted") or [name for name, _ in found]
    assert len(names) == wanted.get("evicted_count", len(names))
    return [(name, plugin) for name in sorted(names)]


@pytest.mark.parametrize("plugin", PLUGINS)
async def test_policy_of_the_reference_evicts_what_the_specification_demands(plugin: str) -> None:
    case = case_of(plugin)
    found = await apply(case, of_the_reference(plugin, case["input"]))
    assert found == expected(plugin, case, found), case["name"]


@pytest.mark.parametrize("plugin", UPSTREAM)
async def test_policy_of_kubernetes_evicts_what_the_specification_demands(plugin: str) -> None:
    case = case_of(plugin)
    found = await apply(case, converted(of_kubernetes(plugin, case["input"])))
    assert found == expected(plugin, case, found), case["name"]
