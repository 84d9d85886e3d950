"""A session with Postgres: a connection, and the projection in memory, which equals the tables.

An error of Postgres ends the session. The next one loads the projection from the tables. So does a refusal, because the
projection is ahead of the tables then:

    a batch is refused      -> the next session commits its facts one by one
    one fact is refused     -> the next session halts before it, as before a fact that cannot be decoded

The halt ends when an operator has recorded a skip.

Source:
    event-bus spec, 8
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from koordcore.bus.folds.skips import recorded_skips
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import EventLog
from koordcore.service.clock import host_unix_nanos
from koordcore.service.telemetry.tracing import extract

from koord_projector.context import FOLD, ProjectorContext
from koord_projector.fold.projection import Projection, id_in_tables
from koord_projector.projecting.feed import RebuildWanted
from koord_projector.projecting.rebuilding import rebuild_tables
from koord_projector.store.database import REFUSED
from koord_projector.store.loader import lend_states, load_projection
from koord_projector.store.writer import Writer


class FactsRefused(Exception):
    """Postgres refuses the rows of facts, or the fold of a fact fails."""

    def __init__(self, first: int, last: int, reason: str) -> None:
        facts = f"fact {first}" if first == last else f"facts {first} to {last}"
        super().__init__(f"{facts}: {reason}")
        self.first = first  # Position of the first of these facts
        self.last = last  # Position of the last one
        self.reason = reason  # Error, one sentence


class UnstorableEvent(UnreadableEvent):
    """An event that can be decoded and has no rows. The fold stops before it."""

    def __init__(self, seq: int, type_name: str, reason: str) -> None:
        super().__init__(seq, type_name, reason)
        self.args = (f"event {seq} of type {type_name!r} cannot be stored: {reason}",)


class Refusals:
    """The refusals that the sessions of one process have met. They are forgotten with the process, and by a rebuild."""

    def __init__(self) -> None:
        self._alone_until = 0
        self._reasons: dict[int, str] = {}

    def note(self, refused: FactsRefused) -> None:
        if refused.first == refused.last:
            self._reasons[refused.first] = refused.reason
        else:
            self._alone_until = max(self._alone_until, refused.last)

    def clear(self) -> None:
        self._alone_until = 0
        self._reasons.clear()

    def parts(self, events: list[StoredEvent]) -> Iterator[list[StoredEvent]]:
        """Yield facts as parts to commit: facts of a refused batch one by one, the others together."""
        begin = 0
        while begin < len(events) and events[begin].seq <= self._alone_until:
            yield [events[begin]]
            begin += 1
        if begin < len(events):
            yield events[begin:]

    def error_of(self, event: StoredEvent) -> UnstorableEvent | None:
        """None for a fact that was not refused alone."""
        reason = self._reasons.get(event.seq)
        return None if reason is None else UnstorableEvent(event.seq, event.type, reason)

    def settle(self, position: int) -> None:
        """Forget the refusals of facts up to a position, because they are committed or skipped."""
        for seq in [seq for seq in self._reasons if seq <= position]:
            del self._reasons[seq]


def refusal(events: Sequence[StoredEvent], error: BaseException) -> FactsRefused:
    lines = str(error).splitlines() or [type(error).__name__]
    return FactsRefused(events[0].seq, events[-1].seq, f"Postgres refuses its rows: {lines[0]}")


EVENTS_WITHOUT_PAUSE: Final = 200
"""Number of events that are folded before other tasks may run: about 10 ms."""
FREE_LOOKS: Final = 3
"""Looks in a row that find nobody folding before the tables are taken back: a new session may be about to begin."""


class TablesTaken(Exception):
    """Another version of the projector has made the tables again, and folds facts into them or did so a moment ago."""

    def __init__(self) -> None:
        super().__init__("another version of the projector folds into the tables")


class LogChanged(Exception):
    """The log is not the one whose facts the tables contain, for example because it was created again."""


@dataclass(frozen=True, slots=True)
class Session:
    """Folds facts and commits their rows. One task uses it. Without Postgres, methods raise one of `WRITE_ERRORS`."""

    context: ProjectorContext
    writer: Writer
    projection: Projection
    refusals: Refusals

    async def fold(self, events: Sequence[StoredEvent]) -> UnreadableEvent | None:
        """Apply facts in order.

        Stop before one that cannot be decoded or was refused before, and return the error; None if all were applied.

        Raises:
            FactsRefused: The fold of a fact fails. The projection is not usable any more.
        """
        projection, refusals = self.projection, self.refusals
        await lend_states(self.writer, projection, projection.unknown_states(events))
        for count, event in enumerate(events, 1):
            if (refused := refusals.error_of(event)) is not None:
                return refused
            try:
                applied = projection.apply(event)
            except UnreadableEvent as error:
                return error
            except Exception as error:
                raise FactsRefused(event.seq, event.seq, f"its fold fails: {type(error).__name__}: {error}") from error
            if applied is None and (reason := CATALOGUE.why_passed_over(event)):
                self.context.metrics.passed_over.tell(event, reason)
            if count % EVENTS_WITHOUT_PAUSE == 0:
                await asyncio.sleep(0)
        return None

    async def commit(self) -> list[StoredEvent]:
        """Write the rows of the facts that `fold` applied, with the new position, and return these facts; none: nothing
        to write.

        Raises:
            FactsRefused: Postgres refuses a row. Nothing is written, and the projection is not usable any more.
        """
        progress = self.context.progress
        if self.projection.position <= progress.position:
            return []
        changes = self.projection.take_changes()
        try:
            await self.writer.write(changes)
        except REFUSED as error:
            if not changes.events:
                raise
            raise refusal(changes.events, error) from error
        self.refusals.settle(changes.position)
        progress.committed(changes.position, changes.events[-1].occurred_at if changes.events else "")
        return changes.events

    def report(self, events: Sequence[StoredEvent], began_nanos: int) -> None:
        """Report a batch, also as spans of recorded traces. `began_nanos`: when it was taken from the feed."""
        context = self.context
        context.progress.look()
        context.metrics.batch(len(events), (host_unix_nanos() - began_nanos) / 1e9, self.projection.position)
        if not context.tracer.exports:
            return
        for event in events:
            parent = extract(event.headers)
            if parent is not None and parent.sampled:
                attributes: dict[str, str | int] = {"event.type": event.type, "event.seq": event.seq}
                context.tracer.emit("projector.fold", parent, attributes=attributes, start_nanos=began_nanos)


@asynccontextmanager
async def open_session(context: ProjectorContext, refusals: Refusals) -> AsyncGenerator[Session]:
    """Connect to Postgres and load the projection. If a rebuild is requested or needed, clear tables and refusals
    first.

    Raises:
        TablesTaken: Another version has taken the tables from this process, and may still fold.
        LogChanged: The tables contain facts that are not in this log.
        Moved: Another projector of this version wrote to the tables meanwhile.
        HistoryGone: A rebuild found that the first facts were deleted from the log. The tables are as before.
        RebuildWanted: An operator requested a rebuild during a rebuild.
        FoldEnded: The process that folds during a rebuild has failed.
        LOG_ERRORS: The log is unavailable.
        WRITE_ERRORS: Postgres is unavailable.
    """
    progress = context.progress
    writer = await Writer.open(context.dsn)
    try:
        wanted = progress.rebuild_wanted.is_set()
        # Whoever began last keeps the tables. Otherwise, two versions would make them again in turn, without end.
        if progress.has_folded and not wanted and await writer.tables_of_others():
            progress.free_looks = 0 if await writer.is_folded() else progress.free_looks + 1
            if progress.free_looks < FREE_LOOKS:
                raise TablesTaken
        progress.free_looks = 0
        await writer.hold_tables()
        loaded = await load_projection(writer)
        if wanted or not loaded.is_current:
            progress.halt("rebuilding from the first event")
            progress.rebuild_wanted.clear()
            refusals.clear()
            context.logger.info("rebuilding", wanted=wanted, current=loaded.is_current)
        projection = loaded.projection
        if wanted or not loaded.is_current or projection.position == 0:
            await _require_replaceable(context, projection.position, loaded.event_id)
            head = await context.log.head()
            after = None if wanted else projection.position
            try:
                if not await rebuild_tables(context, after, head.last_seq):
                    await writer.clear(after)
            except BaseException:
                if wanted:  # the next session must not forget the request
                    progress.rebuild_wanted.set()
                raise
            progress.may_discard = False
            loaded = await load_projection(writer)
            projection = loaded.projection
        await _require_same_log(context.log, projection.position, loaded.event_id)
        progress.head = (await context.log.head()).last_seq
        progress.committed(projection.position, "")
        progress.has_folded = True
        progress.going_on()
        context.logger.info(
            "projection_loaded",
            position=projection.position,
            head=progress.head,
            aggregates=projection.aggregate_count,
            pods=len(projection.pods.living),
            nodes=len(projection.nodes.figures),
        )
        yield Session(context, writer, projection, refusals)
    finally:
        await writer.close()


async def _require_replaceable(context: ProjectorContext, position: int, event_id: str) -> None:
    """Check that the log has all facts of the tables, which may be their last copy, unless an operator gives them up.

    Raises:
        LogChanged: The log does not have the last one.
        HistoryGone: The log, with its archive, does not have the first one.
    """
    if position and not context.progress.may_discard:
        await _require_same_log(context.log, position, event_id)
        async for _ in context.log.history(0, 1):
            return


async def _require_same_log(log: EventLog, position: int, event_id: str) -> None:
    """Check that the log has the last folded event at its position."""
    head = await log.head()
    if position > head.last_seq:
        raise LogChanged(f"the log ends at {head.last_seq}, the tables hold facts up to {position}")
    if position < head.first_seq:  # nothing to compare with; following tells whether something is missing
        return
    async for batch in log.history(position - 1, position):
        if (found := id_in_tables(batch[0])) != event_id:
            raise LogChanged(f"the fact at position {position} is {found}, not {event_id} as folded")


LOOK_SECONDS: Final = 2.0
"""Real seconds between two checks for a recorded skip."""


async def wait_for_skip(session: Session, events: Sequence[StoredEvent], unreadable: UnreadableEvent) -> None:
    """Wait until an operator orders to skip the event that is next in the session. Then fold and commit the rest of the
    batch.

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
