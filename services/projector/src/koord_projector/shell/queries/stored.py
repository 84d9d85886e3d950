"""Convert rows of `events` and `explanations` to stored events."""

from typing import Any

from koordcore.events import CATALOGUE
from koordcore.events.envelope import (
    HEADER_ACTOR,
    HEADER_BASED_ON,
    HEADER_ID,
    HEADER_OCCURRED_AT,
    HEADER_SCHEMA,
    HEADER_TRACEPARENT,
    HEADER_TYPE,
    AggregateRef,
    StoredEvent,
)
from sqlalchemy import Row


def stored_fact(row: Row[Any]) -> StoredEvent:
    """Convert a row of the table `events` to a stored event."""
    return _stored(row, AggregateRef(row.kind, row.id), row.schema)


def stored_explanation(row: Row[Any]) -> StoredEvent:
    """Convert a row of the table `explanations` to a stored event. It has no schema version."""
    known = CATALOGUE.find(row.type)
    return _stored(row, AggregateRef("pod", row.uid), known.schema if known is not None else 1)


def _stored(row: Row[Any], ref: AggregateRef, schema: int) -> StoredEvent:
    headers = {
        HEADER_ID: row.event_id,
        HEADER_TYPE: row.type,
        HEADER_SCHEMA: str(schema),
        HEADER_ACTOR: row.actor,
        HEADER_OCCURRED_AT: row.occurred_at,
        HEADER_BASED_ON: str(row.based_on),
        HEADER_TRACEPARENT: row.traceparent,
    }
    return StoredEvent(row.seq, ref, headers, row.body.encode())
