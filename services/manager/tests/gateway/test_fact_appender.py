"""How the gateway appends facts: few in messages of their own, many together, and one of each aggregate at once.

While the log is full, it waits longer after each append.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import cast

import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.shell.appender import WORTH_A_BATCH
from koord_manager.shell.gateway import fact_appender
from koord_manager.shell.gateway.fact_appender import OVERTAKEN, FactAppender, NotLeading
from koordcore.events.envelope import AggregateRef, Draft, NewEvent
from koordcore.events.objects import PodSpecDeleted
from koordcore.ports.eventlog import Appended, AppendOutcome, EventLog, Full, LogHead, TooLarge
from koordcore.retry import Backoff
from koordcore.service.clock import SystemClock
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.tracing import make_tracer
from structlog.testing import capture_logs
from support.until import until


class Log:
    """Stores what it is given, one append after the other, when the test lets it; `large` is too large for it.

    While `is_full`, it stores nothing.
    """

    def __init__(self, large: str = "") -> None:
        self.large = large
        self.is_full = False
        self.appends: list[list[str]] = []
        self.stored: list[str] = []
        self.go_on = asyncio.Event()

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        names = [event.ref.id for event in events]
        self.appends.append(names)
        await self.go_on.wait()
        if self.is_full:
            return Full("maximum bytes exceeded")
        if self.large in names:
            raise TooLarge("too large", frozenset(event.ref for event in events if event.ref.id == self.large))
        begin = len(self.stored)
        self.stored += names
        return Appended(len(self.stored), tuple(range(begin + 1, len(self.stored) + 1)))

    async def head(self) -> LogHead:
        return LogHead(1, len(self.stored))


def appender(log: Log, leadership: SoleLeader | None = None) -> FactAppender:
    async def folded(seq: int) -> None:
        assert seq <= len(log.stored)

    tracer = make_tracer("t", instance="t", cluster="t", otlp_endpoint=None, trace_file=None, sample_ratio=0.0)
    events = cast("EventLog", log)
    leader = leadership or SoleLeader("t")
    return FactAppender(ManagerView(), events, leader, SystemClock(), tracer, logger("t"), folded, "manager/t")


def draft(name: str) -> Draft:
    return Draft(AggregateRef("podspec", name), PodSpecDeleted(namespace="default", name=name), 0)


def until_stored(log: Log, name: str) -> Draft | None:
    """Decide a fact until it is stored."""
    return None if name in log.stored else draft(name)


def write(facts: FactAppender, log: Log, name: str) -> asyncio.Task[bool]:
    return asyncio.create_task(facts.write(lambda: until_stored(log, name)))


async def test_few_facts_are_sent_at_once_in_messages_of_their_own() -> None:
    log = Log()
    appending = asyncio.create_task(appender(log).append([draft(name) for name in "abc"]))

    await until(lambda: len(log.appends) == 3)
    log.go_on.set()

    assert log.appends == [["a"], ["b"], ["c"]]
    assert all(isinstance(outcome, Appended) for outcome in await appending)


async def test_many_facts_share_a_batch() -> None:
    log = Log()
    log.go_on.set()
    names = [f"pod-{number}" for number in range(WORTH_A_BATCH)]

    await appender(log).append([draft(name) for name in names])

    assert log.appends == [names]


async def test_two_facts_of_one_aggregate_are_not_under_way_at_once() -> None:
    log = Log()
    facts = appender(log)
    first = write(facts, log, "a")
    await until(lambda: log.appends)

    both = asyncio.create_task(facts.append([draft("a"), draft("b")]))
    await until(lambda: len(log.appends) == 2)
    log.go_on.set()

    overtaken, stored = await both
    assert overtaken is OVERTAKEN
    assert isinstance(stored, Appended)
    assert await first
    assert log.stored == ["a", "b"]


async def test_a_fact_that_can_never_be_stored_does_not_keep_the_others() -> None:
    log = Log(large="b")
    log.go_on.set()

    with pytest.raises(TooLarge):
        await appender(log).append([draft(name) for name in "abc"])
    assert log.stored == ["a", "c"]


async def test_a_full_log_is_asked_at_growing_intervals_and_told_once_for_each_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    class Recorded(Backoff):
        async def wait(self, at_least: float | None = None) -> None:
            pauses.append(self.seconds(at_least))

    monkeypatch.setattr(fact_appender, "Backoff", Recorded)
    monkeypatch.setattr(random, "random", lambda: 0.5)
    log = Log()
    log.go_on.set()
    facts = appender(log)
    with capture_logs() as lines:
        for log.is_full in (True, True, True, False, True):
            await facts.append([draft(name) for name in "abc"])

    assert pauses == [0.5, 1.0, 2.0, 0.5]
    assert [line["facts"] for line in lines if line["log_level"] == "warning"] == [3] * 4


async def test_nothing_is_appended_after_the_term() -> None:
    log = Log()
    leadership = SoleLeader("t")
    facts = appender(log, leadership)
    await leadership.resign()

    with pytest.raises(NotLeading):
        await write(facts, log, "a")
    assert log.appends == []
