"""Convert rows of `events` and `explanations` to stored events."""

from typing import Any, Final

from koordcore.events import CATALOGUE, envelope
from sqlalchemy import Row

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
