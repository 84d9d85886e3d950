"""The projector's loop: facts in strict order into Postgres, rows and position together.

    1. load         memory from the tables, wherever they stand
    2. take         what the log delivers, coalesced
    3. fold         pure: `domain.projection`
    4. write        rows and position in one transaction
    5. tell         metrics, traces, live tails

Whatever goes wrong with Postgres ends the session, and the next one begins at 1: the database alone says where we are.
An event that cannot be read halts the fold before it; `archive` follows the two lossy streams beside it.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import cast

from koordcore.events import CATALOGUE
from koordcore.events.control import EventSkipped
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog, HistoryGone
from koordcore.service.clock import host_unix_nanos
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer, extract

from koord_projector.domain.projection import Projection
from koord_projector.figures import ProjectorMetrics
from koord_projector.patience import FIRST_PAUSE, LOG_ERRORS, LONGEST_PAUSE, first_line
from koord_projector.progress import Progress
from koord_projector.shell.postgres.database import WRITE_ERRORS
from koord_projector.shell.postgres.loader import lend_states, load_projection
from koord_projector.shell.postgres.writer import Moved, Writer

FOLD = "projector"
"""Name of this fold in `koord bus skip` and in metrics."""
QUEUED_BATCHES = 4
EVENTS_WITHOUT_PAUSE = 200
"""Events folded before the event loop may serve others: about 10 ms."""
LOOK_SECONDS = 2.0
"""How often a halted fold looks for a recorded skip, in real seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the cycle works on and with.

    batch_events    facts of one transaction, at most
    """

    log: EventLog
    dsn: str
    clock: Clock
    progress: Progress
    figures: ProjectorMetrics
    tracer: Tracer
    logger: Logger
    batch_events: int


class LogChanged(Exception):
    """The log is another one than the one whose facts the tables hold."""


class RebuildWanted(Exception):
    """Somebody asked for a rebuild from zero."""


async def project_facts(world: World) -> None:
    """Folds for ever. Cancelled at shutdown: a transaction under way is rolled back and repeated by the next start."""
    pause = FIRST_PAUSE
    while True:
        try:
            async with _session(world) as (writer, projection):
                pause = FIRST_PAUSE
                await _fold(world, writer, projection)
        except RebuildWanted:
            world.logger.info("rebuild_begins")
        except Moved as moved:
            world.logger.warning("position_moved", reason=str(moved))
        except (HistoryGone, LogChanged) as error:
            world.progress.halt(f"{error}; POST /admin/rebuild folds what the log still holds")
            world.logger.error("history_gone", reason=str(error))
            await _rebuild_wanted_within(world, LONGEST_PAUSE)
        except LOG_ERRORS as error:
            world.logger.warning("log_away", error=first_line(error), retry_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
        except WRITE_ERRORS as error:
            world.progress.halt(f"Postgres is away: {first_line(error)}")
            world.logger.warning("postgres_away", error=first_line(error), retry_seconds=pause)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)


@asynccontextmanager
async def _session(world: World) -> AsyncGenerator[tuple[Writer, Projection]]:
    """1. A connection, and the memory that fits to what the tables say."""
    writer = await Writer.open(world.dsn)
    try:
        loaded = await load_projection(writer)
        wanted = world.progress.rebuild_wanted.is_set()
        if wanted or not loaded.is_current:
            world.progress.halt("rebuilding from the first event")
            world.logger.info("rebuilding", wanted=wanted, current=loaded.is_current)
            await writer.clear()
            loaded = await load_projection(writer)
        projection = loaded.projection
        if wanted:
            world.progress.committed(projection.position, "")
            world.progress.rebuild_wanted.clear()
        await _require_same_log(world.log, projection.position, loaded.event_id)
        world.progress.head = (await world.log.head()).last_seq
        world.progress.committed(projection.position, "")
        world.progress.going_on()
        world.logger.info(
            "projection_loaded",
            position=projection.position,
            head=world.progress.head,
            aggregates=projection.aggregate_count,
            pods=len(projection.pods.living),
            nodes=len(projection.nodes.figures),
        )
        yield writer, projection
    finally:
        await writer.close()


async def _require_same_log(log: EventLog, position: int, event_id: str) -> None:
    """Raises LogChanged when the fact at our position is another one, HistoryGone when the log ends before it."""
    head = await log.head()
    if position > head.last_seq:
        raise LogChanged(f"the log ends at {head.last_seq}, the tables hold facts up to {position}")
    if position < head.first_seq:  # nothing there to compare with; following says whether something is missing
        return
    async for batch in log.history(position - 1, position):
        if batch[0].event_id != event_id:
            raise LogChanged(f"the fact at position {position} is {batch[0].event_id}, not {event_id} as folded")


async def _fold(world: World, writer: Writer, projection: Projection) -> None:
    feed: asyncio.Queue[list[StoredEvent]] = asyncio.Queue(QUEUED_BATCHES)
    async with _reading(world.log, projection.position, feed) as reader:
        while True:
            # 2. take
            events = await _take(world, feed, reader)
            began_nanos, began = host_unix_nanos(), world.clock.monotonic()
            # 3. fold
            await lend_states(writer, projection, projection.unknown_states(events))
            unreadable = await _apply(projection, events)
            # 4. write
            if projection.position > world.progress.position:
                changes = projection.take_changes()
                await writer.write(changes)
                # 5. tell
                last = changes.events[-1].occurred_at if changes.events else ""
                world.progress.committed(changes.position, last)
                world.progress.look()
                seconds = world.clock.real_seconds(world.clock.monotonic() - began)
                world.figures.batch(len(changes.events), seconds, changes.position)
                _trace(world.tracer, changes.events, began_nanos)
            if unreadable is not None:
                await _halt(world, writer, projection, events, unreadable)


async def _apply(projection: Projection, events: Sequence[StoredEvent]) -> UnreadableEvent | None:
    """Folds the events; stops before one that cannot be read and returns why."""
    for count, event in enumerate(events, 1):
        try:
            projection.apply(event)
        except UnreadableEvent as error:
            return error
        if count % EVENTS_WITHOUT_PAUSE == 0:
            await asyncio.sleep(0)
    return None


async def _halt(
    world: World, writer: Writer, projection: Projection, events: Sequence[StoredEvent], unreadable: UnreadableEvent
) -> None:
    """Waits until an operator has recorded that the event may be passed over, then goes on with those behind it.

    source    event-bus spec, 8
    """
    while True:
        if not await _is_skipped(world.log, unreadable.seq):
            world.progress.halt(f"halted before {unreadable}")
            world.figures.halted(True)
            world.logger.error("fold_halted", fold=FOLD, stream="ev", seq=unreadable.seq, cause=unreadable.reason)
            while not await _is_skipped(world.log, unreadable.seq):
                if await _rebuild_wanted_within(world, LOOK_SECONDS):
                    raise RebuildWanted
        world.logger.warning("event_skipped", fold=FOLD, seq=unreadable.seq, cause=unreadable.reason)
        rest = [event for event in events if event.seq >= unreadable.seq]
        projection.skip(rest[0])
        # Lent before, but handed back with what was committed before the halt.
        await lend_states(writer, projection, projection.unknown_states(rest))
        again = await _apply(projection, rest[1:])
        await writer.write(projection.take_changes())
        world.progress.committed(projection.position, rest[-1].occurred_at)
        if again is None:
            break
        unreadable = again
    world.figures.halted(False)
    world.progress.going_on()


async def _is_skipped(log: EventLog, seq: int) -> bool:
    """Whether an operator's record says that this fold passes over the event."""
    for stored in await log.read_aggregate(AggregateRef("fold", FOLD)):
        try:
            event = CATALOGUE.read(stored)
        except UnreadableEvent:
            continue
        if isinstance(event, EventSkipped) and event.seq == seq:
            return True
    return False


async def _rebuild_wanted_within(world: World, seconds: float) -> bool:
    """Waits, but not longer than until somebody asks for a rebuild; whether somebody did."""
    try:
        async with asyncio.timeout(seconds):
            await world.progress.rebuild_wanted.wait()
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def _reading(
    log: EventLog, after: int, feed: asyncio.Queue[list[StoredEvent]]
) -> AsyncGenerator["asyncio.Task[None]"]:
    """A task that fills the feed while a batch is written."""

    async def read() -> None:
        async with aclosing(cast("AsyncGenerator[list[StoredEvent]]", log.follow(after))) as batches:
            async for batch in batches:
                await feed.put(batch)

    reader = asyncio.create_task(read(), name="projector-reader")
    try:
        yield reader
    finally:
        reader.cancel()
        await asyncio.wait((reader,))


async def _take(
    world: World, feed: asyncio.Queue[list[StoredEvent]], reader: "asyncio.Task[None]"
) -> list[StoredEvent]:
    """The next events: what has arrived meanwhile goes into one transaction. Raises what ended the reader."""
    if feed.empty():
        getting = asyncio.ensure_future(feed.get())
        wanted = asyncio.ensure_future(world.progress.rebuild_wanted.wait())
        try:
            await asyncio.wait((getting, wanted, reader), return_when=asyncio.FIRST_COMPLETED)
            if world.progress.rebuild_wanted.is_set():
                raise RebuildWanted
            if not getting.done():
                reader.result()
                raise AssertionError("the log's follower ended by itself")
            events = list(getting.result())
        finally:
            getting.cancel()
            wanted.cancel()
    else:
        if world.progress.rebuild_wanted.is_set():
            raise RebuildWanted
        events = list(feed.get_nowait())
    while len(events) < world.batch_events and not feed.empty():
        events.extend(feed.get_nowait())
    return events


def _trace(tracer: Tracer, events: Sequence[StoredEvent], began_nanos: int) -> None:
    """One span per event that belongs to a recorded trace: from taken to committed."""
    if not tracer.exports:
        return
    for event in events:
        parent = extract(event.headers)
        if parent is not None and parent.sampled:
            attributes: dict[str, str | int] = {"event.type": event.type, "event.seq": event.seq}
            tracer.emit("projector.fold", parent, attributes=attributes, start_nanos=began_nanos)


async def watch_head(world: World) -> None:
    """Asks the log once a second how far it is; for lag metrics and readiness."""
    while True:
        try:
            world.progress.head = max(world.progress.position, (await world.log.head()).last_seq)
            world.progress.look()
        except LOG_ERRORS as error:
            world.logger.debug("log_away", error=first_line(error))
        world.figures.lag(world.progress.head - world.progress.position, world.progress.lag_seconds(world.clock.now()))
        await asyncio.sleep(1.0)
