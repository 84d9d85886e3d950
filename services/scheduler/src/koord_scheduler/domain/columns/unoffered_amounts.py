"""What pods on nodes take of resources that no node has offered, by name: a column would cost memory for all nodes."""

from collections.abc import Mapping


class UnofferedAmounts:
    """Resource -> position of a node -> requested amount, without amounts of 0."""

    def __init__(self) -> None:
        self._amounts: dict[str, dict[int, int]] = {}

    def add(self, resource: str, row: int, amount: int) -> None:
        """Add an amount, which may be negative, on the node at position `row`."""
        rows = self._amounts.setdefault(resource, {})
        rows[row] = rows.get(row, 0) + amount
        if not rows[row]:
            del rows[row]
        if not rows:
            del self._amounts[resource]

    def of(self, resource: str, row: int) -> int:
        """Return the amount of a resource on a node."""
        return self._amounts.get(resource, {}).get(row, 0)

    def on(self, row: int) -> dict[str, int]:
        """Return resource -> amount on a node."""
        return {resource: rows[row] for resource, rows in self._amounts.items() if row in rows}

    def removed(self, resource: str) -> Mapping[int, int]:
        """Remove a resource, because it gets a column. Return position of a node -> amount."""
        return self._amounts.pop(resource, {})

    def leave(self, row: int) -> None:
        """Remove all amounts on a node that is removed."""
        for resource in self.on(row):
            self.add(resource, row, -self.of(resource, row))
