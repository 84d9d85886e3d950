"""A scrape of metrics reads the time series in one thread while the cycle of the node changes them in another.

The tests let the other thread run between any two instructions of the first one. So they depend on no timing.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from koord_agent.domain.metrics import series
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import SeriesStore
from support.depth import first_of

pytestmark = pytest.mark.slow

OLDEST, NEWEST, RETENTION = 100_000, 110_000, 4_000


def store_of(objects: int = 3) -> SeriesStore:
    """A store with samples each second, whose value is their time."""
    store = SeriesStore(retention_ms=100_000)
    for of in range(objects):
        for at in range(OLDEST, NEWEST + 1, 1_000):
            store.append(Kind.POD_CPU, at, at, str(of))
    store.retention_ms = store.object_retention_ms = RETENTION
    for each in store._all():  # pyright: ignore[reportPrivateUsage]
        each.retention_ms = RETENTION
    return store


CHANGES: dict[str, Callable[[SeriesStore], object]] = {
    "a sample": lambda store: store.append(Kind.POD_CPU, NEWEST + 500, NEWEST + 500, "1"),
    "a sample that is late": lambda store: store.append(Kind.POD_CPU, NEWEST - 500, NEWEST - 500, "1"),
    "a new series": lambda store: store.append(Kind.POD_CPU, NEWEST, NEWEST, "new"),
    "a pod that has ended": lambda store: store.forget(["0"]),
    "garbage": lambda store: store.collect_garbage(NEWEST),
    "a clock that was set back": lambda store: store.clock_set_back(NEWEST - 3_000),
    "too much memory": lambda store: (setattr(store, "max_bytes", 100), store.collect_garbage(NEWEST)),
}


def read(store: SeriesStore) -> None:
    """Read as a scrape does. All values are those of their times."""
    points = store.between(Kind.POD_CPU, OLDEST, NEWEST + 1_000, "1")
    assert list(points.times_ms) == list(points.values)
    assert sorted(points.times_ms) == list(points.times_ms)
    last = store.last(Kind.POD_CPU, OLDEST, NEWEST, "1")
    assert last is not None
    assert NEWEST - 3_000 <= last <= NEWEST
    assert store.size_bytes > 0
    assert len(store) >= 1
    assert store.held(Kind.POD_CPU)


def between_instructions(call: Callable[[], object], of_turn: Callable[[int], object]) -> int:
    """Run a function, and another one before each instruction of the module of time series; return their number."""
    turns, before = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal turns
        if frame.f_code.co_filename != series.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            sys.settrace(None)
            of_turn(turns)
            sys.settrace(trace)
            turns += 1
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return turns


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_scrape_in_the_middle_of_a_change_sees_times_with_their_values(
    change: Callable[[SeriesStore], object],
) -> None:
    store = store_of()
    assert between_instructions(lambda: change(store), lambda _: read(store)) > 0


@pytest.mark.parametrize("change", first_of(CHANGES.values(), 2), ids=CHANGES)
def test_a_change_in_the_middle_of_a_scrape_does_not_disturb_it(change: Callable[[SeriesStore], object]) -> None:
    at, turns = 0, 1
    while at < turns:
        store = store_of()

        def turn(number: int, at: int = at, store: SeriesStore = store) -> None:
            if number == at:
                change(store)

        turns = between_instructions(lambda store=store: read(store), turn)
        at += 1
