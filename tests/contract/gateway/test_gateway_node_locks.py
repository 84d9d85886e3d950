"""A node whose device plugin handles one pod at a time is locked for a pod before the pod is bound."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from koordcore.protocol import keys
from koordcore.protocol.hardware.vendor_devices import METAX_DEVICES, NodeLock, parse_node_lock
from support.kubernetes.faults import Fault
from support.kubernetes.gateway_world import World, gateway_world, node, pod

SHARED = {METAX_DEVICES: "[[]]", keys.HAMI_VGPU_NODE: "node-1"}


def _lock(world: World) -> str:
    found: dict[str, Any] = world.server.object("nodes", "", "node-1") or {}
    annotations: dict[str, str] = found["metadata"].get("annotations") or {}
    return annotations.get(keys.HAMI_MUTEX_LOCK, "")


async def _begin(world: World, lock: NodeLock | None = None) -> str:
    document = node("node-1")
    if lock is not None:
        document["metadata"]["annotations"] = {keys.HAMI_MUTEX_LOCK: lock.text()}
    await world.server.apply(document)
    await world.server.apply(pod("other"))
    await world.mirrored("other")
    await world.server.apply(pod("a"))
    uid = await world.mirrored("a")
    await world.place(uid, "node-1", annotations=SHARED)
    return uid


def _failure(world: World, uid: str) -> str:
    spec = world.spec(uid)
    return spec.binding.failure if spec is not None and spec.binding is not None else ""


def _since(seconds: int) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


async def test_the_node_is_locked_and_the_pod_labelled_before_it_is_bound(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        conflict = world.server.faults.add(Fault("PATCH", "/nodes/node-1", 409, times=1))
        await _begin(world)
        await world.until(lambda: world.node_of("a") == "node-1")

        lock = parse_node_lock(_lock(world))
        assert lock is not None
        assert (lock.namespace, lock.name) == ("default", "a")
        assert conflict.times == 0
        bound: dict[str, Any] = world.server.object("pods", "default", "a") or {}
        assert bound["metadata"]["labels"][keys.HAMI_VGPU_NODE] == "node-1"
        assert bound["metadata"]["annotations"][METAX_DEVICES] == "[[]]"


async def test_a_lock_of_another_pod_fails_the_binding(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world, NodeLock(_since(10), "default", "other"))
        await world.until(lambda: _failure(world, uid))
        assert _failure(world, uid) == "NodeLocked"
        assert world.node_of("a") == ""


async def test_a_lock_is_broken_that_is_old_or_whose_pod_is_gone(tmp_path: Path) -> None:
    for name, lock in (("old", NodeLock(_since(400), "default", "other")), ("gone", NodeLock(_since(10), "x", "y"))):
        (tmp_path / name).mkdir()
        async with gateway_world(tmp_path / name) as world:
            await _begin(world, lock)
            await world.until(lambda world=world: world.node_of("a") == "node-1")
            assert _lock(world).endswith(",default,a")
