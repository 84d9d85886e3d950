"""Facts of the proxy: they wait on disk while the log is unavailable, and the oldest are dropped above the limit."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from koord_criproxy.hooks.servers import HookFailure, HookServer
from koord_criproxy.outbox import REPEAT_SECONDS, ProxyFactFile, ProxyOutbox
from koord_criproxy.records import PodRecord
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.bus.write.own_facts import OwnFacts
from koordcore.events import CATALOGUE
from koordcore.events.criproxy import HookServerFailed, HookServersChanged, ProxyFactsDropped, RegisteredHookServer
from koordcore.events.envelope import Event
from koordcore.ports.clock import Clock
from koordcore.service.clock import SystemClock
from koordcore.service.outbox import NotStored, QueuedFact
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs
from support.criproxy import World, proxied
from support.manual_clock import ManualClock
from support.until import until

SERVER = HookServer(file="a.json", endpoint="/a.sock", policy="Fail")
MOST = 5


def outbox_of(file: ProxyFactFile, log: MemoryLog, limit: int = MOST, clock: Clock | None = None) -> ProxyOutbox:
    async def connected() -> OwnFacts:
        return MemoryEventLog(log)

    return ProxyOutbox(file, connected, node="node-a", limit=limit, clock=clock or SystemClock(), logger=logger("test"))


@asynccontextmanager
async def running(outbox: ProxyOutbox) -> AsyncGenerator[None]:
    tasks = [asyncio.create_task(outbox.run()), asyncio.create_task(outbox.keep())]
    yield
    for task in tasks:
        task.cancel()


def told(log: MemoryLog) -> list[Event | None]:
    events = list(log.between(0, log.last_seq, None, 1_000))
    assert {(event.ref.kind, event.ref.id, event.actor) for event in events} <= {
        ("criproxy", "node-a", "criproxy/node-a")
    }
    return [CATALOGUE.read(event) for event in events]


def failure(number: int) -> HookFailure:
    return HookFailure(SERVER, "PreRunPodSandboxHook", PodRecord(name="p", uid=f"uid-{number}"), "", "down")


async def test_facts_of_a_proxy_without_a_log_are_told_after_its_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.runtime.start()
    world.register("Ignore", "PreRunPodSandbox", "PreCreateContainer")
    async with proxied(world):
        await world.run_sandbox(metadata={"name": "web", "uid": "uid-1", "namespace": "shop"})
        await world.create(metadata={"name": "main"})
    await world.channel.close()
    await world.runtime.stop()

    file, log = ProxyFactFile(tmp_path / "state"), MemoryLog()
    outbox = outbox_of(file, log)
    async with running(outbox):
        await until(lambda: outbox.sent == 3)
    hooks = ["PreRunPodSandbox", "PreCreateContainer"]
    registered = RegisteredHookServer(file="agent.json", endpoint=str(world.hooks.socket), policy="Ignore", hooks=hooks)
    changed, *failed = told(log)
    assert changed == HookServersChanged(servers=[registered])
    assert [
        (each.uid, each.namespace, each.pod, each.container, each.hook, each.server, each.policy)
        for each in failed
        if isinstance(each, HookServerFailed) and "UNAVAILABLE" in each.error
    ] == [
        ("uid-1", "shop", "web", "", "PreRunPodSandbox", "agent.json", "Ignore"),
        ("uid-1", "shop", "web", "main", "PreCreateContainer", "agent.json", "Ignore"),
    ]
    file.close()
    assert ProxyFactFile(tmp_path / "state").facts() == []


async def test_the_oldest_facts_are_dropped_and_their_number_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord_criproxy.outbox.LOOK_SECONDS", 0.01)
    file = ProxyFactFile(tmp_path)
    outbox = outbox_of(file, MemoryLog())
    for number in range(8):  # three more than the limit, stored one by one
        outbox.tell_failure(failure(number))
        outbox.store()
    assert (len(outbox), outbox.dropped, file.dropped) == (MOST, 3, 3)
    for number in range(8, 15):  # more than the limit at once
        outbox.tell_failure(failure(number))
    outbox.store()
    assert len(file.facts()) == MOST
    file.close()

    log, file = MemoryLog(), ProxyFactFile(tmp_path)
    outbox = outbox_of(file, log)
    outbox.tell_servers([])
    outbox.store()
    async with running(outbox):
        await until(lambda: any(isinstance(each, ProxyFactsDropped) for each in told(log)))
    *failed, changed, dropped = told(log)
    assert [each.uid for each in failed if isinstance(each, HookServerFailed)] == [
        f"uid-{number}" for number in range(11, 15)
    ]
    assert changed == HookServersChanged()
    assert dropped == ProxyFactsDropped(facts=11)
    assert file.dropped == 0
    file.close()


async def test_a_fact_that_is_too_large_is_told_as_dropped_and_the_next_one_follows() -> None:
    log = MemoryLog(max_payload=2048)
    outbox = outbox_of(ProxyFactFile(None), log)
    outbox.tell_failure(failure(0)._replace(error="x" * 4096))
    outbox.tell_servers([])
    outbox.store()
    async with running(outbox):
        await until(lambda: outbox.sent == 2)
    assert told(log) == [ProxyFactsDropped(facts=1), HookServersChanged()]
    assert (outbox.dropped, outbox.left_out) == (1, 1)


async def test_equal_failures_are_one_fact_for_ten_minutes() -> None:
    log, clock = MemoryLog(), ManualClock()
    outbox = outbox_of(ProxyFactFile(None), log, clock=clock)
    for _ in range(3):
        outbox.tell_failure(failure(0))
    outbox.tell_failure(failure(1))
    outbox.tell_failure(failure(0)._replace(error="another reason"))
    await clock.advance(REPEAT_SECONDS)
    outbox.tell_failure(failure(0))
    outbox.store()
    async with running(outbox):
        await until(lambda: outbox.sent == 4)
    failed = [(each.uid, each.error) for each in told(log) if isinstance(each, HookServerFailed)]
    assert failed == [("uid-0", "down"), ("uid-1", "down"), ("uid-0", "another reason"), ("uid-0", "down")]


async def test_facts_that_the_disk_refused_are_stored_without_a_further_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koord_criproxy.outbox.LOOK_SECONDS", 0.01)
    log, file, is_full = MemoryLog(), ProxyFactFile(None), True
    put = file.put

    def refusing(*args: Any) -> list[QueuedFact]:
        if is_full:
            raise NotStored("the disk is full")
        return put(*args)

    monkeypatch.setattr(file, "put", refusing)
    outbox = outbox_of(file, log)
    async with running(outbox):
        with capture_logs() as lines:
            outbox.tell_failure(failure(0))
            await until(lambda: lines)
        is_full = False
        await until(lambda: outbox.sent == 1)


async def test_an_unusable_folder_does_not_stop_the_proxy(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "state").write_text("a file, not a folder")
    await world.runtime.start()
    async with proxied(world):
        await world.call("Version", b"")
    await world.channel.close()
    await world.runtime.stop()
