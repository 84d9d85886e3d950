"""Append decisions to the log. Many independent decisions share an atomic batch, few facts are sent one by one.

The log server keeps each batch in files until it is complete. That takes 2 ms of its CPU time, a fact alone 0.03 ms.
If the log refuses a batch, each of its decisions is appended alone.

Source:
    event-bus spec, 4.2, 4.3
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from koordcore.ending import end_tasks
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Draft, NewEvent, Origin
from koordcore.ports.eventlog import Appended, AppendOutcome, Conflict, EventLog, Misconfigured, TooLarge, Unsendable

MAX_BATCH = 200
"""Events per atomic batch; the server allows 1000, smaller batches conflict less and answer sooner."""
BATCHES_AT_ONCE: Final = 4
"""Batches of one call that wait for the log at the same time. They are sent in order over one connection."""
WORTH_A_BATCH = 32
"""Number of independent facts from which on a batch costs the log server less than one message for each."""


class Decision(NamedTuple):
    drafts: list[Draft]
    origin: Origin  # Headers that the facts share: writer, cause, and the position on which they are based
    bodies: Sequence[bytes] = ()  # The encoded events of all drafts, if the caller has encoded them already


def is_misconfigured(error: Exception) -> bool:
    """Return whether an error means that the log can store nothing at all, so that a retry does not help."""
    return isinstance(error, Misconfigured) and not isinstance(error, Unsendable)


class NotAppended(NamedTuple):
    """Outcome of a decision whose append failed with an error.

    If the error is `Unsendable`, the log has not stored the decision. For other errors it is unknown whether it has.
    """

    error: Exception


async def append_each(log: EventLog, decisions: Sequence[Decision]) -> list[AppendOutcome | NotAppended]:
    """Append decisions independently of each other, and return the outcome of each, in order.

    If a decision fails with an error, its outcome is `NotAppended`, and the others are still appended.

    Raises:
        Misconfigured: The log can store nothing.
    """
    try:
        return list(await append_decisions(log, decisions))
    except TooLarge as error:
        large = {index for index, one in enumerate(decisions) if error.refs.intersection(d.ref for d in one.drafts)}
        fitting = iter(await append_each(log, [one for index, one in enumerate(decisions) if index not in large]))
        return [NotAppended(error) if index in large else next(fitting) for index in range(len(decisions))]
    except Exception as error:
        if is_misconfigured(error):
            raise
        if len(decisions) == 1:
            return [NotAppended(error)]
    return [outcome for decision in decisions for outcome in await append_each(log, [decision])]


async def append_decisions(log: EventLog, decisions: Sequence[Decision]) -> list[AppendOutcome]:
    """Append decisions independently of each other, and return the outcome of each, in order.

    A decision without facts counts as appended at position 0. An error about one decision is raised for all of them,
    and others may have been stored; `append_each` separates them.

    Raises:
        Misconfigured: The log can store nothing.
        TooLarge: A decision is too large for the log.
    """
    outcomes: list[AppendOutcome] = [Appended(0, ())] * len(decisions)
    if len(decisions) < WORTH_A_BATCH and all(len(decision.drafts) == 1 for decision in decisions):
        return await _append_one_by_one(log, decisions)
    under_way: deque[asyncio.Task[None]] = deque()
    try:
        for batch in _batches(decisions):
            if len(under_way) == BATCHES_AT_ONCE:
                await under_way.popleft()
            under_way.append(asyncio.create_task(_append(log, batch, outcomes)))
        while under_way:
            await under_way.popleft()
    except asyncio.CancelledError:
        await end_tasks(*under_way)
        raise
    finally:
        await asyncio.gather(*under_way, return_exceptions=True)
    return outcomes


def _batches(decisions: Sequence[Decision]) -> Iterator[list[tuple[int, list[NewEvent]]]]:
    """Yield the sealed facts of all decisions that have some, with the index of their decision, in parts of a batch."""
    batch: list[tuple[int, list[NewEvent]]] = []
    size = 0
    for index, decision in enumerate(decisions):
        if not decision.drafts:
            continue
        events = CATALOGUE.seal(decision.drafts, decision.origin, decision.bodies)
        if batch and size + len(events) > MAX_BATCH:
            yield batch
            batch, size = [], 0
        batch.append((index, events))
        size += len(events)
    if batch:
        yield batch


async def _append_one_by_one(log: EventLog, decisions: Sequence[Decision]) -> list[AppendOutcome]:
    """Send all facts at once, each in a message of its own. If one fails, the others are stored all the same."""
    sealed = [CATALOGUE.seal(decision.drafts, decision.origin, decision.bodies) for decision in decisions]
    outcomes = await asyncio.gather(*map(log.append, sealed), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


async def _append(log: EventLog, batch: list[tuple[int, list[NewEvent]]], outcomes: list[AppendOutcome]) -> None:
    together = await log.append([event for _, events in batch for event in events])
    if isinstance(together, Conflict) and len(batch) > 1:
        for index, events in batch:
            outcomes[index] = await log.append(events)
        return
    for index, _ in batch:
        outcomes[index] = together
