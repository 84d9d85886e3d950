"""Answers about many objects let other tasks run, such as admission and the renewal of the lease."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
from koord_manager.shell.documents.api import ManagerApi
from koord_manager.shell.intake import Intake
from koordcore.state import ClusterState
from koordcore.values import codec
from koordcore.values.codec import PIECE
from koordcore.values.invalid import InvalidInput
from starlette.requests import Request
from support.manager.loops import AlwaysLeading
from support.manager.world import ManagerWorld

T = TypeVar("T")
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


class Other:
    """Another task of the process: it counts its turns."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)

    async def turns_during(self, work: Awaitable[T]) -> tuple[int, T]:
        task = asyncio.ensure_future(self.run())
        await asyncio.sleep(0)
        begun = self.turns
        result = await work
        task.cancel()
        return self.turns - begun, result


async def test_other_tasks_run_while_many_objects_are_listed() -> None:
    turns, found = await Other().turns_during(listed(crowded(), "pods"))
    assert turns >= PODS // PIECE
    assert (found["apiVersion"], found["kind"], found["position"]) == ("v1", "List", PODS)
    names = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in found["items"]]
    assert names == sorted(names)
    assert len(names) == PODS


async def test_other_tasks_run_while_the_objects_of_a_namespace_are_looked_for_among_many() -> None:
    idle, _ = await Other().turns_during(listed(ManagerWorld(), "pods", "namespace=c"))
    turns, found = await Other().turns_during(listed(crowded(), "pods", "namespace=c"))
    assert found["items"] == []
    assert turns >= idle + PODS // PIECE


async def test_other_tasks_run_while_the_hash_of_many_objects_is_computed() -> None:
    world = crowded()
    api = ManagerApi(world.view, Intake(), AlwaysLeading(leads=True), standalone=True)
    turns, response = await Other().turns_during(api.state(asked("")))
    assert turns >= PODS // PIECE
    expected = ClusterState.restore(b"".join(world.view.state.snapshot())).hash()
    assert codec.decode(bytes(response.body), dict[str, Any]) == {"position": PODS, "hash": expected}


async def test_a_pod_that_is_deleted_meanwhile_is_listed_as_it_was() -> None:
    world = crowded()
    listing = asyncio.ensure_future(listed(world, "pods", "namespace=b"))
    await asyncio.sleep(0)
    for number in range(PODS):
        world.delete_pod(f"u-{number}")
    found = await listing
    assert {item["metadata"]["namespace"] for item in found["items"]} == {"b"}
    assert (len(found["items"]), found["position"]) == (PODS // 2, PODS)


async def names(world: ManagerWorld, kind: str, query: str = "") -> list[str]:
    api = ManagerApi(world.view, Intake(), AlwaysLeading(leads=True), standalone=True)
    return codec.decode(bytes((await api.list_names(asked(kind, query))).body), dict[str, list[str]])["names"]


async def test_names_are_those_that_begin_so_while_other_tasks_run() -> None:
    turns, found = await Other().turns_during(names(crowded(), "pods", "prefix=p-001"))
    assert turns >= PODS // PIECE
    assert found == [f"p-001{digit}" for digit in range(10)]


async def test_of_too_many_names_all_begin_with_what_the_offered_ones_begin_with() -> None:
    world = crowded()
    world.pod("other", {"metadata": {"name": "q", "namespace": "a"}})
    found = await names(world, "pods")
    assert len(found) == 500
    assert (found[0], found[498], found[499]) == ("p-0000", "p-0498", "q")


async def test_namespaces_are_those_of_objects() -> None:
    world = crowded()
    assert await names(world, "pods", "field=namespace") == ["a", "b"]
    assert await names(world, "pods", "field=namespace&prefix=b") == ["b"]
    assert await names(world, "podgroups", "field=namespace") == []


async def test_only_names_and_namespaces_are_offered() -> None:
    with pytest.raises(InvalidInput, match="field"):
        await names(ManagerWorld(), "pods", "field=uid")


async def test_a_kind_without_objects_is_an_empty_list() -> None:
    assert (await listed(ManagerWorld(), "nodes"))["items"] == []
