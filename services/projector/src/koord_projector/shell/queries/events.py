"""Facts of the log: pages from new to old, and new facts for live tails."""

from typing import Any

import msgspec
from koordcore.events.envelope import trace_id_of
from koordcore.stories.sentences import summarize
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.shell.queries.answers import EventItem, EventsAnswer

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
