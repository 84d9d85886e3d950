"""Device columns: what is left of every card of every node, so that all nodes are judged at once.

The arrays repeat what `DeviceUse` holds exactly. They are brought up to date card by card, when a pod comes or leaves.

Source: scheduler-fine-grained spec, 2.1, 2.5, 2.11.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from koordcore.protocol.device_requests import FPGA_TYPE, GPU_TYPE, RDMA_TYPE, WHOLE
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
from koord_scheduler.domain.device.inventory import Card
from koord_scheduler.domain.device.scores import MAX_SCORE, DeviceScoring
from koord_scheduler.domain.device.usage import DeviceUse

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


class TypeColumns:
    """The devices of one type on all nodes.

    Attributes:
        names: Resource names, K of them.
        left: int64 (K, N, G): left of each card; `ABSENT`, `UNLIMITED`.
        memory: int64 (N, G): memory of each card in bytes; 0 without one, and for types other than GPU.
        cards: int64 (N,): number of cards with capacity.
        total: int64 (K, N): sum of the capacities.
        free: int64 (K, N): sum of what is left.
    """

    def __init__(self, type_: str, capacity: int) -> None:
        self.type = type_
        self.names = NAMES[type_]
        self.left = np.full((len(self.names), capacity, _FIRST_CARDS), ABSENT, np.int64)
        self.memory = np.zeros((capacity, _FIRST_CARDS), np.int64)
        self.cards = np.zeros(capacity, np.int64)
        self.total = np.zeros((len(self.names), capacity), np.int64)
        self.free = np.zeros((len(self.names), capacity), np.int64)
        self._places: dict[int, dict[int, int]] = {}
        self._look_at_single()

    def grow(self, capacity: int, width: int) -> None:
        """Make room for more rows, and for more cards of one node."""
        _, rows, cards = self.left.shape
        if rows >= capacity and cards >= width:
            return
        rows_after, cards_after = max(rows, capacity), max(cards, width)
        left = np.full((len(self.names), rows_after, cards_after), ABSENT, np.int64)
        left[:, :rows, :cards] = self.left
        memory = np.zeros((rows_after, cards_after), np.int64)
        memory[:rows, :cards] = self.memory
        self.left, self.memory = left, memory
        self.cards = np.concatenate([self.cards, np.zeros(rows_after - rows, np.int64)])
        more = np.zeros((len(self.names), rows_after - rows), np.int64)
        self.total = np.concatenate([self.total, more], axis=1)
        self.free = np.concatenate([self.free, more], axis=1)
        self._look_at_single()

    def put(self, row: int, cards: Iterable[Card], use: DeviceUse) -> None:
        """Replace the cards of a row."""
        cards = list(cards)
        self.grow(row + 1, len(cards))
        self.left[:, row, :] = ABSENT
        self.memory[row, :] = 0
        self.total[:, row] = 0
        self.free[:, row] = 0
        self.cards[row] = sum(1 for card in cards if card.total)
        self._places[row] = {card.minor: place for place, card in enumerate(cards)}
        for place, card in enumerate(cards):
            for index, name in enumerate(self.names):
                self.total[index, row] += card.total.get(name, 0)
            self.memory[row, place] = card.total.get(GPU_MEMORY, 0)
            self._write(row, place, card, use)

    def update(self, row: int, card: Card, use: DeviceUse) -> None:
        """Bring one card up to date, because a pod on it came or left."""
        self._write(row, self._places[row][card.minor], card, use)

    def width_of(self, row: int) -> int:
        """Return the number of cards of a row, unhealthy ones among them."""
        return len(self._places.get(row, ()))

    def _write(self, row: int, place: int, card: Card, use: DeviceUse) -> None:
        used = use.used(card)
        left_at, free_at, total = self.left_at, self.free_at, card.total
        amounts = [max(0, total[name] - used.get(name, 0)) if name in total else UNLIMITED for name in self.names]
        has_any = bool(total) and (not used or any(total[name] > used.get(name, 0) for name in total))
        for index, amount in enumerate(amounts):
            before = left_at[index, row, place]
            if before > 0 and before != UNLIMITED:
                free_at[index, row] -= before
            if amount != UNLIMITED:
                free_at[index, row] += amount
            left_at[index, row, place] = amount if has_any else ABSENT

    def _look_at_single(self) -> None:
        self.left_at = self.left.data
        self.free_at = self.free.data
        self.memory_at = self.memory.data

    def fitting(self, per_device: Mapping[str, int], rows: Rows) -> IntArray:
        """Return the number of cards of each row that have a request left, shape (K,)."""
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

    def fitting_on(self, row: int, per_device: Mapping[str, int]) -> int:
        """Return the number of cards of a row with at least `per_device` left on each.

        For GPUs, a missing memory or memory ratio follows from the size of the card. No arrays are used.
        """
        needs = self._needs(per_device)
        memory, ratio = per_device.get(GPU_MEMORY), per_device.get(GPU_MEMORY_RATIO)
        is_filled = self.type == GPU_TYPE and (memory is None) != (ratio is None)
        left, capacity = self.left_at, self.memory_at
        found = 0
        for place in range(self.width_of(row)):
            for index, amount in needs:
                if left[index, row, place] < amount:
                    break
            else:
                if is_filled and capacity[row, place] > 0:
                    if ratio is not None:
                        if left[_MEMORY, row, place] < capacity[row, place] * ratio // WHOLE:
                            continue
                    elif memory is not None and left[_RATIO, row, place] < int(memory / capacity[row, place] * WHOLE):
                        continue
                found += 1
        return found

    def _needs(self, per_device: Mapping[str, int]) -> list[tuple[int, int]]:
        return [(index, per_device[name]) for index, name in enumerate(self.names) if name in per_device]


def _percent(memory: int, capacity: IntArray) -> IntArray:
    """Return ⌊memory / capacity * 100⌋ in float arithmetic, shape of capacity; 0 where there is no memory."""
    asked = np.full(capacity.shape, float(memory))
    share: NDArray[np.float64] = np.divide(asked, capacity, out=np.zeros(capacity.shape), where=capacity > 0)
    return np.minimum(share * WHOLE, float(UNLIMITED >> 1)).astype(np.int64)


def node_scores(
    types: Iterable[TypeColumns], request: Mapping[str, int], scoring: DeviceScoring, rows: Rows
) -> IntArray:
    """Return the score of each row by the sums over its devices, int64 (K,) within 0..100.

    Args:
        types: Columns of the requested types.
        request: What the pod requests in all, by resource name.
        scoring: The strategy.
        rows: Rows of nodes.
    """
    columns = list(types)
    sum_: IntArray = np.zeros(len(rows), np.int64)
    weights: IntArray = np.zeros(len(rows), np.int64)
    for name, weight in scoring.weights:
        for column in columns:
            if name not in column.names:
                continue
            index = column.names.index(name)
            capacity = column.total[index][rows]
            requested = capacity - column.free[index][rows] + request.get(name, 0)
            counts = capacity > 0
            divisor = np.where(counts, capacity, 1)
            taken = np.minimum(requested, capacity)
            part = (capacity - taken if scoring.is_least else taken) * MAX_SCORE // divisor
            sum_ += np.where(counts, weight * part, 0)
            weights += np.where(counts, weight, 0)
    return np.where(weights > 0, sum_ // np.maximum(weights, 1), 0)


def node_score(types: Iterable[TypeColumns], request: Mapping[str, int], scoring: DeviceScoring, row: int) -> int:
    """Return the same for one row."""
    sum_, weights = 0, 0
    for name, weight in scoring.weights:
        for column in types:
            if name not in column.names:
                continue
            index = column.names.index(name)
            capacity = int(column.total[index, row])
            if capacity > 0:
                taken = min(capacity, capacity - column.free_at[index, row] + request.get(name, 0))
                sum_ += weight * ((capacity - taken if scoring.is_least else taken) * MAX_SCORE // capacity)
                weights += weight
    return sum_ // weights if weights else 0
