"""Index of nodes by free amount. It finds all nodes with room, and possibly others, without a scan.

Rows are in buckets by the number of bits of the free amount. A node without the resource, or without a free amount,
is in bucket 0. A resource is indexed when it is first needed, and updated from the journal when it is needed again,
so that a placement needs no work here.

Source:
    scheduler-core spec, 12.2 a
"""

from collections.abc import Iterable

from koord_scheduler.domain.columns.node_columns import NodeColumns


class _Resource:
    """Rows by the number of bits of their free amount, for one resource."""

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
    """An index that finds nodes with a free amount of a resource without looking at all nodes."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._resources: dict[int, _Resource] = {}

    def rows(self, demand: Iterable[tuple[int, int]], most: int) -> list[int] | None:
        """Return the positions of all nodes that may have room, ascending.

        None if there are more than `most`, or if `demand` is empty.

        Only the resource for which the fewest nodes qualify is considered. So the result contains every node with
        room, and possibly nodes without room.

        Args:
            demand: (resource column of `NodeColumns`, amount) of each resource that must be free.
            most: Maximum number of nodes to return.
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
