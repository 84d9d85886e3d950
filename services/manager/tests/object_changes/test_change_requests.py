"""Changes of objects at an API server: created once, patched and deleted by uid, nodes opened and closed."""

from pathlib import Path
from typing import Any

from koord_manager.shell.documents.object_changes import ObjectChanges
from koord_manager.shell.intake import Intake
from koordcore.protocol.objects import Taint
from koordcore.requests.objects import (
    ChangeNode,
    ChangeRequest,
    CreateObject,
    DeleteObject,
    ObjectChange,
    PatchObject,
)
from koordcore.service.leader.lease import SoleLeader
from support.kubernetes.gateway_world import World, gateway_world, install_crds, node

DRAINED = Taint(key="drain", effect="NoSchedule", value="d")
RESERVATION: dict[str, Any] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r"},
    "spec": {"owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}], "template": {"spec": {"containers": []}}},
}


async def change(world: World, *changes: ObjectChange) -> list[str]:
    instance = await world.begin()
    try:
        door = ObjectChanges(instance.view, Intake(), SoleLeader("t"), instance.api)
        answer = await door.change(ChangeRequest(changes=list(changes)))
    finally:
        await instance.stop()
    return [str(outcome.result) for outcome in answer.outcomes]


async def test_object_is_created_once_patched_and_deleted_by_its_uid(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        create = CreateObject(document=RESERVATION)
        assert await change(world, create) == ["refused"]  # before its definition is installed
        await install_crds(world.server)
        assert await change(world, create, create) == ["done", "exists"]
        found = world.server.object("reservations", "", "r")
        assert found is not None
        uid = found["metadata"]["uid"]
        patch = {"metadata": {"labels": {"order": "1"}}}
        assert await change(world, PatchObject(kind="Reservation", name="r", uid=uid, patch=patch)) == ["done"]
        found = world.server.object("reservations", "", "r")
        assert found is not None
        assert found["metadata"]["labels"] == {"order": "1"}
        other, own = (DeleteObject(kind="Reservation", name="r", uid=each) for each in ("other", uid))
        assert await change(world, other, own, own) == ["absent", "done", "absent"]


async def test_node_is_closed_and_opened_and_keeps_its_other_taints(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        kept = {"key": "kept", "effect": "NoExecute"}
        await world.server.apply({**node("n"), "spec": {"taints": [kept]}})
        close = ChangeNode(
            name="n", labels={"plan": "d"}, annotations={"by": "u"}, taints=[DRAINED], unschedulable=True
        )
        assert await change(world, close, close, ChangeNode(name="other")) == ["done", "done", "absent"]
        found = world.server.object("nodes", "", "n")
        assert found is not None
        assert {taint["key"] for taint in found["spec"]["taints"]} >= {"kept", "drain"}
        assert (found["spec"]["unschedulable"], found["metadata"]["labels"]["plan"]) == (True, "d")
        assert found["metadata"]["annotations"]["by"] == "u"
        opened = ChangeNode(name="n", labels={"plan": None}, removed_taints=[DRAINED], unschedulable=False)
        assert await change(world, opened) == ["done"]
        found = world.server.object("nodes", "", "n")
        assert found is not None
        assert "drain" not in {taint["key"] for taint in found["spec"]["taints"]}
        assert "plan" not in found["metadata"]["labels"]


async def test_kind_that_is_not_of_the_protocol_is_refused(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
        assert await change(world, CreateObject(document=secret)) == ["refused"]
