"""Archive observations and explanations in Postgres, each stream with its position.

The streams keep messages for a limited time (two hours, twenty explanations per pod). The archive keeps them, so last
week can be replayed. A message that cannot be decoded, or that Postgres refuses, is counted and skipped.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from koordcore.bus.read.report_gate import ReportGate
from koordcore.events.envelope import StoredEvent
from koordcore.events.observation import NodeUsageReported
from koordcore.ports.eventlog import HistoryGone, ObservationLog
from koordcore.service.telemetry.logging import Logger
from koordcore.stories.usage_archive import report_time

from koord_projector.context import Progress, ProjectorMetrics
from koord_projector.fold.archives import LONGEST_TOKEN, explanation_row
from koord_projector.projecting.feed import LOG_ERRORS
from koord_projector.projecting.recovery import Moves, session_backoff
from koord_projector.store.database import REFUSED, WRITE_ERRORS, first_line
from koord_projector.store.positions import EXPLANATIONS, OBSERVATIONS, Moved
from koord_projector.store.writer import Writer

Store = Callable[["Archive", Writer, int, Sequence[StoredEvent]], Awaitable[int]]
"""Function (archive, writer, position before, messages) -> number of stored messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One stream (observations or explanations) and where it is archived."""

    stream: str  # Name of the stream in the table `projection`
    source: ObservationLog  # The stream
    dsn: str  # Address of the database
    store: Store  # Writes one batch of messages
    batch: int  # Largest number of messages in a batch
    gate: ReportGate  # Reads reports as all services do
    progress: Progress  # Progress of the projector
    metrics: ProjectorMetrics  # The projector's metrics
    logger: Logger  # The projector's logger


async def keep_archive(archive: Archive) -> None:
    """Archive a stream until cancelled. After an error, continue at the position that Postgres has."""
    backoff, moves = session_backoff(), Moves()

    def stored() -> None:
        backoff.reset()
        moves.committed()

    while True:
        try:
            writer = await Writer.open(archive.dsn)
            try:
                await _follow(archive, writer, stored)
            finally:
                await writer.close()
        except (Moved, HistoryGone) as moved:
            await moves.after(moved, archive.logger, "archive_moved", stream=archive.stream)
        except (*WRITE_ERRORS, *LOG_ERRORS) as error:
            archive.logger.warning("archive_waits", stream=archive.stream, error=first_line(error))
            await backoff.wait()


async def _follow(archive: Archive, writer: Writer, stored: Callable[[], None]) -> None:
    """`stored` is called after each batch."""
    position = await writer.position_of(archive.stream)
    if position > (await archive.source.head()).last_seq:
        archive.logger.warning("stream_made_again", stream=archive.stream, position=position)
        await writer.begin_stream_again(archive.stream)
        position = 0
    _note(archive, position)
    follow = archive.source.follow(position, batch=archive.batch)
    async with aclosing(cast("AsyncGenerator[list[StoredEvent]]", follow)) as batches:
        async for batch in batches:
            kept, position = await _stored(archive, writer, position, batch)
            stored()
            _note(archive, batch[-1].seq)
            archive.metrics.archived(archive.stream, kept, len(batch) - kept)


async def _stored(archive: Archive, writer: Writer, after: int, batch: Sequence[StoredEvent]) -> tuple[int, int]:
    """Store a batch; if Postgres refuses it, message by message without those that it refuses.

    Return the number of stored messages, and the position of the stream that the database has now. `after`: the one
    that it has before.
    """
    try:
        return await archive.store(archive, writer, after, batch), batch[-1].seq
    except REFUSED as error:
        if len(batch) == 1:
            archive.logger.warning("message_refused", stream=archive.stream, seq=batch[0].seq, reason=first_line(error))
            return 0, after
    kept = 0
    for message in batch:
        count, after = await _stored(archive, writer, after, [message])
        kept += count
    return kept, after


def _note(archive: Archive, position: int) -> None:
    if archive.stream == OBSERVATIONS:
        archive.progress.observations = position
    else:
        archive.progress.explanations = position


async def store_reports(archive: Archive, writer: Writer, after: int, batch: Sequence[StoredEvent]) -> int:
    """Return the number of stored reports. Other messages are left out, and reports that the gate passes over, such as
    those that are dated ahead. `after`: position of the stream that the database must have now.
    """
    reports: list[tuple[StoredEvent, NodeUsageReported, str]] = []
    for stored in batch:
        event = archive.gate.read(stored)
        if event is None or len(stored.ref.id) > LONGEST_TOKEN:
            continue
        reported_at = report_time(event)
        if reported_at is not None:
            reports.append((stored, event, reported_at))
    await writer.archive_reports(after, batch[-1].seq, reports)
    return len(reports)


async def store_explanations(_archive: Archive, writer: Writer, after: int, batch: Sequence[StoredEvent]) -> int:
    """Return the number of stored explanations. Messages without a row (`explanation_row`) are left out."""
    rows = [row for row in map(explanation_row, batch) if row is not None]
    await writer.archive_explanations(after, batch[-1].seq, rows)
    return len(rows)


STORES: dict[str, Store] = {OBSERVATIONS: store_reports, EXPLANATIONS: store_explanations}
