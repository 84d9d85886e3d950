"""Rebuild the tables from the first fact: fold in memory, COPY into shadow tables, exchange them at the end.

States stay in memory, so no row is written twice. If the exchange is not possible, the caller folds batch by batch.
"""

import asyncio
from collections.abc import Sequence, Set
from typing import Final

from koordcore.bus.folds.skips import recorded_skips
from koordcore.events.envelope import StoredEvent
from koordcore.events.registry import UnreadableEvent

from koord_projector.domain.projection import Changes, Projection
from koord_projector.shell.metrics import FOLD
from koord_projector.shell.postgres.shadow import CANNOT_EXCHANGE, Shadow
from koord_projector.shell.projecting.context import ProjectorContext
from koord_projector.shell.projecting.feed import open_feed

WORTH_EVENTS: Final = 5_000
"""Number of facts from which a rebuild by COPY is faster than folding batch by batch."""
_BATCH: Final = 5_000
_WITHOUT_PAUSE: Final = 500


async def rebuild_tables(context: ProjectorContext, after: int, upto: int) -> Projection | None:
    """Fold the log up to position `upto` into new tables, and return the projection of these tables.

    If a fact cannot be read, the tables end before it.

    Args:
        context: Ports of the projector.
        after: Position that the tables have now.
        upto: Position of the last fact to fold.

    Returns:
        The projection. None if the user of Postgres cannot exchange the tables, or the log is too short.

    Raises:
        Moved: Another process wrote to the tables meanwhile.
        HistoryGone: The first facts were deleted from the log.
        WRITE_ERRORS: Postgres is unavailable.
    """
    if upto < WORTH_EVENTS:
        return None
    try:
        shadow = await Shadow.open(context.dsn)
    except CANNOT_EXCHANGE as error:
        context.logger.warning("rebuild_without_copy", reason=str(error).splitlines()[0])
        return None
    try:
        projection = await _fold(context, shadow, upto)
        await shadow.exchange(after, projection.position, projection.event_id)
    except CANNOT_EXCHANGE as error:
        context.logger.warning("rebuild_without_copy", reason=str(error).splitlines()[0])
        return None
    finally:
        await shadow.close()
    return projection


async def _fold(context: ProjectorContext, shadow: Shadow, upto: int) -> Projection:
    """Fold the log, while the rows of the batch before are written."""
    projection = Projection()
    skips = await recorded_skips(context.log, FOLD)
    batches: asyncio.Queue[Changes | None] = asyncio.Queue(1)

    async def write() -> None:
        while (changes := await batches.get()) is not None:
            await shadow.add(changes)

    async with open_feed(context.log, 0, context.progress) as feed, asyncio.TaskGroup() as group:
        group.create_task(write())
        is_readable = True
        while is_readable and projection.position < upto:
            is_readable = await _apply(projection, await feed.take(_BATCH), skips)
            await batches.put(projection.take_history())
            context.progress.halt(f"rebuilding: {projection.position:,} of {upto:,} facts")
        await batches.put(projection.take_rest())
        await batches.put(None)
    return projection


async def _apply(projection: Projection, events: Sequence[StoredEvent], skips: Set[int]) -> bool:
    """Apply events in order. Stop before one that is unreadable and not skipped; return whether there was none."""
    for count, event in enumerate(events, 1):
        try:
            projection.apply(event)
        except UnreadableEvent:
            if event.seq not in skips:
                return False
            projection.skip(event)
        if count % _WITHOUT_PAUSE == 0:
            await asyncio.sleep(0)
    return True
