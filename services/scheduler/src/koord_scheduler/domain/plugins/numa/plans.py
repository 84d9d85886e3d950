"""Exact decisions for nodes, made once for all nodes in the same state.

Nodes of one kind whose pods have the same CPUs, amounts in zones and devices give the same answers.
"""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from koord_scheduler.domain.numa.books import NumaBooks
from koord_scheduler.domain.numa.hardware import NodeHardware
from koord_scheduler.domain.numa.node_book import NodeBook
from koord_scheduler.domain.numa.scoring import Strategy
from koord_scheduler.domain.plugins.numa.need import Need, Planned, plan

T = TypeVar("T")
_MOST_KEPT: Final = 16_384
_MOST_KINDS: Final = 64
"""Kinds of hardware that are compared; other nodes share no answers."""


class Plans:
    """Caches exact decisions about CPUs and zones for all nodes in the same state.

    Args:
        books: CPUs and zone amounts that pods hold on all nodes.
        strategy: Scores sets of zones.
    """

    def __init__(self, books: NumaBooks, strategy: Strategy) -> None:
        self._books = books
        self._strategy = strategy
        self._kept: dict[Hashable, object] = {}
        self._kinds: list[NodeHardware] = []
        self._kind_of: dict[int, tuple[NodeHardware, int]] = {}

    def plan(self, need: Need, row: int) -> Planned | str:
        """Return the CPUs and zones that the pod would get on the node at position `row`, or why it cannot get them."""
        return self.kept("plan", need, row, lambda: plan(need, row, self._books, self._strategy))

    def kept(self, question: str, need: Need, row: int, answer: Callable[[], T]) -> T:
        """Return a cached result, or compute it. Nodes in the same state share one cache.

        Args:
            question: Name of the computation. All results under one name have the same type.
            need: Needs of the pod's class in CPUs and zones.
            row: Position of the node.
            answer: Computes the result if it is not in the cache. The result must depend on the node's state alone.
        """
        book = self._books.book(row)
        kind = self._kind(row, book.hardware)
        if kind < 0 or book.share is not None:
            return answer()
        providers = tuple([provider.state_of(row) for provider in need.providers])
        statuses = self._books.columns.statuses(row, book.hardware.zones) if need.is_exclusive else {}
        key = (question, need, kind, _state(book), providers, tuple(statuses.values()))
        if key in self._kept:
            return self._kept[key]  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        found = self._kept[key] = answer()
        return found

    def _kind(self, row: int, hardware: NodeHardware) -> int:
        """Return the number of the hardware; -1 if there are too many kinds."""
        known = self._kind_of.get(row)
        if known is not None and known[0] is hardware:
            return known[1]
        kind = next((number for number, each in enumerate(self._kinds) if each == hardware), -1)
        if kind < 0 and len(self._kinds) < _MOST_KINDS:
            kind = len(self._kinds)
            self._kinds.append(hardware)
        self._kind_of[row] = (hardware, kind)
        return kind


def _state(book: NodeBook) -> Hashable:
    allocated = [(zone, *sorted(amounts.items())) for zone, amounts in sorted(book.allocated.items())]
    return (book.bound, tuple(allocated), book.exclusive_cpus())
