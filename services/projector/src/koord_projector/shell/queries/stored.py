"""Convert rows of `events` and `explanations` to stored events."""

from typing import Any

from koordcore.events import CATALOGUE, envelope
from sqlalchemy import Row


def stored_fact(row: Row[Any]) -> envelope.StoredEvent:
    """Convert a row of the table `events` to a stored event."""
    return _stored(row, envelope.AggregateRef(row.kind, row.id), row.schema)


def stored_explanation(row: Row[Any]) -> envelope.StoredEvent:
    """Convert a row of the table `explanations` to a stored event. It has no schema version."""
    known = CATALOGUE.find(row.type)
    return _stored(row, envelope.AggregateRef("pod", row.uid), known.schema if known is not None else 1)


def _stored(row: Row[Any], ref: envelope.AggregateRef, schema: int) -> envelope.StoredEvent:
    headers = {
        envelope.HEADER_ID: row.event_id,
        envelope.HEADER_TYPE: row.type,
        envelope.HEADER_SCHEMA: str(schema),
        envelope.HEADER_ACTOR: row.actor,
        envelope.HEADER_OCCURRED_AT: row.occurred_at,
        envelope.HEADER_BASED_ON: str(row.based_on),
        envelope.HEADER_TRACEPARENT: row.traceparent,
    }
    return envelope.StoredEvent(row.seq, ref, headers, row.body.encode())
