"""Read the positions that operators told folds to skip.

`koord bus skip` records `EventSkipped` on `fold.<name>`.

Source: event-bus spec, 8.
"""

from typing import Final

from koordcore.bus.client.connection import patiently
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.log import EventSkipped
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import EventLog

KIND: Final = "fold"  # Kind of the aggregates that record skips, one aggregate per fold


async def recorded_skips(log: EventLog, fold: str, *, halted_at: int | None = None) -> set[int]:
    """Return the sequences of the events that operators ordered this fold to skip. Waits until the log answers.
    `halted_at`: sequence of an event before which the fold halts. If the stream has dropped it, it may have dropped the
    order to skip it, too. Then the archive is searched.

    Raises:
        HistoryGone: The stream has dropped the event meanwhile, and there is no archive.
    """
    ref = AggregateRef(KIND, fold)
    found = await patiently(lambda: log.read_aggregate(ref))
    if halted_at is not None and halted_at < (first := (await patiently(log.head)).first_seq):
        async for events in log.history(halted_at, first - 1, kinds=[KIND]):
            found = [*found, *(each for each in events if each.ref == ref)]
    return skipped_by(found)


def skipped_by(events: "list[StoredEvent]") -> set[int]:
    """Return the sequences that the `EventSkipped` among these events name: the events that a fold must skip. `events`:
    Events of one aggregate `fold.<name>`. Events that cannot be decoded are ignored.
    """
    skips: set[int] = set()
    for stored in events:
        try:
            event = CATALOGUE.read(stored)
        except UnreadableEvent:
            continue
        if isinstance(event, EventSkipped):
            skips.add(event.seq)
    return skips
