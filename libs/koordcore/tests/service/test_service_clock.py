"""The three clocks: agreement between processes, scaling, and the order in which hand-moved time wakes sleepers."""

import asyncio
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.ports.clock import Clock
from koordcore.service.clock import ScaledClock, SystemClock, parse_clock
from koordcore.values.invalid import InvalidInput
from support.manual_clock import ManualClock
from support.until import until

CLOCKS: list[Clock] = [SystemClock(), ScaledClock.starting_now(60.0), ManualClock()]


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: type(clock).__name__)
async def test_now_is_aware_and_agrees_with_unix(clock: Clock) -> None:
    before, now, after = clock.unix(), clock.now(), clock.unix()
    assert now.tzinfo is UTC
    assert before - 1e-3 <= now.timestamp() <= after + 1e-3


def test_two_processes_given_the_same_text_agree_on_the_time() -> None:
    one = ScaledClock.starting_now(60.0, at_unix=0.0)
    other = parse_clock(str(one))
    assert other == one
    before, now, after = one.unix(), other.unix(), one.unix()
    assert before - 1e-3 <= now <= after + 1e-3


async def test_an_hour_passes_in_a_minute_at_speed_60() -> None:
    clock = ScaledClock.starting_now(60.0)
    real = SystemClock()
    before, start, after = real.monotonic(), clock.monotonic(), real.monotonic()
    start_unix = clock.unix()
    await clock.sleep(6.0)
    least, passed, most = real.monotonic() - after, clock.monotonic() - start, real.monotonic() - before
    assert passed >= 6.0 - 1e-3
    assert least * 60 - 1e-3 <= passed <= most * 60 + 1e-3
    assert clock.unix() - start_unix >= 6.0 - 1e-3
    assert clock.real_seconds(3600.0) == 60.0


@pytest.mark.parametrize("clock", [SystemClock(), ScaledClock.starting_now(1000.0)], ids=["system", "scaled"])
async def test_wait_until_reaches_the_moment(clock: Clock) -> None:
    moment = clock.unix() + 0.02
    await clock.wait_until(moment)
    assert clock.unix() >= moment
    await clock.wait_until(moment - 100)  # in the past: returns at once


@given(
    speed=st.floats(min_value=1e-3, max_value=1e6),
    real=st.floats(min_value=0, max_value=4e9),
    origin=st.floats(min_value=0, max_value=4e9),
)
def test_parse_after_render_is_identity(speed: float, real: float, origin: float) -> None:
    clock = ScaledClock(origin_real_unix=real, origin_unix=origin, speed=speed)
    assert parse_clock(str(clock)) == clock


def test_parse_system_and_speed_alone() -> None:
    assert parse_clock("system") == SystemClock()
    assert parse_clock(str(SystemClock())) == SystemClock()
    fast = parse_clock("60")
    assert isinstance(fast, ScaledClock)
    assert fast.speed == 60


@pytest.mark.parametrize(
    "text", ["fast", "60@1", "60@1@2@3", "0@1@2", "-1@0@0", "nan@0@0", "inf", "60@x@1", "60@inf@1"]
)
def test_a_wrong_text_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(InvalidInput, match="clock"):
        parse_clock(text)


async def test_manual_sleepers_wake_in_order_of_their_moments() -> None:
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("c", 3), ("a", 1), ("b", 2), ("a2", 1)):
            group.create_task(sleeper(name, seconds))
        await until(lambda: clock.sleepers() == 4)
        await clock.advance(2.5)
        assert woken == [("a", 1), ("a2", 1), ("b", 2)]
        await clock.advance(0.5)
    assert woken[-1] == ("c", 3)


async def test_a_periodic_loop_runs_once_per_period_while_time_advances() -> None:
    clock = ManualClock()
    ticks: list[float] = []

    async def loop() -> None:
        while True:
            await clock.sleep(10)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(loop())
    await until(lambda: clock.sleepers() == 1)
    await clock.advance(35)
    assert ticks == [10, 20, 30]
    assert clock.monotonic() == 35
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.sleepers() == 0


async def test_jump_is_a_pause_the_loop_finds_the_later_time() -> None:
    clock = ManualClock()
    seen: list[float] = []

    async def sleeper() -> None:
        await clock.sleep(1)
        seen.append(clock.monotonic())

    task = asyncio.create_task(sleeper())
    await until(lambda: clock.sleepers() == 1)
    clock.jump(100)
    await task
    assert seen == [100]


def test_manual_now_is_its_unix() -> None:
    assert ManualClock(0.0).now() == datetime(1970, 1, 1, tzinfo=UTC)
    assert ManualClock().real_seconds(1) == math.inf
