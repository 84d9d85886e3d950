"""Positions of the streams and version of the rows, which a transaction checks before it writes; partitions of facts.

The table `events` has one partition per million positions, so that old facts are dropped at once. A look-up of one
aggregate may read an index of each partition. So partitions must not be small.

Source:
    event-bus spec, 3.2 (checkpoint with the state)
"""

import re
from typing import Final, NamedTuple

from koordcore.state.cluster import schema_fingerprint
from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from koord_projector.store import copytext

FACTS: Final = "ev"
OBSERVATIONS: Final = "obs"
EXPLANATIONS: Final = "explanations"
FOLD_LOCK: Final = 0x6B6F6F726466  # "koordf": shared by the sessions that fold facts
PROJECTION_VERSION: Final = 6
"""Increment it if the same events give other rows. The projector then rebuilds the tables."""
UPSERT_POSITION: Final = (
    "INSERT INTO projection (stream, position, event_id, schema) VALUES (%s, %s, %s, %s) ON CONFLICT (stream)"
    " DO UPDATE SET position = EXCLUDED.position, event_id = EXCLUDED.event_id, schema = EXCLUDED.schema"
)


class Moved(Exception):
    """The database has another position of a stream than the writer expected. The caller loads the projection again."""

    def __init__(self, stream: str, believed: int, actual: int) -> None:
        super().__init__(f"{stream}: the database is at position {actual}, not {believed}")


class Replaced(Moved):
    """Another version of the projector has made the tables again. The caller loads the projection again."""

    def __init__(self, schema: str) -> None:
        Exception.__init__(self, f"the tables are those of another version of the projector: {schema}")


def projection_schema() -> str:
    """The version of the projection and of the schemas of its states. Rows with another text must be rebuilt."""
    return f"{PROJECTION_VERSION}:{schema_fingerprint()}"


async def _position(cursor: AsyncCursor[TupleRow], stream: str) -> tuple[int, str]:
    """Return the position and the version of the rows. Lock both until the end of the transaction.

    The row is created if it does not exist, so that two writers that both begin at 0 share a lock.
    """
    for _ in range(2):
        await cursor.execute("SELECT position, schema FROM projection WHERE stream = %s FOR UPDATE", (stream,))
        row = await cursor.fetchone()
        if row is not None:
            return int(row[0]), str(row[1])
        await cursor.execute(
            "INSERT INTO projection (stream, position, event_id, schema) VALUES (%s, 0, '', %s) ON CONFLICT DO NOTHING",
            (stream, projection_schema()),
        )
    return 0, projection_schema()


async def take_position(cursor: AsyncCursor[TupleRow], stream: str, after: int) -> None:
    """Lock the position of a stream until the end of the transaction.

    Raises:
        Moved: The position differs from `after`, or the rows of facts are those of another version.
    """
    actual, schema = await _position(cursor, stream)
    if stream == FACTS and schema != projection_schema():
        raise Replaced(schema)
    if actual != after:
        raise Moved(stream, after, actual)


async def take_tables(cursor: AsyncCursor[TupleRow], after: int | None) -> None:
    """Lock the position of the facts until the end of the transaction, in which their tables are replaced.

    Rows of this version must have the position `after`, so that rows that another projector just wrote are kept. Rows
    of another version may have any. If `after` is None, all may: a rebuild would never end while another projector
    folds.

    Raises:
        Moved: The position of rows of this version differs from `after`.
    """
    actual, schema = await _position(cursor, FACTS)
    if after not in (None, actual) and schema == projection_schema():
        raise Moved(FACTS, after or 0, actual)


async def set_position(cursor: AsyncCursor[TupleRow], stream: str, position: int, event_id: str) -> None:
    """Write it with the id of the last fact and the version of the projection."""
    await cursor.execute(UPSERT_POSITION, (stream, position, copytext.escape(event_id), projection_schema()))


POSITIONS: Final = 1_000_000
"""Positions of one partition."""
PARTITIONS: Final = """
    SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = '{table}'::regclass ORDER BY 1
"""
"""Statement that selects the partitions of a table with their bounds."""
_BOUNDS: Final = re.compile(r"FROM \((MINVALUE|'?\d+'?)\) TO \('?(\d+)'?\)")


class Partition(NamedTuple):
    """It contains the facts with `begin <= seq < end`."""

    name: str
    begin: int
    end: int


def read_partition(name: str, bounds: str) -> Partition:
    """`bounds` as Postgres shows them."""
    found = _BOUNDS.search(bounds)
    assert found is not None, f"partition {name}: bounds must be a range of positions, got {bounds}"
    begin, end = found.groups()
    return Partition(name, 0 if begin == "MINVALUE" else int(begin.strip("'")), int(end))


class Partitions:
    """Creates the partitions that new facts need. One task uses it.

    `table` has its schema if it is not the first one of the search path.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._end: int | None = None

    async def ensure(self, cursor: AsyncCursor[TupleRow], first: int, last: int) -> None:
        """Create the partitions for these positions that do not exist. Readers are not blocked.

        After an error, use a new object, because the rollback of the transaction removes the partitions that it
        created.
        """
        if self._end is None:
            self._end = max((each.end for each in await self._all(cursor)), default=0)
        while self._end <= last:
            begin = max(self._end, first // POSITIONS * POSITIONS)
            end = (begin // POSITIONS + 1) * POSITIONS
            name = f"{self._table}_p{begin // POSITIONS:06}"
            # An attached table needs a weaker lock than `CREATE TABLE ... PARTITION OF`, which waits for every reader.
            await cursor.execute(
                f"CREATE TABLE {name} (LIKE {self._table} INCLUDING DEFAULTS INCLUDING STORAGE)".encode()
            )
            await cursor.execute(
                f"ALTER TABLE {self._table} ATTACH PARTITION {name} FOR VALUES FROM ({begin}) TO ({end})".encode()
            )
            self._end = end

    async def drop_all(self, cursor: AsyncCursor[TupleRow]) -> None:
        for partition in await self._all(cursor):
            schema, dot, _ = self._table.rpartition(".")
            await cursor.execute(f"DROP TABLE {schema}{dot}{partition.name}".encode())
        self._end = None

    async def _all(self, cursor: AsyncCursor[TupleRow]) -> list[Partition]:
        await cursor.execute(PARTITIONS.format(table=self._table).encode())
        return [read_partition(*row) for row in await cursor.fetchall()]
