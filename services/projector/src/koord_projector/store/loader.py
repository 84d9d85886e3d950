"""Load the projector's state in memory (`Projection`) from the tables of Postgres.

It holds the position of the log, the living pods, the newest figures of each node, and the states that these need. The
projector loads it at start. It loads it again after each error of Postgres or the log, and for a requested rebuild.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from koordcore.events.descheduling import RoundDecided
from koordcore.events.envelope import AggregateRef
from koordcore.state.cluster import decode_state
from koordcore.stories.acts import closers
from koordcore.stories.modifications import CONFIGURATION
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import TupleRow

from koord_projector.fold.figures import NODE_KINDS, NodeFigures, Series
from koord_projector.fold.lives import Life
from koord_projector.fold.pods import Episode, PodFacts
from koord_projector.fold.projection import DEVICES, Projection
from koord_projector.store.positions import FACTS, projection_schema
from koord_projector.store.writer import Writer

_ROWS_AT_ONCE: Final = 5_000
_LIVING_PODS: Final = """
    SELECT uid, from_seq, namespace, name, qos, priority_class, requests, submitted_seq, submitted_at, node,
           placed_seq, placed_at, started_seq, started_at, stopped_seq, deleted_seq, gang
      FROM pods WHERE to_seq IS NULL
"""
_NEWEST_NODES: Final = f"""
    SELECT v.token, {", ".join(f'v."{name}"' for name in NodeFigures.__struct_fields__)}
      FROM node_names AS n
      CROSS JOIN LATERAL (SELECT * FROM node_versions WHERE token = n.token ORDER BY seq DESC LIMIT 1) AS v
"""  # noqa: S608  constants
_STATES: Final = """
    SELECT a.kind, a.id, a.state, a.from_seq, a.events FROM unnest(%s::text[], %s::text[]) AS w(kind, id)
      JOIN aggregates AS a ON a.kind = w.kind AND a.id = w.id
"""
_LAST_ROUND: Final = """
    SELECT seq, body FROM events WHERE kind = 'descheduling' AND id = 'rounds' AND type = 'RoundDecided'
     ORDER BY seq DESC LIMIT 1
"""
_CLOSED_SINCE: Final = "SELECT node FROM modifications WHERE action = 'cordon' AND position > %s"
_decode_round = msgspec.json.Decoder(RoundDecided).decode
_decode_requests = msgspec.json.Decoder(dict[str, int]).decode


class Loaded(msgspec.Struct, frozen=True):
    projection: Projection
    event_id: str  # Id of the last folded fact, "" at position 0. It shows whether the tables belong to this log.
    is_current: bool  # Whether this version of the code wrote the tables. If not, they must be rebuilt.


async def load_projection(writer: Writer) -> Loaded:
    """Load the projection from the tables in one transaction.

    Raises:
        WRITE_ERRORS: Postgres is unavailable.
    """
    connection = writer.connection
    await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    try:
        async with connection.transaction():
            return await _load(connection)
    finally:
        await connection.set_isolation_level(None)


async def _load(connection: AsyncConnection[TupleRow]) -> Loaded:
    rows = await _all(connection, "SELECT position, event_id, schema FROM projection WHERE stream = %s", (FACTS,))
    position, event_id, schema = rows[0] if rows else (0, "", projection_schema())
    reached = await _all(connection, "SELECT reached_ns FROM events ORDER BY seq DESC LIMIT 1")
    projection = Projection(int(position), int(reached[0][0]) if reached else 0)
    async with connection.cursor(name="aggregate_keys") as cursor:
        await cursor.execute("SELECT kind, id FROM aggregates")
        while found := await cursor.fetchmany(_ROWS_AT_ONCE):
            projection.know(AggregateRef(kind, id_) for kind, id_ in found)
    async with connection.cursor(name="living_pods") as cursor:
        await cursor.execute(_LIVING_PODS)
        while found := await cursor.fetchmany(_ROWS_AT_ONCE):
            for row in found:
                projection.pods.load(_episode(row))
    for token, *figures in await _all(connection, _NEWEST_NODES):
        projection.nodes.load(token, NodeFigures(**dict(zip(NodeFigures.__struct_fields__, figures, strict=True))))
    projection.load_totals()
    for kind, id_, state, from_seq, events in await _all(
        connection,
        "SELECT kind, id, state, from_seq, events FROM aggregates WHERE kind = ANY(%s)",
        (sorted((*NODE_KINDS, CONFIGURATION.kind)),),
    ):
        projection.lend(AggregateRef(kind, id_), decode_state(kind, state), Life(from_seq, events))
    for id_, state in await _all(
        connection, "SELECT id, state FROM aggregates WHERE kind = 'customspec' AND starts_with(id, %s)", (DEVICES,)
    ):
        projection.know_devices(AggregateRef("customspec", id_), decode_state("customspec", state))
    await _load_closing(connection, projection)
    for second, seq in await _all(connection, "SELECT second, seq FROM cluster_series ORDER BY seq DESC LIMIT 1"):
        projection.series = Series(second, seq)
    return Loaded(projection, event_id, schema == projection_schema())


async def _load_closing(connection: AsyncConnection[TupleRow], projection: Projection) -> None:
    """Set the nodes that the last round of the descheduler closes and that were not closed since."""
    for seq, body in await _all(connection, _LAST_ROUND):
        projection.closing = closers(_decode_round(body))
        for (node,) in await _all(connection, _CLOSED_SINCE, (seq,)):
            projection.closing.pop(node, None)


async def lend_states(writer: Writer, projection: Projection, refs: Sequence[AggregateRef]) -> None:
    if not refs:
        return
    kinds, ids = [ref.kind for ref in refs], [ref.id for ref in refs]
    for kind, id_, state, from_seq, events in await _all(writer.connection, _STATES, (kinds, ids)):
        projection.lend(AggregateRef(kind, id_), decode_state(kind, state), Life(from_seq, events))


async def _all(connection: AsyncConnection[TupleRow], statement: str, values: Sequence[Any] = ()) -> list[TupleRow]:
    async with connection.cursor() as cursor:
        await cursor.execute(statement.encode(), values)
        return await cursor.fetchall()


def _episode(row: TupleRow) -> Episode:
    uid, from_seq, namespace, name, qos, priority_class, requests, *rest = row
    submitted_seq, submitted_at, node, placed_seq, placed_at, started_seq, started_at, *ended = rest
    stopped_seq, deleted_seq, gang = ended
    return Episode(
        uid=uid,
        from_seq=from_seq,
        facts=PodFacts(namespace, name, qos, priority_class, _decode_requests(requests), gang),
        submitted_seq=submitted_seq,
        submitted_at=submitted_at,
        node=node,
        placed_seq=placed_seq,
        placed_at=placed_at,
        started_seq=started_seq,
        started_at=started_at,
        stopped_seq=stopped_seq,
        deleted_seq=deleted_seq,
        stored=True,
    )
