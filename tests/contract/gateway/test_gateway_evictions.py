"""Pods are evicted and preempted as their users have to see it, budgets kept."""

import asyncio
from pathlib import Path
from typing import Any

from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodEvictionRequested
from koordcore.state.aggregates import EvictionState
from support.kubernetes.gateway_world import World, gateway_world, install_crds, node, pod, words

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


def migration(**more: Any) -> Json:
    spec = {"podRef": {"namespace": "default", "name": "a"}, **more}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "j"},
        "spec": spec,
    }


async def evicting_job(world: World) -> tuple[str, str]:
    """Return the uid of a pod whose eviction a job has requested and a budget refuses, and the path of the eviction."""
    await install_crds(world.server)
    await world.begin()
    await world.server.apply(node("node-1"))
    uid = await run_on(world, "a")
    await world.server.apply(budget(0))
    job = await world.server.apply(migration())
    await world.until(lambda: world.view.custom("podmigrationjobs", "", "j"))
    wanted = PodEvictionRequested(
        namespace="default",
        name="a",
        initiator="descheduler",
        reason="Descheduled",
        job="j",
        job_uid=job["metadata"]["uid"],
    )
    await world.append(AggregateRef("eviction", uid), wanted)
    path = "/api/v1/namespaces/default/pods/a/eviction"
    await world.until(lambda: ("POST", path) in world.server.requests)
    return uid, path


async def test_an_eviction_is_withdrawn_when_its_job_is_paused(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        uid, _ = await evicting_job(world)
        await world.server.apply(migration(paused=True))
        await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))
        await world.server.patch_status("poddisruptionbudgets", "default", "keep", {"disruptionsAllowed": 1})
        last = await world.bus.events.last_of(AggregateRef("eviction", uid))
        assert last is not None
        assert last.type == "PodEvictionWithdrawn"
        found = world.server.object("pods", "default", "a")
        assert found is not None
        assert "deletionTimestamp" not in found["metadata"]


async def test_the_job_is_read_before_its_pod_is_evicted(tmp_path: Path) -> None:
    """The mirror may be behind: a job that was deleted a moment ago evicts nothing."""
    async with gateway_world(tmp_path, begin=False) as world:
        uid, path = await evicting_job(world)
        asked = world.server.requests.index(("POST", path))
        read = ("GET", "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs/j")
        assert read in world.server.requests[:asked]
        await world.server.delete("podmigrationjobs", "", "j")
        await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))
        last = await world.bus.events.last_of(AggregateRef("eviction", uid))
        assert last is not None
        assert last.type == "PodEvictionWithdrawn"


async def test_the_job_of_an_eviction_is_read_again_when_the_api_server_allows_it(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        uid, path = await evicting_job(world)
        job = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs/j"
        begun = asyncio.get_running_loop().time()
        world.server.faults.answer("GET", job, 403, times=1, retry_after=1)
        asked = world.server.requests.count(("POST", path))
        await world.until(lambda: "Forbidden" in world.view.state.of_kind(EvictionState)[uid].delays)
        await world.until(lambda: world.server.requests.count(("POST", path)) > asked)
        assert asyncio.get_running_loop().time() - begun >= 1.0
