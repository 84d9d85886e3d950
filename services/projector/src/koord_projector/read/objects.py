"""Aggregates as of a moment, folded from their events, and the hash of all aggregates.

The present state is in `aggregates`. An earlier state is the newest row of `aggregate_versions` before it, and at most
31 events that are folded onto it with `evolve` (`domain.lives`).
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from koordcore.events import CATALOGUE, envelope
from koordcore.requests.catalogue import StateHash
from koordcore.state.cluster import combine_digests, decode_state, evolve
from koordcore.state.fold import AggregateState
from koordcore.state.registry import STATE_TYPES
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.read.answers import ObjectAnswer, ObjectsAnswer
from koord_projector.read.moments import Moment, stored_fact

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
# OFFSET 0 keeps the planner from a join that reads all lives that began before the position.


def living_then(condition: str) -> str:
    """Return a statement that selects kind and id of the aggregates that exist at `:position`.

    The index by length of a life (`domain.lives.span_of`) finds the ended ones among all that ever existed.

    Args:
        condition: Condition on `kind` and `id`. It must compare `kind`, which begins the index.
    """
    return _LIVING_THEN.format(condition=condition)


_PAGE_THEN = "SELECT id FROM ({living}) AS q ORDER BY id LIMIT :limit"
_IDS_NOW = text("SELECT id, state FROM aggregates WHERE kind = :kind AND id > :after ORDER BY id LIMIT :limit")
_IDS_THEN = text(_PAGE_THEN.format(living=living_then("kind = :kind AND id > :after")))
_STATES_NOW = text("SELECT id, state FROM aggregates WHERE kind = :kind AND id = ANY(:ids)")
_PREFIXED_NOW = text(
    """
    SELECT id FROM aggregates WHERE kind = :kind AND starts_with(id, :prefix) AND id > :after ORDER BY id LIMIT :limit
    """
)
_PREFIXED_THEN = text(
    _PAGE_THEN.format(living=living_then("kind = :kind AND starts_with(id, :prefix) AND id > :after"))
)
_ROWS_AT_ONCE = 2_000


def require_kind(kind: str) -> str:
    """Return `kind` if aggregates of this kind exist.

    Raises:
        InvalidInput: There is no such kind.
    """
    if kind not in STATE_TYPES:
        raise InvalidInput(f"one of {', '.join(sorted(STATE_TYPES))}", kind, "kind")
    return kind


async def state_at(connection: AsyncConnection, moment: Moment, kind: str, id_: str) -> dict[str, Any] | None:
    """Return the state of one aggregate as JSON; None if it does not exist at the moment."""
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
    """Return id -> state of these aggregates at the moment. Aggregates that do not exist then are left out."""
    asked = {"kind": kind, "ids": list(ids), "position": moment.position}
    if moment.live:
        rows = await connection.execute(_STATES_NOW, asked)
        return {row.id: decode_state(kind, row.state) for row in rows}
    return await _states_then(connection, moment, kind, ids)


async def _states_then(
    connection: AsyncConnection, moment: Moment, kind: str, ids: Sequence[str]
) -> dict[str, AggregateState]:
    """Return id -> state at a past moment: the newest version up to it, and the events since then."""
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
    """Return a page of ids of aggregates that exist at the moment, ascending.

    Args:
        connection: Read transaction.
        moment: The moment.
        ref: Kind of the aggregates, and the first characters of their ids.
        after: Only ids after this one.
        limit: Largest number of ids.
    """
    asked = {"kind": ref.kind, "prefix": ref.id, "after": after, "limit": limit, "position": moment.position}
    rows = await connection.execute(_PREFIXED_NOW if moment.live else _PREFIXED_THEN, asked)
    return [row.id for row in rows]


async def list_objects(
    connection: AsyncConnection, moment: Moment, kind: str, *, after: str, limit: int
) -> ObjectsAnswer:
    """Return a page of aggregates of one kind by id. Aggregates that do not exist at the moment are left out.

    Args:
        connection: Read transaction.
        moment: The moment.
        kind: Kind of the aggregates.
        after: Only ids after this one.
        limit: Largest number of aggregates.
    """
    asked = {"kind": kind, "after": after, "limit": limit, "position": moment.position}
    found: list[ObjectAnswer] = []
    if moment.live:
        rows = (await connection.execute(_IDS_NOW, asked)).all()
        ids = [row.id for row in rows]
        found = [
            ObjectAnswer(moment=moment, kind=kind, id=row.id, state=msgspec.json.decode(row.state)) for row in rows
        ]
    else:
        ids = [row.id for row in await connection.execute(_IDS_THEN, asked)]
        states = await _states_then(connection, moment, kind, ids)
        for id_ in ids:
            state = states.get(id_)
            if state is not None:
                plain = msgspec.json.decode(codec.encode_canonical(state))
                found.append(ObjectAnswer(moment=moment, kind=kind, id=id_, state=plain))
    return ObjectsAnswer(moment=moment, kind=kind, objects=found, after=ids[-1] if len(ids) == limit else None)


async def aggregates_hash(connection: AsyncConnection) -> StateHash:
    """Return the hash of all aggregates in the tables, and their position.

    It equals `ClusterState.hash()` at that position, because the rows contain the canonical JSON of the states.
    """
    position = (await connection.execute(text("SELECT position FROM projection WHERE stream = 'ev'"))).scalar() or 0
    total = 0
    result = await connection.stream(text("SELECT kind, id, state FROM aggregates"))
    async for partition in result.partitions(_ROWS_AT_ONCE):
        total += sum(_digest(row.kind, row.id, row.state) for row in partition)
    return StateHash(position, combine_digests([total]))


def _digest(kind: str, id_: str, state: str) -> int:
    """Return `koordcore.state.cluster.aggregate_digest` of a state in canonical JSON."""
    return int.from_bytes(hashlib.blake2b(f"{kind}.{id_}\n{state}".encode(), digest_size=16).digest(), "big")


def _evolved(state: AggregateState | None, row: Row[Any]) -> AggregateState | None:
    stored = stored_fact(row)
    event = CATALOGUE.read(stored)
    return state if event is None else evolve(state, event, stored)
