"""A tenant who changes one large object all the time does not fill the log, and nothing of it is lost."""

from pathlib import Path
from typing import Any

from koordcore.events.envelope import AggregateRef
from koordcore.protocol import keys
from support.kubernetes.gateway_world import Interrupted, World, facts_of, gateway_settings, gateway_world, pod

RATE = 8192  # Bytes per minute, so that eight times as many are written at once


def fat(name: str, **labels: str) -> dict[str, Any]:
    found = pod(name, schedulingGates=[{"name": "wait"}])
    found["metadata"] |= {"labels": labels, "annotations": {keys.GANG_NAME: "y" * 40_000}}
    return found


def label_of(world: World, uid: str) -> str:
    spec = world.spec(uid)
    return spec.object.metadata.labels.get("i", "") if spec is not None else ""


async def size_of(world: World, uid: str) -> int:
    return sum(len(fact.body) for fact in await world.bus.events.read_aggregate(AggregateRef("podspec", uid)))


async def test_label_changes_of_a_large_pod_wait_and_its_deletion_does_not(tmp_path: Path) -> None:
    settings = gateway_settings(namespace_bytes_per_minute=RATE)
    async with gateway_world(tmp_path, settings=settings) as world:
        await world.server.apply(fat("fat"))
        uid = await world.mirrored("fat")
        await world.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        other = pod("small", namespace="other")
        await world.server.apply(other)
        small = await world.mirrored("small", "other")
        for change in range(20):
            await world.server.apply(fat("fat", i=str(change)))
        other["metadata"]["labels"] = {"i": "told"}
        await world.server.apply(other)
        await world.until(lambda: label_of(world, small) == "told")

        assert await size_of(world, uid) < 40_000 + 8 * RATE + 1000
        assert label_of(world, uid) != "19"

        await world.server.delete("pods", "default", "fat")
        await world.until(lambda: world.spec(uid) is None)
        assert (await facts_of(world, uid))[-1] == "PodSpecDeleted"


async def test_what_waits_is_written_when_the_budget_is_there(tmp_path: Path) -> None:
    settings = gateway_settings(namespace_bytes_per_minute=2_400_000 // 8)  # 40,000 bytes more each eight seconds
    async with gateway_world(tmp_path, settings=settings) as world:
        await world.server.apply(fat("fat"))
        uid = await world.mirrored("fat")
        for change in range(90):
            await world.server.apply(fat("fat", i=str(change)))
        await world.until(lambda: label_of(world, uid) == "89")
        assert len(await facts_of(world, uid)) < 80


async def test_a_new_list_does_not_go_around_the_budget_and_a_new_term_forgets_it(tmp_path: Path) -> None:
    settings = gateway_settings(namespace_bytes_per_minute=RATE)
    async with gateway_world(tmp_path, settings=settings, begin=False) as world:
        leadership = Interrupted()
        await world.begin(leadership=leadership)
        await world.server.apply(fat("fat"))
        uid = await world.mirrored("fat")
        await world.server.apply(fat("fat", i="1"))
        await world.until(lambda: label_of(world, uid) == "1")
        await world.server.apply(fat("fat", i="2"))
        await world.server.apply(pod("b"))
        await world.mirrored("b")
        assert label_of(world, uid) == "1"

        world.server.store.compact()
        await world.drop_watches("pods")
        await world.server.apply(pod("c"))
        await world.mirrored("c")
        assert label_of(world, uid) == "1"

        await world.stop()
        await world.begin()
        await world.until(lambda: label_of(world, uid) == "2")


async def test_sweeps_do_not_go_around_the_budget(tmp_path: Path) -> None:
    settings = gateway_settings(namespace_bytes_per_minute=RATE, sweep_seconds=0.1)
    async with gateway_world(tmp_path, settings=settings) as world:
        await world.server.apply(fat("fat"))
        uid = await world.mirrored("fat")
        await world.server.apply(fat("fat", i="1"))
        await world.until(lambda: label_of(world, uid) == "1")
        await world.server.apply(fat("fat", i="2"))
        await world.server.apply(pod("b"))
        await world.mirrored("b")

        def sweeps() -> int:
            return world.server.requests.count(("GET", "/api/v1/pods"))

        before = sweeps()
        await world.until(lambda: sweeps() > before + 5)
        assert label_of(world, uid) == "1"
