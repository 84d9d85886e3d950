"""What a projector has written to Postgres, to compare with the fold of the same events."""

from collections.abc import Sequence

import psycopg
from koord_projector.read.status import aggregates_hash
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import NamespaceObserved
from koordcore.protocol.objects import Namespace, ObjectMeta
from koordcore.state import ClusterState
from psycopg import sql
from support.projector.world import TABLES, Projector, projector


def all_rows(dsn: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every folded table, and the position, in an order of their own.

    Without the stream's own time of the events: each memory log has another one.
    """
    with psycopg.connect(dsn) as connection:
        rows = {
            table: sorted(connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))), key=repr)
            for table in TABLES
        }
        rows["events"] = [(*row[:6], 0, *row[7:]) for row in rows["events"]]
        rows["projection"] = connection.execute("SELECT position FROM projection WHERE stream = 'ev'").fetchall()
        return rows


def folded(events: Sequence[StoredEvent], upto: int | None = None) -> ClusterState:
    """The fold of the events up to a position."""
    state = ClusterState()
    for event in events:
        if upto is None or event.seq <= upto:
            state.apply(event)
    return state


async def stored_hash(it: Projector) -> tuple[int, str]:
    """What `/api/hash` answers."""
    async with it.database.reading() as connection:
        found = await aggregates_hash(connection)
        return found.position, found.hash


async def run_to_end(dsn: str, events: Sequence[StoredEvent], *, batch_events: int = 2000) -> tuple[int, str]:
    """Projects all events into an empty database; position and hash of the rows."""
    async with projector(dsn, batch_events=batch_events) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
            return await stored_hash(it)


def observed_namespace() -> NamespaceObserved:
    """A fact about the namespace `ns-1`."""
    return NamespaceObserved(object=Namespace(metadata=ObjectMeta(name="ns-1")))
