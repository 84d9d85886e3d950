"""The queue of facts on disk: each fact reaches the log once and in order, whatever is lost between queue and log."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.write.own_facts import OwnFacts
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.criproxy import ProxyFactsDropped
from koordcore.events.envelope import AggregateRef, NewEvent, Origin, StoredEvent
from koordcore.ports.eventlog import AppendOutcome, Unavailable
from koordcore.service import outbox
from koordcore.service.outbox import FactFile, FactQueue, QueuedFact, sealed
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs
from support.depth import examples
from support.until import until

REF = AggregateRef("criproxy", "n")
ORIGIN = Origin(causation_id="c", correlation_id="n", actor="criproxy/n", occurred_at="2026-01-01T00:00:00.000000Z")
FAULTS = st.lists(st.sampled_from(["", "away", "lost", "killed before", "killed after", "old"]), max_size=20)


class Killed(Exception):
    """The process of the queue ends."""


class Unsteady(MemoryEventLog):
    """A log that is away, whose answers are lost or old, or during whose calls the process is killed."""

    def __init__(self, log: MemoryLog, faults: list[str]) -> None:
        super().__init__(log)
        self.faults = faults

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        fault = self.faults.pop() if self.faults else ""
        if fault == "away":
            return Unavailable("away")
        if fault == "killed before":
            raise Killed
        outcome = await super().append(events, deadline=deadline)
        if fault == "killed after":
            raise Killed
        return Unavailable("lost") if fault == "lost" else outcome

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        fault = self.faults.pop() if self.faults else ""
        if fault == "away":
            raise NoAnswer("away")
        found = self.log.of(ref, 0)
        return (found[-2] if len(found) > 1 else None) if fault == "old" else await super().last_of(ref)


def _left_out(fact: QueuedFact, reason: str) -> ProxyFactsDropped:
    raise AssertionError(f"{fact}: {reason}")


async def send(file: FactFile, log: Unsteady) -> bool:
    """Run a queue until its file is empty; False if it was killed before."""

    async def connected() -> OwnFacts:
        return log

    running = asyncio.create_task(FactQueue(file, connected, logger("test"), instead=_left_out).run())
    await until(lambda: running.done() or not file.facts(), every=0)
    running.cancel()
    (end,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(end, Killed | asyncio.CancelledError), end
    return not isinstance(end, Killed)


@settings(max_examples=examples(50))
@given(facts=st.integers(1, 5), faults=FAULTS)
@example(facts=2, faults=["killed after", ""])
def test_each_fact_is_in_the_log_once_and_in_order(facts: int, faults: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name, mock.patch.object(outbox, "PAUSE_SECONDS", 0.0):
        file = FactFile(Path(name), name="facts.sqlite")
        with file.transaction():
            file.insert([sealed(REF, ProxyFactsDropped(facts=number), ORIGIN) for number in range(facts)])
        log = Unsteady(MemoryLog(), faults)

        async def send_all() -> None:
            while not await send(file, log):
                pass

        with capture_logs():
            asyncio.run(send_all())
        file.close()

    stored = [CATALOGUE.read(event) for event in log.log.of(REF, 0)]
    assert stored == [ProxyFactsDropped(facts=number) for number in range(facts)]


async def test_the_reason_for_which_facts_wait_is_logged_once() -> None:
    file = FactFile(None, name="")
    with file.transaction():
        file.insert([sealed(REF, ProxyFactsDropped(facts=1), ORIGIN)])
    with capture_logs() as lines, mock.patch.object(outbox, "PAUSE_SECONDS", 0.0):
        assert await send(file, Unsteady(MemoryLog(), ["away"] * 9))

    assert [line["reason"] for line in lines if line["event"] == "facts_wait"] == ["away"]
