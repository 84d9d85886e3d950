"""Partitions of the table `events`: one table per million positions, so that old facts are dropped at once.

A look-up of one aggregate may read an index of each partition. So partitions must not be small.
"""

import re
from typing import Final, NamedTuple

from psycopg import AsyncCursor
from psycopg.rows import TupleRow

POSITIONS: Final = 1_000_000
"""Positions of one partition."""
PARTITIONS: Final = """
    SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = '{table}'::regclass ORDER BY 1
"""
"""Statement that selects the partitions of a table with their bounds."""
_BOUNDS: Final = re.compile(r"FROM \((MINVALUE|'?\d+'?)\) TO \('?(\d+)'?\)")


class Partition(NamedTuple):
    """One partition of a table of facts: it contains the facts with `begin <= seq < end`."""

    name: str
    begin: int
    end: int


def read_partition(name: str, bounds: str) -> Partition:
    """Return a partition from its name and its bounds as Postgres shows them.

    Raises:
        AssertionError: The bounds are not those of a partition by position.
    """
    found = _BOUNDS.search(bounds)
    assert found is not None, f"partition {name}: bounds must be a range of positions, got {bounds}"
    begin, end = found.groups()
    return Partition(name, 0 if begin == "MINVALUE" else int(begin.strip("'")), int(end))


class Partitions:
    """Creates the partitions that new facts need. One task uses it.

    Args:
        table: The partitioned table, with its schema if it is not the first one of the search path.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._end: int | None = None

    async def ensure(self, cursor: AsyncCursor[TupleRow], first: int, last: int) -> None:
        """Create the partitions for positions from `first` to `last` that do not exist. Readers are not blocked.

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
        """Drop all partitions, so that the table is empty."""
        for partition in await self._all(cursor):
            schema, dot, _ = self._table.rpartition(".")
            await cursor.execute(f"DROP TABLE {schema}{dot}{partition.name}".encode())
        self._end = None

    async def _all(self, cursor: AsyncCursor[TupleRow]) -> list[Partition]:
        await cursor.execute(PARTITIONS.format(table=self._table).encode())
        return [read_partition(*row) for row in await cursor.fetchall()]
