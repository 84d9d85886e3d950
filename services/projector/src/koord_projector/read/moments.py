"""The query parameter `at`: a position or a time, resolved to a moment; and stored events from their rows.

A time means the newest fact with `occurred_at <= t`. Among facts with the same time it is the last one in the log.
"""

from datetime import datetime
from typing import Any, Final

import msgspec
from koordcore.events import CATALOGUE, envelope
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

END_OF_TIME = "~"
"""Text that is greater than any time's text."""

_DROPPED = "older facts were dropped from Postgres, `koord replay --to` reads them from the archive"
_POSITION = text("SELECT position FROM projection WHERE stream = 'ev'")
_FIRST = text("SELECT seq FROM events ORDER BY seq LIMIT 1")
_AT_POSITION = text("SELECT seq, occurred_at FROM events WHERE seq <= :seq ORDER BY seq DESC LIMIT 1")
_AT_TIME = text(
    """
    SELECT seq, occurred_at FROM events WHERE left(occurred_at, 27) <= :time
     ORDER BY left(occurred_at, 27) DESC, seq DESC LIMIT 1
    """
)


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The point of the log that an answer describes.

    Attributes:
        position: Position of the newest fact up to it; 0: before the first fact.
        occurred_at: Time of that fact; "" at 0.
        live: Whether it is the present, because the request named no moment.
    """

    position: int
    occurred_at: str
    live: bool

    @property
    def until(self) -> str:
        """RFC 3339 time up to which reports and explanations belong to the moment; `END_OF_TIME` for the present."""
        return END_OF_TIME if self.live else self.occurred_at


async def resolve(connection: AsyncConnection, at: str | None) -> Moment:
    """Return the moment that the query parameter `at` names; None or "" gives the present.

    Raises:
        InvalidInput: The text is neither a folded position nor an RFC 3339 time with a zone, or the facts of the moment
            were dropped (`shell.fact_retention`).
    """
    position = (await connection.execute(_POSITION)).scalar() or 0
    if not at:
        row = (await connection.execute(_AT_POSITION, {"seq": position})).first()
        return Moment(position=position, occurred_at=row.occurred_at if row else "", live=True)
    kept = ((await connection.execute(_FIRST)).scalar() or 1) - 1
    if at.isascii() and at.isdigit():
        seq = int(at) if len(at) < 19 else position + 1
        if seq > position:
            raise InvalidInput(f"a position up to {position}, or an RFC 3339 time", at, "at")
        if seq < kept:
            raise InvalidInput(f"a position from {kept} on: {_DROPPED}", at, "at")
        row = (await connection.execute(_AT_POSITION, {"seq": seq})).first()
        return Moment(position=seq, occurred_at=row.occurred_at if row else "", live=False)
    row = (await connection.execute(_AT_TIME, {"time": normal_time(at, "at")})).first()
    if row is None and kept:
        raise InvalidInput(f"a time after the oldest fact that is kept, at position {kept + 1}: {_DROPPED}", at, "at")
    return Moment(position=row.seq if row else 0, occurred_at=row.occurred_at if row else "", live=False)


def normal_time(given: str, parameter: str) -> str:
    """Return an RFC 3339 time in the form of the events, whose text order is time order.

    Raises:
        InvalidInput: The text is not an RFC 3339 time with a zone. The error names the parameter.
    """
    try:
        moment = datetime.fromisoformat(given)
        if moment.tzinfo is None:
            raise ValueError
        return rfc3339(moment)
    except (ValueError, OverflowError):
        rule = "a position (digits) or an RFC 3339 time with its zone"
        raise InvalidInput(rule, given, parameter) from None


_COLUMNS: Final = {
    envelope.HEADER_ID: "event_id",
    envelope.HEADER_TYPE: "type",
    envelope.HEADER_CAUSATION: "causation_id",
    envelope.HEADER_CORRELATION: "correlation_id",
    envelope.HEADER_ACTOR: "actor",
    envelope.HEADER_OCCURRED_AT: "occurred_at",
    envelope.HEADER_BASED_ON: "based_on",
    envelope.HEADER_TRACEPARENT: "traceparent",
}
"""Header -> its column. A query selects the columns that its reader needs."""


def stored_fact(row: Row[Any]) -> envelope.StoredEvent:
    """Convert a row of the table `events` to a stored event, with the headers whose columns were selected."""
    return _stored(row, envelope.AggregateRef(row.kind, row.id), row.schema)


def stored_explanation(row: Row[Any]) -> envelope.StoredEvent:
    """Convert a row of the table `explanations` to a stored event. It has no schema version."""
    known = CATALOGUE.find(row.type)
    return _stored(row, envelope.AggregateRef("pod", row.uid), known.schema if known is not None else 1)


def _stored(row: Row[Any], ref: envelope.AggregateRef, schema: int) -> envelope.StoredEvent:
    headers = {header: str(getattr(row, column)) for header, column in _COLUMNS.items() if hasattr(row, column)}
    headers[envelope.HEADER_SCHEMA] = str(schema)
    return envelope.StoredEvent(row.seq, ref, headers, row.body.encode(), getattr(row, "stored_at_ns", 0))
