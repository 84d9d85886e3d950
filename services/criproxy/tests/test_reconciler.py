"""Records of pods and containers that were removed without a call through the proxy."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from koord_criproxy import runtime
from koord_criproxy.compose import compose
from koord_criproxy.records import ContainerRecord, PodRecord, Store
from koord_criproxy.runtime import RuntimeAway, StoreReconciler
from koordcore.runtime_api.cri import cri_messages
from support.criproxy import RUNTIME, World, answer_as_runtime, running_world
from support.running_service import running_service
from support.until import until


def store_of(**containers: str) -> Store:
    """Return a store with containers by id, each in the sandbox of this id."""
    store = Store()
    for id_, sandbox in containers.items():
        store.pods[sandbox] = PodRecord()
        store.containers[id_] = ContainerRecord(pod=store.pods[sandbox], sandbox_id=sandbox)
    return store


async def test_what_two_lists_in_a_row_lack_is_forgotten() -> None:
    store = store_of(a="s", b="s", c="gone")
    lists = [{"s", "a"}, {"s", "a", "b"}, {"s", "a"}, {"s", "a"}]

    async def listed() -> frozenset[str]:
        return frozenset(lists.pop(0))

    compared = StoreReconciler(store, listed)
    await compared.compare()
    assert store.ids() == {"s", "a", "b", "gone", "c"}
    await compared.compare()
    assert store.ids() == {"s", "a", "b"}, "b was missing once"
    await compared.compare()
    await compared.compare()
    assert store.ids() == {"s", "a"}


async def test_what_is_created_while_the_runtime_lists_stays_and_so_does_all_without_a_list() -> None:
    store = store_of(a="s")

    async def listed() -> frozenset[str]:
        store.pods["new"] = PodRecord()
        if "old" not in store.pods:
            store.pods["old"] = PodRecord()
            return frozenset(("s", "a"))
        raise errors.pop(0)

    errors = [RuntimeAway("ListPodSandbox: UNAVAILABLE"), KeyError("Id"), RuntimeAway("ListPodSandbox: UNAVAILABLE")]
    compared = StoreReconciler(store, listed)
    for _ in range(4):
        await compared.compare()
    assert store.ids() == {"s", "a", "new", "old"}


async def test_a_pod_that_somebody_removed_at_the_runtime_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "COMPARE_SECONDS", 0.01)
    present = True

    async def answer(method: str, body: bytes, context: Any) -> bytes | None:
        messages = cri_messages()
        match method.removeprefix(RUNTIME):
            case "ListPodSandbox" if present:
                return messages["ListPodSandboxResponse"](items=[{"id": "s1"}]).SerializeToString()
            case "ListContainers" if present:
                item = {"id": "c1", "pod_sandbox_id": "s1"}
                return messages["ListContainersResponse"](containers=[item]).SerializeToString()
            case _:
                return await answer_as_runtime(method, body, context)

    async with running_world(tmp_path) as world:
        world.runtime.answer = answer
        async with running_service(world.settings, compose) as shell:

            def records() -> list[float | None]:
                name = "koord_runtimeproxy_store_records"
                kinds = ("sandbox", "container")
                return [shell.metrics.registry.get_sample_value(name, {"kind": kind}) for kind in kinds]

            await world.run_sandbox()
            await world.create()
            lists = len(world.runtime.called("ListContainers"))
            await until(lambda: len(world.runtime.called("ListContainers")) > lists + 2)
            assert records() == [1, 1]
            present = False
            await until(lambda: records() == [0, 0])


async def test_dockerd_is_compared_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "COMPARE_SECONDS", 0.01)
    sandbox = {
        "Id": "s",
        "Name": "/k8s_POD_web_default_u_0",
        "Config": {"Labels": {"io.kubernetes.docker.type": "podsandbox"}},
    }
    lists: list[list[dict[str, str]]] = [[{"Id": "s"}]]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode().partition("?")[0]
        answers = {"/info": {}, "/containers/json": lists[-1], "/containers/s/json": sandbox}
        body = json.dumps(answers[path]).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "docker.sock")
    world = World(tmp_path, runtime_socket=tmp_path / "docker.sock", mode="Docker")
    async with server, running_service(world.settings, compose) as shell:

        def sandboxes() -> float | None:
            return shell.metrics.registry.get_sample_value("koord_runtimeproxy_store_records", {"kind": "sandbox"})

        assert sandboxes() == 1
        lists.append([])
        await until(lambda: sandboxes() == 0)
    await world.channel.close()
