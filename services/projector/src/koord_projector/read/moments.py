"""Moments: the parameter `at` (a position or a time), and the states of aggregates as of a moment.

A time means the last fact that the server had stored by then, with all facts before it: `events.reached_ns <= t`. It is
the position that `koordcore.bus.folds.replay.position_at_time` finds in the log. No clock of a writer counts.

The present state is in `aggregates`. An earlier state is the newest row of `aggregate_versions` before it, and at most
31 events that are folded onto it with `evolve` (`fold.lives`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from koordcore.events import CATALOGUE, envelope
from koordcore.ports.clock import Clock
from koordcore.service.clock import SystemClock, host_moment
from koordcore.state.cluster import decode_state, evolve
from koordcore.state.fold import AggregateState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339, unix_nanos
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

END_OF_TIME: Final = 2**63 - 1
"""Nanoseconds since 1970, and position, that are greater than any other."""

HOST: Final = SystemClock()
"""Clock of a run that is not scaled."""
_DROPPED = "older facts were dropped from Postgres, `koord replay --to` reads them from the archive"
_POSITION = text("SELECT position FROM projection WHERE stream = 'ev'")
_FIRST = text("SELECT seq FROM events ORDER BY seq LIMIT 1")
_AT_POSITION = text("SELECT seq, occurred_at, reached_ns FROM events WHERE seq <= :seq ORDER BY seq DESC LIMIT 1")
_AT_TIME = text(
    """
    SELECT seq, occurred_at, reached_ns FROM events WHERE reached_ns <= :nanos
     ORDER BY reached_ns DESC, seq DESC LIMIT 1
    """
)


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The point of the log that an answer describes.

    Attributes:
        position: Position of the newest fact up to it; 0: before the first fact.
        occurred_at: Time of that fact as its writer says; "" at 0.
        stored_at_ns: Time by which the server had stored it and all facts before it, in nanoseconds since 1970; 0 at 0.
        live: Whether it is the present, because the request named no moment.
    """

    position: int
    occurred_at: str
    stored_at_ns: int
    live: bool

    @property
    def until_ns(self) -> int:
        """Time of storing up to which usage reports belong to the moment; `END_OF_TIME` for the present."""
        return END_OF_TIME if self.live else self.stored_at_ns

    @property
    def based_until(self) -> int:
        """Position up to which writers of explanations that belong to the moment had folded; see `until_ns`."""
        return END_OF_TIME if self.live else self.position


PRESENT: Final = Moment(position=0, occurred_at="", stored_at_ns=0, live=True)
"""The present without its position, for answers that are about no moment."""


def _moment(position: int, row: Row[Any] | None, *, live: bool = False) -> Moment:
    """`row`: the newest fact up to the position; None: there is none."""
    if row is None:
        return Moment(position=position, occurred_at="", stored_at_ns=0, live=live)
    return Moment(position=position, occurred_at=row.occurred_at, stored_at_ns=row.reached_ns, live=live)


async def resolve(connection: AsyncConnection, at: str | None, clock: Clock = HOST) -> Moment:
    """Return the moment that the parameter `at` names; None or "" gives the present. `clock`: clock of the run, by
    which a time is named.

    Raises:
        InvalidInput: The text is neither a folded position nor an RFC 3339 time with a zone, or the facts of the moment
            were dropped (`retention`).
    """
    position = (await connection.execute(_POSITION)).scalar() or 0
    if not at:
        row = (await connection.execute(_AT_POSITION, {"seq": position})).first()
        return _moment(position, row, live=True)
    kept = ((await connection.execute(_FIRST)).scalar() or 1) - 1
    if at.isascii() and at.isdigit():
        seq = int(at) if len(at) < 19 else position + 1
        if seq > position:
            raise InvalidInput(f"a position up to {position}, or an RFC 3339 time", at, "at")
        if seq < kept:
            raise InvalidInput(f"a position from {kept} on: {_DROPPED}", at, "at")
        row = (await connection.execute(_AT_POSITION, {"seq": seq})).first()
        return _moment(seq, row)
    nanos = unix_nanos(host_moment(clock, datetime.fromisoformat(normal_time(at, "at"))))
    row = (await connection.execute(_AT_TIME, {"nanos": nanos})).first()
    if row is None and kept:
        raise InvalidInput(f"a time after the oldest fact that is kept, at position {kept + 1}: {_DROPPED}", at, "at")
    return _moment(row.seq if row else 0, row)


def normal_time(given: str, parameter: str) -> str:
    """Return an RFC 3339 time in the form of the events, whose text order is time order.

    Raises:
        InvalidInput: It is not one with a zone. The error names the parameter.
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
    """With the headers whose columns were selected."""
    return _stored(row, envelope.AggregateRef(row.kind, row.id), row.schema)


def stored_explanation(row: Row[Any]) -> envelope.StoredEvent:
    """The table has no schema version."""
    known = CATALOGUE.find(row.type)
    return _stored(row, envelope.AggregateRef("pod", row.uid), known.schema if known is not None else 1)


def _stored(row: Row[Any], ref: envelope.AggregateRef, schema: int) -> envelope.StoredEvent:
    headers = {header: str(getattr(row, column)) for header, column in _COLUMNS.items() if hasattr(row, column)}
    headers[envelope.HEADER_SCHEMA] = str(schema)
    return envelope.StoredEvent(row.seq, ref, headers, row.body.encode(), getattr(row, "stored_at_ns", 0))


_BASES = text(
    """
    SELECT w.id, l.from_seq, v.seq, v.state FROM unnest(CAST(:ids AS text[])) AS w(id)
     CROSS JOIN LATERAL (
           SELECT from_seq FROM aggregates WHERE kind = :kind AND id = w.id AND from_seq <= :position
            UNION ALL
           SELECT from_seq FROM (
                  SELECT from_seq, to_seq FROM aggregate_lives
                   WHERE kind = :kind AND id = w.id AND from_seq <= :position ORDER BY from_seq DESC LIMIT 1
           ) AS newest WHERE to_seq > :position
     ) AS l
      LEFT JOIN LATERAL (
           SELECT seq, state FROM aggregate_versions
            WHERE kind = :kind AND id = w.id AND seq >= l.from_seq AND seq <= :position ORDER BY seq DESC LIMIT 1
     ) AS v ON true
    """
)
"""The aggregates that exist at a position: the begin of their life and the newest version of their state."""


_EVENTS_SINCE = text(
    """
    SELECT e.* FROM unnest(CAST(:ids AS text[]), CAST(:after AS bigint[])) AS w(id, after)
     CROSS JOIN LATERAL (
           SELECT seq, kind, id, type, schema, occurred_at, stored_at_ns, event_id, causation_id, correlation_id, actor,
                  body
             FROM events WHERE kind = :kind AND id = w.id AND seq > w.after AND seq <= :position ORDER BY seq
     ) AS e
    """
)


# OFFSET 0 keeps the planner from a join that reads all lives that began before the position.
_LIVING_THEN = """
    SELECT kind, id FROM aggregates WHERE from_seq <= :position AND {condition}
     UNION ALL
    SELECT l.kind, l.id FROM generate_series(1, 62) AS s(span)
     CROSS JOIN LATERAL (
           SELECT kind, id FROM aggregate_lives
            WHERE span = s.span AND from_seq <= :position AND from_seq > :position - (CAST(1 AS bigint) << s.span)
              AND to_seq > :position AND {condition}
            OFFSET 0
     ) AS l
"""


def living_then(condition: str) -> str:
    """Return a statement that selects kind and id of the aggregates that exist at `:position`.

    The index by length of a life (`fold.lives.span_of`) finds the ended ones among all that ever existed. So the
    condition must compare `kind`, which begins the index.
    """
    return _LIVING_THEN.format(condition=condition)


_STATES_NOW = text("SELECT id, state FROM aggregates WHERE kind = :kind AND id = ANY(:ids)")


_PREFIXED = "kind = :kind AND starts_with(id, :prefix) AND id > :after"
_PREFIXED_NOW = text(f"SELECT id FROM aggregates WHERE {_PREFIXED} ORDER BY id LIMIT :limit")  # noqa: S608  constants
_PREFIXED_THEN = text(f"SELECT id FROM ({living_then(_PREFIXED)}) AS q ORDER BY id LIMIT :limit")  # noqa: S608


async def state_at(connection: AsyncConnection, moment: Moment, kind: str, id_: str) -> dict[str, Any] | None:
    """The state of one aggregate as JSON; None if it does not exist at the moment."""
    if moment.live:
        row = (
            await connection.execute(
                text("SELECT state FROM aggregates WHERE kind = :kind AND id = :id"), {"kind": kind, "id": id_}
            )
        ).first()
        return None if row is None else msgspec.json.decode(row.state)
    state = (await _states_then(connection, moment, kind, [id_])).get(id_)
    return None if state is None else msgspec.json.decode(codec.encode_canonical(state))


async def states_at(
    connection: AsyncConnection, moment: Moment, kind: str, ids: Sequence[str]
) -> dict[str, AggregateState]:
    """Id -> state. Aggregates that do not exist at the moment are left out."""
    asked = {"kind": kind, "ids": list(ids), "position": moment.position}
    if moment.live:
        rows = await connection.execute(_STATES_NOW, asked)
        return {row.id: decode_state(kind, row.state) for row in rows}
    return await _states_then(connection, moment, kind, ids)


async def _states_then(
    connection: AsyncConnection, moment: Moment, kind: str, ids: Sequence[str]
) -> dict[str, AggregateState]:
    """The newest version up to the moment, and the events since then."""
    asked = {"kind": kind, "ids": list(ids), "position": moment.position}
    bases = (await connection.execute(_BASES, asked)).all()
    states: dict[str, AggregateState | None] = {
        row.id: None if row.state is None else decode_state(kind, row.state) for row in bases
    }
    after = [row.from_seq - 1 if row.seq is None else row.seq for row in bases]
    for row in await connection.execute(_EVENTS_SINCE, {**asked, "ids": list(states), "after": after}):
        states[row.id] = _evolved(states[row.id], row)
    return {id_: state for id_, state in states.items() if state is not None}


async def ids_with_prefix(
    connection: AsyncConnection, moment: Moment, ref: envelope.AggregateRef, *, after: str, limit: int
) -> list[str]:
    """A page of ids at the moment, ascending. `ref`: kind of the aggregates, and the first characters of their ids."""
    asked = {"kind": ref.kind, "prefix": ref.id, "after": after, "limit": limit, "position": moment.position}
    rows = await connection.execute(_PREFIXED_NOW if moment.live else _PREFIXED_THEN, asked)
    return [row.id for row in rows]


def _evolved(state: AggregateState | None, row: Row[Any]) -> AggregateState | None:
    stored = stored_fact(row)
    event = CATALOGUE.read(stored)
    return state if event is None else evolve(state, event, stored)
