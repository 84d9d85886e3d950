"""Index of nodes by free amount: finds a superset of the nodes with room without a scan.

Rows stand in buckets by the number of bits of the free amount; a node that lacks the resource, or has none left, is in
bucket 0. A resource is indexed when it is first asked for, and brought up to date from the journal when it is asked
for again, so placements pay nothing.

Source:
    scheduler-core spec, 12.2 a
"""

from collections.abc import Iterable

from koord_scheduler.domain.columns.node_columns import NodeColumns


class _Resource:
    """Rows of one resource's column by bits of the free amount."""

    def __init__(self) -> None:
        self._position = -1
        self._bucket_of: dict[int, int] = {}
        self._buckets: dict[int, set[int]] = {}

    def refresh(self, nodes: NodeColumns, column: int) -> None:
        changed = nodes.load.since(self._position) if self._position >= 0 else None
        self._position = nodes.load.position
        for row in range(len(nodes.names)) if changed is None else changed:
            bucket = max(nodes.free.item(column, row), 0).bit_length() if nodes.alive[row] else 0
            before = self._bucket_of.get(row)
            if before != bucket:
                if before is not None:
                    self._buckets[before].discard(row)
                self._bucket_of[row] = bucket
                self._buckets.setdefault(bucket, set()).add(row)

    def at_least(self, amount: int) -> list[set[int]]:
        least = amount.bit_length()
        return [rows for bucket, rows in self._buckets.items() if bucket >= least]


class FreeIndex:
    """The index over the nodes of one cluster."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._resources: dict[int, _Resource] = {}

    def rows(self, demand: Iterable[tuple[int, int]], most: int) -> list[int] | None:
        """Return rows outside of which some amount is not free, by the scarcest of them, ascending.

        None: more than `most`.

        Args:
            demand: (column, amount) of each resource that has to be free.
        """
        fewest: list[set[int]] | None = None
        for column, amount in demand:
            resource = self._resources.get(column)
            if resource is None:
                resource = self._resources[column] = _Resource()
            resource.refresh(self._nodes, column)
            rows = resource.at_least(amount)
            if fewest is None or sum(map(len, rows)) < sum(map(len, fewest)):
                fewest = rows
        if fewest is None or sum(map(len, fewest)) > most:
            return None
        return sorted(row for rows in fewest for row in rows)
