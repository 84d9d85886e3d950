"""Chance with themes: what a case has, it has often, so that its parts meet."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
NAMESPACES = ("default", "a", "b")


class Dice:
    """All that is random in one case."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._factors: dict[str, float] = {}

    def has(self, feature: str, share: float) -> bool:
        """Whether this part has a feature, which parts have in this share over all cases. Half of all cases lack it."""
        if feature not in self._factors:
            self._factors[feature] = self._random.choice((0, 0, 1, 3))
        return self.chance(min(0.9, share * self._factors[feature]))

    def lean(self, feature: str, factor: float = 3) -> None:
        """Let parts have a feature so many times as often as usual."""
        self._factors[feature] = factor

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def one(self, values: Sequence[T]) -> T:
        return self._random.choice(values)

    def some(self, values: Sequence[T], most: int) -> list[T]:
        """One or more different values, in any order."""
        return self._random.sample(values, self._random.randint(1, min(most, len(values))))

    def number(self, least: int, most: int) -> int:
        return self._random.randint(least, most)

    def labels(self, pools: dict[str, tuple[str, ...]], share: float = 0.7) -> dict[str, str]:
        """Some of the keys, each with one of its values."""
        return {key: self.one(values) for key, values in pools.items() if self.chance(share)}
