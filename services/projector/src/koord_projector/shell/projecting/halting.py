"""Halt the fold before an event that it cannot decode or store, until an operator has recorded a skip.

Source:
    event-bus spec, 8
"""

from collections.abc import Sequence
from typing import Final

from koordcore.bus.folds.skips import recorded_skips
from koordcore.events.envelope import StoredEvent
from koordcore.events.registry import UnreadableEvent

from koord_projector.shell.metrics import FOLD
from koord_projector.shell.projecting.context import ProjectorContext
from koord_projector.shell.projecting.feed import RebuildWanted
from koord_projector.shell.projecting.session import Session

LOOK_SECONDS: Final = 2.0
"""Real seconds between two checks for a recorded skip."""


async def wait_for_skip(session: Session, events: Sequence[StoredEvent], unreadable: UnreadableEvent) -> None:
    """Wait until an operator orders to skip an event. Then fold and commit the rest of the batch.

    Args:
        session: Session at the position directly before the event, which cannot be decoded or stored.
        events: The batch that contains it.
        unreadable: Error with the event and the reason.

    Raises:
        RebuildWanted: An operator requested a rebuild instead.
    """
    context = session.context
    poison: UnreadableEvent | None = unreadable
    while poison is not None:
        await _wait(context, poison)
        context.logger.warning("event_skipped", fold=FOLD, seq=poison.seq, cause=poison.reason)
        rest = [event for event in events if event.seq >= poison.seq]
        session.projection.skip(rest[0])
        poison = await session.fold(rest[1:])
        await session.commit()
    context.metrics.halted(False)
    context.progress.going_on()


async def _wait(context: ProjectorContext, unreadable: UnreadableEvent) -> None:
    if unreadable.seq in await recorded_skips(context.log, FOLD, halted_at=unreadable.seq):
        return
    context.progress.halt(f"halted before {unreadable}")
    context.metrics.halted(True)
    context.logger.error("fold_halted", fold=FOLD, stream="ev", seq=unreadable.seq, cause=unreadable.reason)
    while unreadable.seq not in await recorded_skips(context.log, FOLD):
        if await context.progress.rebuild_wanted_within(LOOK_SECONDS):
            raise RebuildWanted
