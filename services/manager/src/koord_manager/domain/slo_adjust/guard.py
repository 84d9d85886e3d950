"""How many nodes may stand with a lowered weight at once: when everything looks abnormal, the measure is.

source    manager spec, 16.3
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from koord_manager.domain.slo_adjust.step import FULL_WEIGHT

_FLOAT_NOISE = 1e-9
"""0.1 * 30 is a little more than 3: that must not make a fourth node."""


class NodeWeight(NamedTuple):
    """A node's own weight and abnormality."""

    name: str
    abnormality: float
    weight: int


class Guarded(NamedTuple):
    """The weights that are reported, the nodes that would be lowered, and how many may be."""

    weights: dict[str, int]
    abnormal: list[str]
    cap: int

    @property
    def is_mass_abnormal(self) -> bool:
        """Whether more nodes are abnormal than may be lowered."""
        return len(self.abnormal) > self.cap


def guard_weights(max_abnormal_ratio: float, nodes: Iterable[NodeWeight]) -> Guarded:
    """The weight that each node is reported with: the most abnormal ones, up to the cap, keep their own.

    source    manager spec, 16.3; vectors manager/slo_weights
    """
    everything = list(nodes)
    cap = math.ceil(max_abnormal_ratio * len(everything) - _FLOAT_NOISE)
    lowered = sorted(
        (node for node in everything if node.weight < FULL_WEIGHT), key=lambda node: (-node.abnormality, node.name)
    )
    weights = {node.name: FULL_WEIGHT for node in everything}
    weights.update((node.name, node.weight) for node in lowered[:cap])
    return Guarded(weights, [node.name for node in lowered], cap)
