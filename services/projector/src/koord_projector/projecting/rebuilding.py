"""Rebuild the tables from the first fact: COPY into shadow tables, which replace the tables at the end.

This process reads the log and writes the table `events`. Another one folds meanwhile and writes the other tables
(`fold_process`). States stay in memory, so no row is written twice. If the tables cannot be replaced, or a fact cannot
be stored, the caller folds batch by batch, which finds this fact.

That is so on purpose, also if the fact is skipped. A skip holds only for a fact that cannot be decoded or stored, and
a later version may store it. COPY cannot tell: it sends rows long after their facts, and an index refuses them at the
end without the name of a fact. So only batches leave out the same facts as before.
"""

import asyncio
import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from koordcore.bus.folds.skips import recorded_skips
from koordcore.events.envelope import StoredEvent

from koord_projector.context import FOLD, ProjectorContext
from koord_projector.projecting.feed import FactFeed, open_feed
from koord_projector.projecting.fold_process import Folded, FoldProcess, fold_process
from koord_projector.store.database import REFUSED
from koord_projector.store.shadow import CANNOT_EXCHANGE, TABLES_IN_USE, Shadow

WORTH_EVENTS: Final = 20_000
"""Number of facts from which a rebuild by COPY is faster than folding batch by batch."""
EXCHANGE_PAUSE_SECONDS: Final = 5.0
"""Time in which waiting queries run before the tables are to be exchanged again."""
_BATCH: Final = 5_000
_BATCH_BYTES: Final = 16 << 20


class RowsRefused(Exception):
    """The process that folds cannot store the rows of a fact. The message has the reason, and may not name the fact."""


async def rebuild_tables(context: ProjectorContext, after: int | None, upto: int) -> bool:
    """Fold the log up to position `upto` into new tables, and replace the tables by them.

    If a fact cannot be read, the tables end before it. `after`: position from which the tables may be replaced; None:
    any.

    Return whether it is done. False if the user of Postgres cannot replace the tables, if a fact cannot be stored, or
    the log is too short.

    Raises:
        Moved: Another projector of this version wrote to the tables meanwhile.
        HistoryGone: The first facts were deleted from the log.
        RebuildWanted: An operator requested a rebuild meanwhile.
        FoldEnded: The process that folds has failed.
        WRITE_ERRORS: Postgres is unavailable.
    """
    if upto < WORTH_EVENTS:
        return False
    try:
        shadow = await Shadow.open(context.dsn)
        try:
            with _without_collector():
                folded = await _fill(context, shadow, upto)
            await _exchange(context, shadow, after, folded)
        except (*CANNOT_EXCHANGE, *REFUSED, RowsRefused):
            await shadow.discard()
            raise
        finally:
            await shadow.close()
    except (*CANNOT_EXCHANGE, *REFUSED, RowsRefused) as error:
        context.logger.warning("rebuild_without_copy", reason=str(error).splitlines()[0])
        return False
    return True


async def _exchange(context: ProjectorContext, shadow: Shadow, after: int | None, folded: Folded) -> None:
    """Replace the tables as soon as no query reads the old ones for long."""
    while True:
        try:
            return await shadow.exchange(after, folded.position, folded.event_id)
        except TABLES_IN_USE:
            context.progress.halt("rebuilt; waits for queries that read the earlier tables")
            context.logger.warning("rebuild_waits_for_queries")
            await asyncio.sleep(EXCHANGE_PAUSE_SECONDS)


@contextmanager
def _without_collector() -> Generator[None]:
    """The garbage collector would look at each new batch of facts in vain."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _fill(context: ProjectorContext, shadow: Shadow, upto: int) -> Folded:
    skips = await recorded_skips(context.log, FOLD)
    async with fold_process(context.dsn, skips) as fold, open_feed(context.log, 0, context.progress) as feed:
        position, is_taking = 0, True
        while is_taking and position < upto:
            events = await _batch(feed, upto)
            is_taking = await fold.send(events)
            await shadow.add_facts(events)
            position = events[-1].seq
            context.progress.halt(f"rebuilding: {position:,} of {upto:,} facts")
        folded = await _finish(fold, shadow)
    if folded.refused:
        raise RowsRefused(folded.refused)
    if folded.skipped or folded.position < position:
        await shadow.leave_out(folded.position, folded.skipped)
    return folded


async def _finish(fold: FoldProcess, shadow: Shadow) -> Folded:
    """Wait until all rows are committed and the facts have their indexes. If one of them fails, give up the other."""
    folding, indexing = asyncio.create_task(fold.finish()), asyncio.create_task(shadow.index_facts())
    both = folding, indexing
    try:
        done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
        return folding.result()
    finally:
        # An index takes minutes. Postgres would go on with it, and with the lock of the rebuild, after its session.
        for task in both:
            task.cancel()
        await asyncio.wait(both)


async def _batch(feed: FactFeed, upto: int) -> list[StoredEvent]:
    """Wait for the next facts, and return a batch of them, or all up to `upto`."""
    events, size = list[StoredEvent](), 0
    while not events or (len(events) < _BATCH and size < _BATCH_BYTES and events[-1].seq < upto):
        taken = await feed.take(_BATCH - len(events))
        events += taken
        size += sum(len(event.body) for event in taken)
    return events
