"""Conversion of cpu.shares of cgroup v1 to cpu.weight of cgroup v2.

Container runtimes have two lines. The old one makes a pod with 1 core weigh less than half of a cgroup that nobody set.
So the weights of both lines count as equal, and the agent writes those of the runtime of its node.

Source: opencontainers/runc 4896, Kubernetes blog of 2026-01-30; decision 0051.
"""

import math
from collections.abc import Iterable
from enum import StrEnum

from koordcore.values.invalid import InvalidInput

MIN_SHARES, MAX_SHARES = 2, 262_144
MIN_WEIGHT, MAX_WEIGHT = 1, 10_000


class WeightLine(StrEnum):
    """QUADRATIC: runc since 1.3.2 and crun since 1.23; 1024 shares weigh 100. LINEAR: older ones; they weigh 39."""

    QUADRATIC = "quadratic"
    LINEAR = "linear"


def shares_to_weight(shares: int, line: WeightLine = WeightLine.QUADRATIC) -> int:
    """Return the weight of shares between 2 and 262144.

    quadratic: ceil(10 ** ((l * l + 125 * l) / 612 - 7 / 34)) with l = log2(shares)
    linear: 1 + (shares - 2) * 9999 / 262142
    """
    if line is WeightLine.LINEAR:
        return MIN_WEIGHT + ((shares - MIN_SHARES) * (MAX_WEIGHT - MIN_WEIGHT)) // (MAX_SHARES - MIN_SHARES)
    if shares <= MIN_SHARES:
        return MIN_WEIGHT
    exponent = math.log2(shares)
    return min(math.ceil(10 ** ((exponent * exponent + 125 * exponent) / 612 - 7 / 34)), MAX_WEIGHT)


def weights_of(shares: int) -> frozenset[int]:
    """The weights that runtimes write for shares."""
    return frozenset(shares_to_weight(shares, line) for line in WeightLine)


def weight_to_shares(weight: int) -> int:
    """Convert cpu.weight of cgroup v2 to cpu.shares of v1 by the old line: ((w - 1) * 262142) / 9999 + 2.

    Raises:
        InvalidInput: The weight is outside 1..10000.
    """
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise InvalidInput(f"{MIN_WEIGHT}..{MAX_WEIGHT}", weight, "cpu.weight")
    shares = ((weight - MIN_WEIGHT) * (MAX_SHARES - MIN_SHARES)) // (MAX_WEIGHT - MIN_WEIGHT) + MIN_SHARES
    return min(max(shares, MIN_SHARES), MAX_SHARES)


def line_of(samples: Iterable[tuple[int, int]]) -> WeightLine | None:
    """Return the line of a runtime that gave these weights to these shares; None if they do not show it.

    The line with more weights counts: a weight that somebody else wrote may be on the other one.
    """
    matches = dict.fromkeys(WeightLine, 0)
    for shares, weight in samples:
        if len(weights_of(shares)) > 1:
            for line in WeightLine:
                matches[line] += weight == shares_to_weight(shares, line)
    new, old = matches[WeightLine.QUADRATIC], matches[WeightLine.LINEAR]
    return None if new == old else WeightLine.QUADRATIC if new > old else WeightLine.LINEAR
