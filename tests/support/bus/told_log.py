"""How a test tells a log its events and reads them again, and where such a log can be."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from koordcore.events import CATALOGUE
from koordcore.events.envelope import HEADER_BASED_ON, AggregateRef, Draft, Event, NewEvent, Origin, StoredEvent
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import (
    Appended,
    EventLog,
)
from support.until import DEADLINE_SECONDS

MEMORY = pytest.param("memory")
R1 = pytest.param("r1", marks=pytest.mark.nats)
_THREE = [pytest.mark.nats, pytest.mark.xdist_group("r3")]
R3_IN_DEEP = pytest.param("r3", marks=[*_THREE, pytest.mark.deep])
R3 = pytest.param("r3", marks=_THREE)
"""In each run, for what three servers do otherwise than one: they lose a leader."""


def new(
    id_: str, expected: int = 0, *, cause: str = "c", pods: tuple[str, ...] = ("p",), kind: str = "nodestate"
) -> NewEvent:
    return sealed(AggregateRef(kind, id_), PodsStarted(pods=list(pods)), expected, cause=cause)


def sealed(ref: AggregateRef, event: Event, expected: int, *, cause: str) -> NewEvent:
    origin = Origin(causation_id=cause, correlation_id="x", actor="test/1", occurred_at="2026-01-01T00:00:00.000000Z")
    return CATALOGUE.seal([Draft(ref, event, expected)], origin)[0]


def folded(event: NewEvent, upto: int) -> NewEvent:
    """The event as a writer decides it that has folded the log up to a position."""
    return msgspec.structs.replace(event, headers={**event.headers, HEADER_BASED_ON: str(upto)})


async def stored(log: EventLog, *events: NewEvent) -> Appended:
    outcome = await log.append(list(events), deadline=DEADLINE_SECONDS)
    assert isinstance(outcome, Appended), outcome
    return outcome


async def everything(log: EventLog, after: int = 0, **options: object) -> list[StoredEvent]:
    head = await log.head()
    return [event async for batch in log.history(after, head.last_seq, **options) for event in batch]  # type: ignore[arg-type]


async def take(
    batches: AsyncIterator[list[StoredEvent]], count: int, *, seconds: float = DEADLINE_SECONDS
) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    async with asyncio.timeout(seconds):
        async for batch in batches:
            found += batch
            if len(found) >= count:
                break
    return found
