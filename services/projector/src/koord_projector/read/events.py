"""Facts of the log: pages from new to old, and the live tail of committed facts as server-sent events.

A slow reader of the live tail misses facts and does not delay others.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

import msgspec
from koordcore.events.envelope import trace_id_of
from koordcore.stories.sentences import summarize
from koordcore.values import codec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from koord_projector.read.answers import EventItem, EventsAnswer
from koord_projector.read.endpoint import Parameter, number_of, refusal
from koord_projector.store.database import READ_ERRORS, Database

MAX_PAGE = 500
SCANNED = 200_000
"""Largest number of facts that are searched for one page. The next page continues from there."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Condition on facts: aggregate kind, aggregate id and event type. An empty field matches all."""

    kind: str = ""
    id: str = ""
    type: str = ""


async def page_events(
    connection: AsyncConnection, wanted: EventFilter, *, before: int | None, after: int, limit: int, bodies: bool
) -> EventsAnswer:
    """Return a page of facts, newest first.

    Unless the condition names one aggregate, at most 200,000 positions are searched for one page. So a page may have
    fewer facts than `limit`, even none, although older facts match. Then `before` of the answer is the place to go on.

    Args:
        connection: Read transaction.
        wanted: Condition on the facts.
        before: Only facts with a lower position; None: all.
        after: Only facts with a higher position.
        limit: Largest number of facts.
        bodies: Whether the bodies are included.
    """
    position = (await connection.execute(text("SELECT position FROM projection WHERE stream = 'ev'"))).scalar() or 0
    end = position + 1 if before is None else min(before, position + 1)
    of_one = bool(wanted.kind and wanted.id)
    floor = after if of_one else max(after, end - SCANNED)
    conditions = ["seq > :floor", "seq < :end"]
    conditions += [f"{name} = :{name}" for name in ("kind", "id", "type") if getattr(wanted, name)]
    statement = f"SELECT * FROM events WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT :limit"  # noqa: S608
    values: dict[str, Any] = {"floor": floor, "end": end, "limit": limit, **msgspec.to_builtins(wanted)}
    rows = (await connection.execute(text(statement), values)).all()
    items = [event_item(row, with_body=bodies) for row in rows]
    if len(rows) == limit:
        older: int | None = rows[-1].seq
    else:
        older = floor + 1 if floor > after else None
    return EventsAnswer(position=position, events=items, before=older)


async def find_event(connection: AsyncConnection, seq: int) -> EventItem | None:
    """Return the fact at a position, with its body; None if there is none."""
    row = (await connection.execute(text("SELECT * FROM events WHERE seq = :seq"), {"seq": seq})).first()
    return None if row is None else event_item(row, with_body=True)


def event_item(row: Row[Any], *, with_body: bool) -> EventItem:
    """Convert a row of the table `events` to the form of the read API."""
    body: dict[str, Any] = msgspec.json.decode(row.body)
    return EventItem(
        seq=row.seq,
        kind=row.kind,
        id=row.id,
        type=row.type,
        schema=row.schema,
        occurred_at=row.occurred_at,
        event_id=row.event_id,
        causation_id=row.causation_id,
        correlation_id=row.correlation_id,
        actor=row.actor,
        epoch=row.epoch,
        based_on=row.based_on,
        trace_id=trace_id_of(row.traceparent),
        summary=summarize(row.type, row.kind, row.id, body),
        body=body if with_body else None,
    )


AT_ONCE: Final = 100
"""Largest number of facts in one message. If there are more, only the newest are sent, and how many were skipped."""
REST_SECONDS: Final = 0.25
"""Real seconds between two messages to one reader."""
QUIET_SECONDS: Final = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the connection."""
MAX_READERS: Final = 50
_AFTER: Final = Parameter(name="after", about="", minimum=0, maximum=2**62)
_NEWEST: Final = text("SELECT * FROM events WHERE seq > :after ORDER BY seq DESC LIMIT :limit")


class LiveTail:
    """Sends committed facts to readers of `/api/events/stream` as server-sent events.

    Args:
        news: Waits for the next commit.
        position: Returns the position of the newest committed fact.
        head: Returns the position of the newest fact in the log.
        stopped: Waits until the service begins to stop.
    """

    def __init__(
        self,
        database: Database,
        *,
        news: Callable[[], Awaitable[None]],
        position: Callable[[], int],
        head: Callable[[], int],
        stopped: Callable[[], Awaitable[None]],
    ) -> None:
        self._database = database
        self._news = news
        self._position = position
        self._head = head
        self._stopped = stopped
        self._readers = 0

    async def events_stream(self, request: Request) -> Response:
        """Send facts to one reader until it disconnects.

        It begins behind the position in the header `Last-Event-ID`, else behind the parameter `after`, else behind the
        newest fact. If the log still ends before that position after 15 seconds, another log has replaced it, and the
        newest fact counts. If 50 readers are connected already, the status is 503.
        """
        if self._readers >= MAX_READERS:
            return refusal(503, f"{MAX_READERS} live tails are open already")
        after = number_of(request.query_params, _AFTER)
        resumed = request.headers.get("last-event-id", "")
        if resumed.isascii() and resumed.isdigit() and len(resumed) < 19:
            after = int(resumed)
        start = self._position() if after is None else after
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._messages(start), headers=headers, media_type="text/event-stream")

    async def _messages(self, after: int) -> AsyncGenerator[bytes]:
        self._readers += 1
        loop = asyncio.get_running_loop()
        certain = loop.time() + QUIET_SECONDS
        stopping = asyncio.ensure_future(self._stopped())
        try:
            yield b"retry: 2000\n\n"
            while not stopping.done():
                if loop.time() >= certain and 0 < max(self._head(), self._position()) < after:
                    after = self._position()
                if self._position() <= after:
                    news = asyncio.ensure_future(self._news())
                    try:
                        await asyncio.wait((news, stopping), timeout=QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        news.cancel()
                    if self._position() <= after:
                        yield b": still here\n\n"
                        continue
                try:
                    found = await self._read(after)
                except READ_ERRORS:
                    await asyncio.wait((stopping,), timeout=QUIET_SECONDS / 10)
                    continue
                if not found:
                    after = self._position()
                    continue
                skipped = found[0].seq - after - 1
                after = found[-1].seq
                if skipped > 0:
                    yield _message("skipped", {"skipped": skipped}, None)
                yield _message("facts", found, after)
                await asyncio.wait((stopping,), timeout=REST_SECONDS)
        finally:
            self._readers -= 1
            stopping.cancel()

    async def _read(self, after: int) -> list[EventItem]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(_NEWEST, {"after": after, "limit": AT_ONCE})).all()
        return [event_item(row, with_body=False) for row in reversed(rows)]


def _message(event: str, data: object, seq: int | None) -> bytes:
    head = f"event: {event}\n" + ("" if seq is None else f"id: {seq}\n")
    return head.encode() + b"data: " + codec.encode(data) + b"\n\n"
