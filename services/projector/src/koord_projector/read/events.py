"""Facts of the log: pages from new to old, and the live tail of committed facts as server-sent events.

A slow reader of the live tail misses facts and does not delay others.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec
from koordcore.events.envelope import trace_id_of
from koordcore.stories.sentences import summarize
from koordcore.values import codec
from sqlalchemy import Row, text
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from koord_projector.read.endpoint import After, Before, Position, Query, Reading, Text, about, one_of, refusal
from koord_projector.store.database import READ_ERRORS, Database

_ONE: Final = text("SELECT * FROM events WHERE seq = :seq")
SCANNED = 200_000
"""Largest number of facts that are searched for one page. The next page continues from there."""
_READ_FOR_TEXT: Final = 20_000
"""As `SCANNED`, if the bodies are searched for a text; of one aggregate, so many of its facts."""
_TOO_OLD: Final = text(
    """
    SELECT seq FROM events WHERE kind = :kind AND id = :id AND seq > :after AND seq < :end
     ORDER BY seq DESC OFFSET :most LIMIT 1
    """
)


class EventItem(msgspec.Struct, frozen=True, kw_only=True):
    """One fact of the log. In lists, `body` is null unless the request asks for bodies.

    Attributes:
        seq: Position of the fact. `kind` and `id` name its aggregate.
        based_on: Position up to which its writer had folded the log; `epoch` is the term of that writer.
        summary: The fact in one line.
    """

    seq: int
    kind: str
    id: str
    type: str
    schema: int
    occurred_at: str
    event_id: str
    causation_id: str
    correlation_id: str
    actor: str
    epoch: int
    based_on: int
    trace_id: str
    summary: str
    body: dict[str, Any] | None = None


class EventsQuery(Query, frozen=True, kw_only=True):
    """An empty field matches all."""

    kind: Annotated[Text, about("Only facts of this kind of aggregate.")] = ""
    id: Annotated[Text, about("Only facts of this aggregate.")] = ""
    type: Annotated[Text, about("Only facts of this type.")] = ""
    without: Annotated[Text, about("Only facts of other kinds than these, separated by commas.")] = ""
    text: Annotated[Text, about("Only facts whose id or body contains this text.")] = ""
    before: Before | None = None
    after: After = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=500), about("Facts per page.")] = 100
    bodies: Annotated[Text, one_of("true", "false"), about("Whether bodies are wanted.")] = ""


class EventsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of facts, newest first.

    Attributes:
        position: Position of the newest committed fact.
        before: Value of the parameter `before` for the next page; null if there is none. A page with few or no facts
            may have a next page.
    """

    position: int
    events: list[EventItem]
    before: int | None


async def page_events(reading: Reading, query: EventsQuery) -> EventsAnswer:
    """A page of facts, newest first.

    At most 200,000 positions are searched for one page, with `text` 20,000. If the condition names one aggregate, all
    its facts are searched, with `text` 20,000. So a page may have fewer facts than `limit`, even none, although older
    facts match. Then `before` of the answer is the place to go on.
    """
    connection, before, after, limit = reading.connection, query.before, query.after, query.limit
    position = (await connection.execute(text("SELECT position FROM projection WHERE stream = 'ev'"))).scalar() or 0
    end = position + 1 if before is None else min(before, position + 1)
    if not (query.kind and query.id):
        floor = max(after, end - (_READ_FOR_TEXT if query.text else SCANNED))
    elif query.text:
        of_one = {"kind": query.kind, "id": query.id, "after": after, "end": end, "most": _READ_FOR_TEXT}
        floor = (await connection.execute(_TOO_OLD, of_one)).scalar() or after
    else:
        floor = after
    conditions = ["seq > :floor", "seq < :end"]
    wanted: dict[str, Any] = {name: value for name in ("kind", "id", "type") if (value := getattr(query, name))}
    conditions += [f"{name} = :{name}" for name in wanted]
    if query.without:
        conditions.append("kind <> ALL(CAST(:without AS text[]))")
        wanted["without"] = [kind.strip() for kind in query.without.split(",")]
    if query.text:
        conditions.append("(position(:text in id) > 0 OR position(:text in body) > 0)")
        wanted["text"] = query.text
    statement = f"SELECT * FROM events WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT :limit"  # noqa: S608
    values: dict[str, Any] = {"floor": floor, "end": end, "limit": limit, **wanted}
    rows = (await connection.execute(text(statement), values)).all()
    items = [event_item(row, with_body=query.bodies == "true") for row in rows]
    if len(rows) == limit:
        older: int | None = rows[-1].seq
    else:
        older = floor + 1 if floor > after else None
    return EventsAnswer(position=position, events=items, before=older)


class EventQuery(Query, frozen=True, kw_only=True):
    seq: Annotated[Position, about("Position of the fact.")]


async def read_event(reading: Reading, query: EventQuery) -> EventItem | None:
    row = (await reading.connection.execute(_ONE, {"seq": query.seq})).first()
    return None if row is None else event_item(row, with_body=True)


def event_item(row: Row[Any], *, with_body: bool) -> EventItem:
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
_NEWEST: Final = text("SELECT * FROM events WHERE seq > :after ORDER BY seq DESC LIMIT :limit")


class StreamQuery(Query, frozen=True, kw_only=True):
    after: After | None = None  # None: behind the newest fact


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

    def stream(self, request: Request, after: int | None) -> Response:
        """Send facts to one reader until it disconnects.

        It begins behind the position in the header `Last-Event-ID`, else behind `after`, else behind the newest fact.
        If the log still ends before that position after 15 seconds, another log has replaced it, and the newest fact
        counts. If 50 readers are connected already, the status is 503.
        """
        if self._readers >= MAX_READERS:
            return refusal(503, f"{MAX_READERS} live tails are open already")
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
