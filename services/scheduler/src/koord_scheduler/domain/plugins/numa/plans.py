"""Exact decisions for nodes, made once for all nodes in the same state. Nodes of one kind whose pods have the same
CPUs, amounts in zones and devices give the same answers. On nodes with the annotation
`node.koordinator.sh/resource-amplification-ratio`, which offer more CPU than they have, bound CPUs are physical, so
they count multiplied by the ratio.

Source: scheduler-fine-grained spec, 1.9; vectors scheduler/amplified_cpu_filter
"""

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from koordcore.protocol.amplification import amplify

from koord_scheduler.domain.plugins.numa.books import NumaBooks
from koord_scheduler.domain.plugins.numa.hardware import NodeHardware
from koord_scheduler.domain.plugins.numa.hinting import Strategy
from koord_scheduler.domain.plugins.numa.need import Need, Planned, plan

T = TypeVar("T")
_MOST_KEPT: Final = 16_384
_MOST_KINDS: Final = 64
"""Kinds of hardware that are compared; other nodes share no answers."""


class Plans:
    """Caches exact decisions about CPUs and zones for all nodes in the same state. `books`: CPUs and zone amounts that
    pods hold on all nodes.
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
        """Return a cached result, or compute it. Nodes in the same state share one cache. `question`: name of the
        computation. All results under one name have the same type. `answer`: computes the result if it is not in the
        cache. The result must depend on the node's state alone.
        """
        book = self._books.book(row)
        kind = self._kind(row, book.hardware)
        if kind < 0 or book.share is not None:
            return answer()
        providers = tuple([provider.state_of(row) for provider in need.providers])
        statuses = self._books.columns.status_bytes(row) if need.is_exclusive else b""
        key = (question, need, kind, book.state(), providers, statuses)
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


def amplified_use(used: int, bound_cpus: int, ratio: float) -> int:
    """Return the CPU in use on a node in milli-cores, with bound CPUs multiplied by the amplification ratio. If the
    pods request less than the bound CPUs, return `used` unchanged. `used`: CPU that pods request, in milli-cores.
    `bound_cpus`: number of CPUs that are bound to pods. `ratio`: Amplification ratio; at most 1 means none.
    """
    bound = 1000 * bound_cpus
    return used - bound + amplify(bound, ratio) if used >= bound > 0 else used


def fits_amplified(
    request: int, *, is_bound: bool, ratio: float, allocatable: int, requested: int, bound_cpus: int
) -> bool:
    """Return whether the CPU request of a pod fits on a node with an amplification ratio.

    Args:
        request: CPU of the pod, in milli-cores; 0 always fits.
        is_bound: Whether the pod binds CPUs. Then its request counts multiplied by the ratio.
        ratio: Ratio of the node. If it is at most 1, the result is always True.
        allocatable: Amplified CPU of the node, in milli-cores.
        requested: CPU that its pods request, in milli-cores.
        bound_cpus: Number of CPUs that are bound to its pods.
    """
    if ratio <= 1 or request <= 0:
        return True
    needed = amplify(request, ratio) if is_bound else request
    return needed <= allocatable - amplified_use(requested, bound_cpus, ratio)
