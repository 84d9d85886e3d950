"""Free amounts of every card of every node in arrays, so that a filter checks all nodes at once. They are computed from
`DeviceUse`. When a pod comes or leaves, only the lists of its cards are updated. The arrays are updated when they are
read.

Source: scheduler-fine-grained spec, 2.1, 2.5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from koordcore.protocol.hardware.device_requests import FPGA_TYPE, GPU_TYPE, RDMA_TYPE, WHOLE
from koordcore.protocol.resource_names import (
    FPGA,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    HUAWEI_NPU_CORE,
    HUAWEI_NPU_CPU,
    HUAWEI_NPU_DVPP,
    RDMA,
)
from numpy.typing import NDArray

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, Rows
from koord_scheduler.domain.plugins.device.inventory import Card
from koord_scheduler.domain.plugins.device.usage import DeviceUse

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    FPGA_TYPE: (FPGA,),
    GPU_TYPE: (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, HUAWEI_NPU_CORE, HUAWEI_NPU_CPU, HUAWEI_NPU_DVPP),
    RDMA_TYPE: (RDMA,),
}
"""Resource names that a request of each type may have."""
_MEMORY: Final = NAMES[GPU_TYPE].index(GPU_MEMORY)
_RATIO: Final = NAMES[GPU_TYPE].index(GPU_MEMORY_RATIO)
ABSENT: Final = -1
"""Left of a card that is not there, is unhealthy, or has nothing left: less than any request."""
UNLIMITED: Final = 1 << 62
"""Left of a resource that a card does not have: it is not compared."""
_FIRST_CARDS: Final = 8
Room: TypeAlias = tuple[bool, tuple[tuple[int, ...], ...], tuple[int, ...], tuple[int, ...]]
"""Whether the node has devices with capacity; free amounts of its best devices; `OnNode.total`; `OnNode.free`.

The best devices are those of which no other device of the node has at least as much free of everything.
"""


class OnNode:
    """The free amounts of all devices of one type on one node, as lists, which are faster than arrays here."""

    __slots__ = ("_most", "_room", "cards", "free", "left", "memory", "places", "total")

    def __init__(self, names: Sequence[str], cards: Sequence[Card]) -> None:
        self.cards = sum(1 for card in cards if card.total)  # Number of devices with capacity
        # For each device, ascending by minor number: the free amount of each resource, in the order of
        # `TypeColumns.names`, and the largest `gpu-memory-ratio` that its free memory allows.
        self.left: list[tuple[int, ...]] = [(ABSENT,) * (len(names) + 1)] * len(cards)
        self.memory: list[int] = [card.total.get(GPU_MEMORY, 0) for card in cards]  # Memory of each device in bytes
        # Sum of the capacities of each resource.
        self.total: list[int] = [sum([card.total.get(name, 0) for card in cards]) for name in names]
        self.free: list[int] = [0] * len(names)  # Sum of the free amounts of each resource
        # Minor number of a device -> its index in `left` and `memory`.
        self.places: dict[int, int] = {card.minor: place for place, card in enumerate(cards)}
        self._most: list[int] = []
        self._room: Room | None = None

    def put(self, place: int, left: tuple[int, ...]) -> None:
        """Replace the free amounts of one device. `place`: index of the device in `left`. `left`: its free amounts, in
        the form of an element of the attribute `left`.
        """
        before = self.left[place]
        self.left[place] = left
        self._room = None
        free = self.free
        for index in range(len(free)):
            if left[index] != before[index]:
                free[index] += _counted(left[index]) - _counted(before[index])
        most = self._most
        if most:
            for index, amount in enumerate(left):
                if amount >= most[index]:
                    most[index] = amount
                elif before[index] == most[index]:
                    most[index] = max([each[index] for each in self.left])

    def most(self, index: int) -> int:
        """Return the free amount of a resource on the device of the node that has the most of it. `index`: index of the
        resource in an element of `left`.
        """
        if not self._most:
            self._most = [max(amounts) for amounts in zip(*self.left, strict=True)] or [ABSENT] * (len(self.total) + 1)
        return self._most[index]

    def room(self) -> "Room":
        """Return what decides whether one device of the node has enough free, and how the node is scored."""
        room = self._room
        if room is None:
            self.most(0)
            most = tuple(self._most)
            best = (most,) if most in self.left else _undominated(self.left)
            room = self._room = (self.cards > 0, best, tuple(self.total), tuple(self.free))
        return room


class TypeColumns:
    """The free amounts of all devices of one type on all nodes, as arrays. G is the greatest number of devices of a
    node.
    """

    def __init__(self, type_: str, capacity: int) -> None:
        self.type = type_
        self.names = NAMES[type_]  # Resource names, K of them
        self._left = np.full((len(self.names), capacity, _FIRST_CARDS), ABSENT, np.int64)
        # int64 (N, G): memory of each device in bytes; 0 without one, and for types other than GPU.
        self.memory = np.zeros((capacity, _FIRST_CARDS), np.int64)
        self.cards = np.zeros(capacity, np.int64)  # int64 (N,): number of devices with capacity
        self.total = np.zeros((len(self.names), capacity), np.int64)  # int64 (K, N): sum of the capacities
        self._free = np.zeros((len(self.names), capacity), np.int64)
        self.on_node = [OnNode(self.names, ())] * capacity  # The same amounts as lists, for each node position
        self._stale: set[int] = set()  # positions of nodes that changed since `_left` and `_free` were read

    @property
    def left(self) -> IntArray:
        """Return the free amount of each device, int64 (K, N, G). `ABSENT` without a device, `UNLIMITED` if the device
        lacks the resource.
        """
        self._freshen()
        return self._left

    @property
    def free(self) -> IntArray:
        """Return the sum of the free amounts of each node, int64 (K, N)."""
        self._freshen()
        return self._free

    def _freshen(self) -> None:
        for row in self._stale:
            node = self.on_node[row]
            self._left[:, row, :] = ABSENT
            if node.left:
                self._left[:, row, : len(node.left)] = np.array(node.left, np.int64)[:, :-1].T
            self._free[:, row] = node.free
        self._stale.clear()

    def grow(self, capacity: int, width: int) -> None:
        """Extend the arrays to `capacity` nodes and `width` devices per node."""
        _, rows, cards = self._left.shape
        if rows >= capacity and cards >= width:
            return
        rows_after, cards_after = max(rows, capacity), max(cards, width)
        left = np.full((len(self.names), rows_after, cards_after), ABSENT, np.int64)
        left[:, :rows, :cards] = self._left
        memory = np.zeros((rows_after, cards_after), np.int64)
        memory[:rows, :cards] = self.memory
        self._left, self.memory = left, memory
        self.cards = np.concatenate([self.cards, np.zeros(rows_after - rows, np.int64)])
        more = np.zeros((len(self.names), rows_after - rows), np.int64)
        self.total = np.concatenate([self.total, more], axis=1)
        self._free = np.concatenate([self._free, more], axis=1)
        self.on_node += [OnNode(self.names, ())] * (rows_after - rows)

    def put(self, row: int, cards: Iterable[Card], use: DeviceUse) -> None:
        """Replace the devices of the node at position `row`. `use`: amounts of the devices that pods hold."""
        cards = list(cards)
        self.grow(row + 1, len(cards))
        if not cards and not self.on_node[row].places:  # most nodes have no device of most types
            return
        node = self.on_node[row] = OnNode(self.names, cards)
        for place, card in enumerate(cards):
            self._write(row, place, card, use)
        self._stale.add(row)
        self.cards[row] = node.cards
        self.memory[row, :] = 0
        self.memory[row, : len(cards)] = node.memory
        self.total[:, row] = node.total

    def update(self, row: int, card: Card, use: DeviceUse) -> None:
        """Write the free amounts of one device again, because a pod that holds a part of it came or left. `use`:
        amounts that pods on the node hold now.
        """
        self._write(row, self.on_node[row].places[card.minor], card, use)

    def _write(self, row: int, place: int, card: Card, use: DeviceUse) -> None:
        used, total, node = use.used(card), card.total, self.on_node[row]
        has_any = False
        after: list[int] = []
        for name in self.names:
            capacity = total.get(name)
            if capacity is None:
                after.append(UNLIMITED)
                continue
            amount = capacity - used.get(name, 0)
            has_any = has_any or amount > 0
            after.append(max(0, amount))
        if not has_any:
            after = [ABSENT] * len(after)
        node.put(place, (*after, self._ratio_left(after, node.memory[place])))
        self._stale.add(row)

    def _ratio_left(self, left: Sequence[int], memory: int) -> int:
        if self.type != GPU_TYPE or left[_RATIO] == ABSENT or memory <= 0:
            return left[-1] if self.type != GPU_TYPE else left[_RATIO]
        return min(left[_RATIO], ((left[_MEMORY] + 1) * WHOLE - 1) // memory)

    def fitting(self, per_device: Mapping[str, int], rows: Rows) -> IntArray:
        """Return for each node the number of devices that each have the amounts free, int64 (K,). `per_device`:
        resource -> amount that each device must have free. `rows`: positions of the nodes, shape (K,).
        """
        needs = self._needs(per_device)
        fits: BoolArray = np.ones((len(rows), self.left.shape[2]), np.bool_)
        for index, amount in needs:
            fits &= self.left[index][rows] >= amount
        memory, ratio = per_device.get(GPU_MEMORY), per_device.get(GPU_MEMORY_RATIO)
        if self.type == GPU_TYPE and (memory is None) != (ratio is None):
            capacity = self.memory[rows]
            if memory is None:
                assert ratio is not None, "exactly one of the two is None"
                fits &= self.left[_MEMORY][rows] >= capacity * ratio // WHOLE
            else:
                percent = _percent(memory, capacity)
                fits &= self.left[_RATIO][rows] >= percent
        found: IntArray = fits.sum(axis=1, dtype=np.int64)
        return found

    def room_function(self, per_device: Mapping[str, int], count: int) -> Callable[[int], bool]:
        """Return a function that takes a node's position and returns whether enough devices have the amounts free.
        `per_device`: resource -> amount that each device must have free.
        """
        needs, on_node = self.needs_of_one(per_device), self.on_node
        memory, ratio = per_device.get(GPU_MEMORY), per_device.get(GPU_MEMORY_RATIO)
        bytes_ = memory or 0
        is_filled = self.type == GPU_TYPE and memory is not None and ratio is None

        def has_room(row: int) -> bool:
            node = on_node[row]
            for index, amount in needs:
                if node.most(index) < amount:
                    return False
            found = 0
            for place, left in enumerate(node.left):
                for index, amount in needs:
                    if left[index] < amount:
                        break
                else:
                    if is_filled:
                        capacity = node.memory[place]
                        if capacity and left[_RATIO] < int(bytes_ / capacity * WHOLE):
                            continue
                    found += 1
                    if found >= count:
                        return True
            return False

        return has_room

    def single_amount(self, per_device: Mapping[str, int]) -> tuple[int, int] | None:
        """Return (index, amount) if a device fits the request as soon as it has this amount of one resource free. None
        if several resources decide, or if GPU memory is requested in bytes only. The index is that of an element of
        `OnNode.left`. `per_device`: resource -> amount that each device must have free.
        """
        needs = self.needs_of_one(per_device)
        is_filled = GPU_MEMORY in per_device and GPU_MEMORY_RATIO not in per_device
        return None if is_filled or len(needs) != 1 else needs[0]

    def needs_of_one(self, per_device: Mapping[str, int]) -> list[tuple[int, int]]:
        """Return (index of the resource in an element of `OnNode.left`, amount) for each requested amount."""
        needs = self._needs(per_device)
        if self.type != GPU_TYPE or GPU_MEMORY in per_device:
            return needs
        return [(len(self.names) if index == _RATIO else index, amount) for index, amount in needs]

    def _needs(self, per_device: Mapping[str, int]) -> list[tuple[int, int]]:
        return [(index, per_device[name]) for index, name in enumerate(self.names) if name in per_device]


def _percent(memory: int, capacity: IntArray) -> IntArray:
    """Return ⌊memory / capacity * 100⌋ in float arithmetic, shape of capacity; 0 where there is no memory."""
    asked = np.full(capacity.shape, float(memory))
    share: NDArray[np.float64] = np.divide(asked, capacity, out=np.zeros(capacity.shape), where=capacity > 0)
    return np.minimum(share * WHOLE, float(UNLIMITED >> 1)).astype(np.int64)


def _undominated(left: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Return the distinct elements of which no other one is at least as great in every place, descending."""
    best: list[tuple[int, ...]] = []
    for each in sorted(set(left), reverse=True):
        for other in best:
            if all(a >= b for a, b in zip(other, each, strict=True)):
                break
        else:
            best.append(each)
    return tuple(best)


def _counted(amount: int) -> int:
    """Return the part of a free amount that counts in sums: 0 if the amount is absent or unlimited."""
    return 0 if amount in (ABSENT, UNLIMITED) else amount
