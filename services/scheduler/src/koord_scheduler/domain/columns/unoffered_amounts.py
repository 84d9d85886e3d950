"""What pods on nodes take of resources that no node has offered, by name: a column would cost memory for all nodes."""

from collections.abc import Mapping
from typing import Final

_NOTHING: Final[Mapping[str, int]] = {}


class UnofferedAmounts:
    """Position of a node -> resource -> requested amount, without amounts of 0.

    What is known of one node is found without a look at other nodes and their resources, of which there may be many.
    """

    def __init__(self) -> None:
        self._amounts: dict[int, dict[str, int]] = {}

    def add(self, resource: str, row: int, amount: int) -> None:
        """Add an amount, which may be negative, on the node at position `row`."""
        amounts = self._amounts.setdefault(row, {})
        amounts[resource] = amounts.get(resource, 0) + amount
        if not amounts[resource]:
            del amounts[resource]
        if not amounts:
            del self._amounts[row]

    def of(self, resource: str, row: int) -> int:
        """Return the amount of a resource on a node."""
        return self.on(row).get(resource, 0)

    def on(self, row: int) -> Mapping[str, int]:
        """Return resource -> amount on a node."""
        return self._amounts.get(row, _NOTHING)

    def removed(self, resource: str) -> Mapping[int, int]:
        """Remove a resource, because it gets a column. Return position of a node -> amount."""
        found = {row: amounts[resource] for row, amounts in self._amounts.items() if resource in amounts}
        for row, amount in found.items():
            self.add(resource, row, -amount)
        return found

    def leave(self, row: int) -> None:
        """Remove all amounts on a node that is removed."""
        self._amounts.pop(row, None)
