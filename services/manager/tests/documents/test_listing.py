"""A list of many objects lets other tasks run, such as admission and the renewal of the lease."""

import asyncio
from typing import Any

from koord_manager.shell.documents.api import ManagerApi
from koord_manager.shell.intake import Intake
from koordcore.values import codec
from koordcore.values.pieces import PIECE
from starlette.requests import Request
from support.manager.loops import AlwaysLeading
from support.manager.world import ManagerWorld

PODS = 5 * PIECE


def asked(kind: str, query: str = "") -> Request:
    scope: dict[str, Any] = {
        "type": "http",
        "path_params": {"kind": kind},
        "query_string": query.encode(),
        "headers": [],
    }
    return Request(scope)


async def listed(world: ManagerWorld, kind: str, query: str = "") -> dict[str, Any]:
    api = ManagerApi(world.view, Intake(), AlwaysLeading(leads=True), standalone=True)
    response = await api.list_objects(asked(kind, query))
    assert response.media_type == "application/json"
    return codec.decode(bytes(response.body), dict[str, Any])


def crowded() -> ManagerWorld:
    world = ManagerWorld()
    for number in range(PODS):
        namespace = "b" if number % 2 else "a"
        world.pod(f"u-{number}", {"metadata": {"name": f"p-{number:04}", "namespace": namespace}})
    return world


async def test_other_tasks_run_while_many_objects_are_listed() -> None:
    world, turns = crowded(), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    await asyncio.sleep(0)
    begun = turns
    found = await listed(world, "pods")
    task.cancel()
    assert turns - begun >= PODS // PIECE
    assert (found["apiVersion"], found["kind"], found["position"]) == ("v1", "List", PODS)
    names = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in found["items"]]
    assert names == sorted(names)
    assert len(names) == PODS


async def test_a_pod_that_is_deleted_meanwhile_is_listed_as_it_was() -> None:
    world = crowded()
    listing = asyncio.ensure_future(listed(world, "pods", "namespace=b"))
    await asyncio.sleep(0)
    for number in range(PODS):
        world.delete_pod(f"u-{number}")
    found = await listing
    assert {item["metadata"]["namespace"] for item in found["items"]} == {"b"}
    assert (len(found["items"]), found["position"]) == (PODS // 2, PODS)


async def test_a_kind_without_objects_is_an_empty_list() -> None:
    assert (await listed(ManagerWorld(), "nodes"))["items"] == []
