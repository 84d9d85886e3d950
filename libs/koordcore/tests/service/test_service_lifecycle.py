"""The life of a process: order of start and end, failures, the grace, signals, and word to systemd."""

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path

import pytest
from koordcore import ending
from koordcore.service.health import FIRST_FACTOR, LEAST_SECONDS, LONGEST_INTERVALS, Health
from koordcore.service.lifecycle import Component, ComponentEnded, Service, notify_systemd
from support.until import DEADLINE_SECONDS, until


class Recorder:
    """Components that write down what is done to them."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def component(self, name: str, *, runs: bool = False) -> Component:
        told = asyncio.Event()

        async def start() -> None:
            self.steps.append(f"start {name}")

        async def run() -> None:
            self.steps.append(f"run {name}")
            await told.wait()
            self.steps.append(f"ended {name}")

        async def stop() -> None:
            self.steps.append(f"stop {name}")
            told.set()

        async def close() -> None:
            self.steps.append(f"close {name}")

        return Component(name=name, start=start, run=run if runs else None, stop=stop, close=close)


def make(*components: Component, grace: float = DEADLINE_SECONDS) -> tuple[Service, Health]:
    health = Health()
    service = Service("demo", health=health, grace_real_seconds=grace)
    for component in components:
        service.add(component)
    return service, health


async def test_starts_in_order_and_ends_in_reverse() -> None:
    recorder = Recorder()
    service, health = make(recorder.component("bus"), recorder.component("cycle", runs=True))
    life = asyncio.create_task(service.run(handle_signals=False))
    await until(lambda: health.is_ready() and "run cycle" in recorder.steps, every=0.001)
    assert recorder.steps == ["start bus", "start cycle", "run cycle"]
    assert not service.stopping
    service.stop("enough")
    assert service.stopping
    assert health.readiness()[0].reason == "stopping: enough"
    assert await life == 0
    assert recorder.steps[3:] == ["stop cycle", "ended cycle", "stop bus", "close cycle", "close bus"]


async def test_a_failing_run_ends_the_process_with_its_cause() -> None:
    recorder = Recorder()

    async def broken() -> None:
        raise RuntimeError("disk on fire")

    service, _ = make(recorder.component("bus"), Component(name="broken", run=broken))
    assert await service.run(handle_signals=False) == 1
    assert [str(failure) for failure in service.failures] == ["disk on fire"]
    assert recorder.steps == ["start bus", "stop bus", "close bus"]


async def test_a_run_that_is_cancelled_from_within_is_a_failure() -> None:
    async def waits() -> None:
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        await answer

    service, _ = make(Component(name="feed", run=waits))
    assert await service.run(handle_signals=False) == 1
    assert [str(failure) for failure in service.failures] == ["feed was cancelled from within"]


async def test_a_failing_start_closes_what_had_started_and_starts_no_more() -> None:
    recorder = Recorder()

    async def broken() -> None:
        raise OSError("address taken")

    service, health = make(
        recorder.component("bus"), Component(name="http", start=broken), recorder.component("cycle", runs=True)
    )
    assert await service.run(handle_signals=False) == 1
    assert recorder.steps == ["start bus", "stop bus", "close bus"]
    assert not health.is_ready()


async def test_a_run_that_ends_by_itself_is_a_failure_unless_finite() -> None:
    async def ends() -> None:
        return

    service, _ = make(Component(name="cycle", run=ends))
    assert await service.run(handle_signals=False) == 1
    assert isinstance(service.failures[0], ComponentEnded)

    service, health = make(Component(name="load", run=ends, finite=True))
    life = asyncio.create_task(service.run(handle_signals=False))
    await until(health.is_ready, every=0.001)
    service.stop("enough")
    assert await life == 0


async def test_a_failing_stop_does_not_keep_the_others_from_closing() -> None:
    recorder = Recorder()

    async def broken() -> None:
        raise RuntimeError("flush failed")

    service, health = make(recorder.component("bus"), Component(name="outbox", stop=broken, close=broken))
    life = asyncio.create_task(service.run(handle_signals=False))
    await until(health.is_ready, every=0.001)
    service.stop("enough")
    assert await life == 1
    assert len(service.failures) == 2
    assert recorder.steps[-1] == "close bus"


async def test_what_outlasts_the_grace_is_cut_off_and_the_rest_still_closes() -> None:
    recorder = Recorder()

    async def for_ever() -> None:
        await asyncio.Event().wait()

    service, health = make(recorder.component("bus"), Component(name="slow", run=for_ever, stop=for_ever), grace=0.05)
    life = asyncio.create_task(service.run(handle_signals=False))
    await until(health.is_ready, every=0.001)
    service.stop("enough")
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await life == 0
    assert recorder.steps[-1] == "close bus"


async def test_a_component_without_stop_is_cancelled() -> None:
    ended: list[str] = []

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    service, health = make(Component(name="watch", run=run))
    life = asyncio.create_task(service.run(handle_signals=False))
    await until(health.is_ready, every=0.001)
    service.stop("enough")
    assert await life == 0
    assert ended == ["cancelled"]


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_stop_gives_up_on_a_start_that_waits(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the start loses a cancellation, as `asyncio.wait_for` does if it meets the answer."""
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)
    waiting = asyncio.Event()

    async def for_ever() -> None:
        for _ in range(lost):
            waiting.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        waiting.set()
        await asyncio.Event().wait()

    service, health = make(Component(name="bus", start=for_ever))
    life = asyncio.create_task(service.run(handle_signals=False))
    await waiting.wait()
    service.stop("enough")
    assert await life == 0
    assert not health.is_ready()


async def test_cancelling_the_life_ends_it_in_order() -> None:
    recorder = Recorder()
    service, health = make(recorder.component("cycle", runs=True))
    life = asyncio.create_task(service.run(handle_signals=False))
    await until(health.is_ready, every=0.001)
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await life
    assert recorder.steps[-2:] == ["ended cycle", "close cycle"]


async def test_a_signal_stops_and_a_second_one_ends_the_waiting() -> None:
    in_hand = asyncio.Event()

    async def for_ever() -> None:
        in_hand.set()
        await asyncio.Event().wait()

    service, health = make(Component(name="slow", stop=for_ever), grace=3600)
    life = asyncio.create_task(service.run())
    await until(health.is_ready, every=0.001)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(in_hand.wait(), DEADLINE_SECONDS)
    assert not life.done()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await life == 0


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, abstract: bool) -> None:
    name = f"@koord-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:] if abstract else name)
        systemd.settimeout(DEADLINE_SECONDS)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        assert notify_systemd("READY=1")
        assert systemd.recv(64) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    assert not notify_systemd("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/does/not/exist")
    assert not notify_systemd("READY=1")


def test_checks_give_reasons_and_a_failing_check_is_an_answer() -> None:
    health = Health()
    bus = health.readiness_condition("bus", "not connected yet")

    def broken() -> str | None:
        raise RuntimeError("oops")

    health.add_readiness("broken", broken)
    health.add_liveness("loop", lambda: None)
    assert [(result.name, result.ok, result.reason) for result in health.readiness()] == [
        ("bus", False, "not connected yet"),
        ("broken", False, "the check failed: RuntimeError: oops"),
    ]
    bus.met()
    assert health.readiness()[0].ok
    bus.unmet("disconnected")
    assert health.readiness()[0].reason == "disconnected"
    assert all(result.ok for result in health.liveness())
    with pytest.raises(AssertionError, match="twice"):
        health.add_liveness("loop", lambda: None)


def test_work_that_takes_many_intervals_fails_and_waiting_and_a_sleeping_machine_do_not() -> None:
    def is_alive_after(seconds: float) -> bool:
        for _ in range(int(seconds)):
            health.second_passed()
        return all(result.ok for result in health.liveness())

    health, interval = Health(), 2 * LEAST_SECONDS
    watch = health.watch_work("cycle", interval)
    assert is_alive_after(100 * interval), "it waits for its first piece of work"
    longest = LONGEST_INTERVALS * interval
    with watch:
        assert is_alive_after(FIRST_FACTOR * longest), "a first look is long"
        assert not is_alive_after(1)
    assert is_alive_after(100 * interval), "it waits for the next piece of work"
    with watch:
        assert is_alive_after(longest)  # however long the machine slept meanwhile: no second was counted then
        assert not is_alive_after(1)
        assert health.liveness()[0].reason == "its work has not ended for 721 s, and 720 s are the most"
    with watch:
        assert is_alive_after(longest)
    short = health.watch_work("short", 0.05)
    with short:
        pass
    with short:
        assert is_alive_after(LEAST_SECONDS)
        assert not is_alive_after(1)
