"""The feed of facts, which are read while a batch is written, and the position of the newest fact of the log."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Final, cast

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.ending import end_tasks
from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import EventLog

from koord_projector.context import Progress, ProjectorContext
from koord_projector.store.database import first_line

QUEUED_BATCHES: Final = 4
LOG_ERRORS: Final = (NoAnswer, NotConnected, TimeoutError)
"""Errors while the log is unavailable."""


class RebuildWanted(Exception):
    """An operator requested to delete the tables and fold the log again from the first event."""


class FactFeed:
    """Facts in the order of the log. A task fills it while a batch is written. `open_feed` creates it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._queue: asyncio.Queue[list[StoredEvent]] = asyncio.Queue(QUEUED_BATCHES)
        self._reader: asyncio.Task[None] | None = None

    async def take(self, limit: int) -> list[StoredEvent]:
        """Wait for facts, and return all that have arrived, about `limit` at most.

        Raises:
            RebuildWanted: An operator requested a rebuild.
            Exception: The error that ended the reading of the log.
        """
        events = await self._first()
        while len(events) < limit and not self._queue.empty():
            events.extend(self._queue.get_nowait())
        return events

    async def _first(self) -> list[StoredEvent]:
        assert self._reader is not None, "the feed is open"
        if self._progress.rebuild_wanted.is_set():
            raise RebuildWanted
        if not self._queue.empty():
            return list(self._queue.get_nowait())
        getting = asyncio.ensure_future(self._queue.get())
        wanted = asyncio.ensure_future(self._progress.rebuild_wanted.wait())
        try:
            await asyncio.wait((getting, wanted, self._reader), return_when=asyncio.FIRST_COMPLETED)
            if self._progress.rebuild_wanted.is_set():
                raise RebuildWanted
            if not getting.done():
                self._reader.result()
                raise AssertionError("the follower of the log ended by itself")
            return list(getting.result())
        finally:
            getting.cancel()
            wanted.cancel()

    async def read(self, log: EventLog, after: int) -> None:
        async with aclosing(cast("AsyncGenerator[list[StoredEvent]]", log.follow(after))) as batches:
            async for batch in batches:
                await self._queue.put(batch)

    def start(self, log: EventLog, after: int) -> "asyncio.Task[None]":
        self._reader = asyncio.create_task(self.read(log, after), name="projector-reader")
        return self._reader


@asynccontextmanager
async def open_feed(log: EventLog, after: int, progress: Progress) -> AsyncGenerator[FactFeed]:
    """Facts after position `after`, until the end of the block. `progress` tells of a requested rebuild."""
    feed = FactFeed(progress)
    reader = feed.start(log, after)
    try:
        yield feed
    finally:
        await end_tasks(reader)


async def watch_head(context: ProjectorContext) -> None:
    """Once a second, update `progress.head` and the lag, until cancelled."""
    progress = context.progress
    while True:
        try:
            progress.head = max(progress.position, (await context.log.head()).last_seq)
            progress.look()
        except LOG_ERRORS as error:
            context.logger.debug("log_away", error=first_line(error))
        context.metrics.lag(progress.head - progress.position, progress.lag_seconds(context.clock.now()))
        await asyncio.sleep(1.0)
