"""Many independent decisions: a few batches are under way at once, and each decision learns its own outcome."""

import asyncio
from collections.abc import Sequence

import pytest
from koord_manager.shell.appender import BATCHES_AT_ONCE, MAX_BATCH, Decision, append_decisions
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.events.envelope import AggregateRef, Draft, NewEvent, Origin
from koordcore.events.objects import NamespaceObserved
from koordcore.ports.eventlog import Appended, AppendOutcome, Misconfigured
from koordcore.protocol.objects import Namespace, ObjectMeta
from koordcore.values.override import override

COUNT = 2 * BATCHES_AT_ONCE * MAX_BATCH + 1


class SlowLog(MemoryEventLog):
    """Answers only when no more batches come, and counts how many wait."""

    def __init__(self) -> None:
        super().__init__(MemoryLog())
        self.under_way = self.most = 0
        self.refused: str | None = None

    @override
    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(10):
                await asyncio.sleep(0)
            if any(event.ref.id == self.refused for event in events):
                raise Misconfigured("no such stream")
            return await super().append(events, deadline=deadline)
        finally:
            self.under_way -= 1


def decision(number: int) -> Decision:
    name = f"n-{number}"
    event = NamespaceObserved(object=Namespace(metadata=ObjectMeta(name=name)))
    origin = Origin(causation_id=name, correlation_id=name, actor="test", occurred_at="2026-01-01T00:00:00Z")
    return Decision([Draft(AggregateRef("namespace", name), event, 0)], origin)


async def test_some_batches_are_under_way_at_once_and_stored_in_order() -> None:
    log = SlowLog()
    outcomes = await append_decisions(log, [decision(number) for number in range(COUNT)])
    assert log.most == BATCHES_AT_ONCE
    seqs = [outcome.last_seq for outcome in outcomes if isinstance(outcome, Appended)]
    assert len(seqs) == COUNT
    assert seqs == sorted(seqs)


async def test_an_error_is_raised_after_all_batches_that_were_sent_have_ended() -> None:
    log = SlowLog()
    log.refused = "n-0"
    with pytest.raises(Misconfigured):
        await append_decisions(log, [decision(number) for number in range(COUNT)])
    assert log.under_way == 0
    assert (await log.head()).last_seq == (BATCHES_AT_ONCE - 1) * MAX_BATCH
