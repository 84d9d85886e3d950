"""The claims of a placed pod are bound before the pod: what is written, awaited, and given up.

The test plays the controllers that bind claims. `tests/kubernetes` has the real ones.
"""

from pathlib import Path
from typing import Any

import pytest
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodBindFailed
from koordcore.protocol.storage import BOUND_BY_CONTROLLER, SELECTED_NODE
from koordcore.values.allocation import Allocation, ClaimBinding
from support.kubernetes.faults import Fault
from support.kubernetes.gateway_world import World, gateway_world, node, pod, words
from support.kubernetes.volumes import bound, claim, local_volume, storage_class, user_of

PREFIX = 'running PreBind plugin "VolumeBinding": binding volumes: '


def chosen(volume: str = "", name: str = "data", seconds: int = 600) -> Allocation:
    binding = ClaimBinding(namespace="default", claim=name, volume=volume)
    return Allocation(volume_claims=(binding,), bind_timeout_seconds=seconds)


async def _begin(world: World, *, volumes: tuple[str, ...] = ()) -> str:
    for document in (storage_class(), storage_class("disks", "disks.example.com"), node("node-1"), node("node-2")):
        await world.server.apply(document)
    for name in volumes:
        await world.server.apply(local_volume(name, "node-1"))
    await world.server.apply(claim("data"))
    await world.server.apply(pod("a", **user_of("data")))
    uid = await world.mirrored("a")
    await world.until(lambda: world.view.custom("persistentvolumeclaims", "default", "data"))
    return uid


def _claim(world: World) -> dict[str, Any]:
    found = world.server.object("persistentvolumeclaims", "default", "data")
    assert found is not None
    return found


def _volume(world: World, name: str = "disk") -> dict[str, Any]:
    found = world.server.object("persistentvolumes", "", name)
    assert found is not None
    return found


def _selected(world: World) -> str:
    annotations: dict[str, str] = _claim(world)["metadata"].get("annotations") or {}
    return annotations.get(SELECTED_NODE, "")


async def _failure(world: World, uid: str) -> str:
    """The message with which the binding failed, once it has."""

    def has_failed() -> bool:
        spec = world.spec(uid)
        return spec is not None and spec.binding is not None and bool(spec.binding.failure)

    await world.until(has_failed)
    events = await world.bus.events.read_aggregate(AggregateRef("podspec", uid))
    event = CATALOGUE.read(events[-1])
    assert isinstance(event, PodBindFailed)
    assert event.reason == "VolumeBinding"
    return event.message


async def test_volume_is_reserved_for_the_claim_and_the_pod_waits_until_it_is_bound(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world, volumes=("disk",))
        await world.place(uid, "node-1", chosen("disk"))
        await world.until(lambda: _volume(world)["spec"].get("claimRef"))
        reference = _volume(world)["spec"]["claimRef"]
        assert (reference["namespace"], reference["name"]) == ("default", "data")
        assert reference["uid"] == _claim(world)["metadata"]["uid"]
        assert _volume(world)["metadata"]["annotations"] == {BOUND_BY_CONTROLLER: "yes"}
        assert world.node_of("a") == ""
        assert _selected(world) == ""

        await world.server.apply(bound(_claim(world), "disk"))
        await world.until(lambda: world.node_of("a") == "node-1")
        await world.until(lambda: words(world, "Scheduled"))


async def test_node_is_selected_for_a_claim_whose_volume_is_made(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world)
        await world.place(uid, "node-2", chosen())
        await world.until(lambda: _selected(world) == "node-2")
        assert world.node_of("a") == ""
        await world.server.apply(local_volume("made", "node-2", of="disks"))
        await world.server.apply(bound(_claim(world), "made"))
        await world.until(lambda: world.node_of("a") == "node-2")


async def test_claim_that_a_provisioner_gives_back_fails_the_binding(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world)
        await world.place(uid, "node-1", chosen())
        await world.until(lambda: _selected(world))
        await world.until(lambda: _mirrored_node(world) == "node-1")
        given_back = _claim(world)
        given_back["metadata"]["annotations"] = {SELECTED_NODE: None}
        await world.server.apply(given_back)
        assert await _failure(world, uid) == f'{PREFIX}provisioning failed for PVC "data"'
        await world.until(lambda: words(world, "FailedScheduling"))
        assert words(world, "FailedScheduling")[0]["message"] == f'{PREFIX}provisioning failed for PVC "data"'


def _mirrored_node(world: World) -> str:
    stored = world.view.custom("persistentvolumeclaims", "default", "data")
    meta: dict[str, Any] = stored.object["metadata"] if stored is not None and stored.object else {}
    return str(meta.get("annotations", {}).get(SELECTED_NODE, ""))


async def test_volume_that_another_claim_has_taken_fails_the_binding(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world, volumes=("disk",))
        taken = local_volume("disk", "node-1")
        taken["spec"]["claimRef"] = {"namespace": "default", "name": "other", "uid": "1"}
        await world.server.apply(taken)
        await world.place(uid, "node-1", chosen("disk"))
        assert await _failure(world, uid) == f'{PREFIX}pv "disk" is bound to claim default/other'
        assert world.node_of("a") == ""


async def test_reservation_of_a_volume_that_is_taken_back_fails_the_binding(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world, volumes=("disk",))
        await world.place(uid, "node-1", chosen("disk"))
        await world.until(lambda: _volume(world)["spec"].get("claimRef"))
        await world.until(lambda: "claimRef" in _mirrored_volume(world))
        await world.server.apply({**_volume(world), "spec": {"claimRef": None}})
        assert await _failure(world, uid) == f'{PREFIX}ClaimRef got reset for pv "disk"'


def _mirrored_volume(world: World) -> dict[str, Any]:
    stored = world.view.custom("persistentvolumes", "", "disk")
    return stored.object["spec"] if stored is not None and stored.object else {}


async def test_claim_that_is_not_bound_in_time_fails_the_binding(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world)
        await world.place(uid, "node-1", chosen(seconds=1))
        assert await _failure(world, uid) == f"{PREFIX}context deadline exceeded"
        assert _selected(world) == "node-1"  # as kube-scheduler leaves it: the next attempt goes to this node


async def test_volume_out_of_reach_of_the_node_fails_the_binding(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world)
        await world.place(uid, "node-1", chosen())
        await world.until(lambda: _selected(world) == "node-1")
        await world.server.apply(local_volume("far", "node-2", of="disks"))
        await world.server.apply(bound(_claim(world), "far"))
        assert await _failure(world, uid) == f'{PREFIX}pv "far" node affinity doesn\'t match node "node-1"'


@pytest.mark.parametrize("status", [409, 403, 500])
async def test_write_that_the_api_server_refuses_is_repeated(tmp_path: Path, status: int) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world, volumes=("disk",))
        fault = world.server.faults.add(Fault("PATCH", "/persistentvolumes/disk", status, times=1))
        await world.place(uid, "node-1", chosen("disk"))
        await world.until(lambda: _volume(world)["spec"].get("claimRef"))
        assert fault.times == 0


async def test_next_leader_goes_on_with_a_claim_that_the_first_began(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world, volumes=("disk",))
        await world.place(uid, "node-1", chosen("disk"))
        await world.until(lambda: _volume(world)["spec"].get("claimRef"))
        await world.stop()
        await world.begin()
        await world.server.apply(bound(_claim(world), "disk"))
        await world.until(lambda: world.node_of("a") == "node-1")


async def test_pod_that_is_deleted_while_it_waits_is_forgotten(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        uid = await _begin(world, volumes=("disk",))
        await world.place(uid, "node-1", chosen("disk"))
        await world.until(lambda: _volume(world)["spec"].get("claimRef"))
        await world.server.delete("pods", "default", "a")
        await world.until(lambda: world.spec(uid) is None)
        await world.until(lambda: world.gateway.is_idle)
