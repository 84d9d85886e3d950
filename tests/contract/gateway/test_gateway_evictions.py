"""Pods are evicted and preempted as their users have to see it, budgets kept."""

from pathlib import Path
from typing import Any

from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodEvictionRequested
from koordcore.state.aggregates import EvictionState
from support.kubernetes.gateway_world import World, gateway_world, node, pod, words

Json = dict[str, Any]


def budget(allowed: int) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    }


async def run_on(world: World, name: str) -> str:
    await world.server.apply({**pod(name), "metadata": {"name": name, "labels": {"app": "web"}}})
    uid = await world.mirrored(name)
    await world.place(uid, "node-1")
    await world.until(lambda: world.node_of(name) == "node-1")
    await world.server.patch_status("pods", "default", name, {"phase": "Running"})
    return uid


async def test_an_eviction_waits_for_the_disruption_budget(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        uid = await run_on(world, "a")
        await world.server.apply(budget(0))
        wanted = PodEvictionRequested(
            namespace="default", name="a", node="node-1", initiator="descheduler", reason="Evicted"
        )
        await world.append(AggregateRef("eviction", uid), wanted)
        asked = lambda: world.server.requests.count(("POST", "/api/v1/namespaces/default/pods/a/eviction"))  # noqa: E731
        await world.until(lambda: asked() >= 2)
        assert world.view.state.of_kind(EvictionState)[uid].delays == ["TooManyRequests"]

        await world.server.patch_status("poddisruptionbudgets", "default", "keep", {"disruptionsAllowed": 1})
        await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))

        found = world.server.object("pods", "default", "a")
        assert found is not None
        assert found["metadata"]["deletionTimestamp"]
        await world.until(lambda: words(world, "Evicted"))


async def test_a_preempted_pod_is_deleted_with_its_condition_and_event(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        uid = await run_on(world, "a")
        await world.server.apply(budget(0))
        wanted = PodEvictionRequested(
            namespace="default",
            name="a",
            node="node-1",
            initiator="scheduler",
            method="delete",
            reason="Preempted",
            message="Preempted by pod 1234 on node node-1",
        )
        await world.append(AggregateRef("eviction", uid), wanted)
        await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))

        found = world.server.object("pods", "default", "a")
        assert found is not None
        assert found["metadata"]["deletionTimestamp"]
        reasons = {item["type"]: item.get("reason") for item in found["status"]["conditions"]}
        assert reasons["DisruptionTarget"] == "PreemptionByScheduler"
        await world.until(lambda: words(world, "Preempted"))


async def test_an_eviction_that_runs_out_of_patience_is_given_up(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        uid = await run_on(world, "a")
        await world.server.apply(budget(0))
        wanted = PodEvictionRequested(
            namespace="default", name="a", initiator="descheduler", reason="Evicted", give_up_after_seconds=1
        )
        await world.append(AggregateRef("eviction", uid), wanted)
        await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))

        last = await world.bus.events.last_of(AggregateRef("eviction", uid))
        assert last is not None
        assert last.type == "PodEvictionFailed"
