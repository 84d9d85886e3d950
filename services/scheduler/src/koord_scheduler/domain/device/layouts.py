"""Numbers of the layouts of nodes' devices, so that equal nodes share answers."""

from koord_scheduler.domain.forgetting import Forgetting


class Layouts:
    """A number for each layout: nodes have equal numbers if their devices differ at most in their ids.

    A number is not used again. Layouts that no node has any more, such as those of devices that were unhealthy for a
    while, are forgotten when there are many.
    """

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._of_row: dict[int, int] = {}
        self._next = 0
        self._forgetting = Forgetting()

    def __len__(self) -> int:
        """Return the number of known layouts."""
        return len(self._numbers)

    def of(self, row: int) -> int:
        """Return the number of the layout of the node at position `row`.

        Raises:
            KeyError: The node has no devices.
        """
        return self._of_row[row]

    def put(self, row: int, layout: object) -> None:
        """Set the layout of the node at position `row`."""
        number = self._numbers.get(layout)
        if number is None:
            number = self._numbers[layout] = self._next
            self._next += 1
        self._of_row[row] = number
        if self._forgetting.is_due(len(self._numbers)):
            used = set(self._of_row.values())
            self._numbers = {each: number for each, number in self._numbers.items() if number in used}
            self._forgetting.searched(len(self._numbers))

    def drop(self, row: int) -> None:
        """Forget the layout of a node that has no devices any more. No-op if it had none."""
        self._of_row.pop(row, None)
