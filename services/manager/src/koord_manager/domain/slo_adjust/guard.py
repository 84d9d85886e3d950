"""Limit the number of nodes with a lowered weight.

If very many nodes look abnormal, the cause is probably the measurement.

Source:
    manager spec, 16.3
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from koord_manager.domain.slo_adjust.step import FULL_WEIGHT

_FLOAT_NOISE = 1e-9
"""0.1 * 30 is slightly more than 3, which must not allow a fourth node."""


class NodeWeight(NamedTuple):
    """Input of the guard: the name of a node, its smoothed abnormality from 0 to 1, and its computed weight of 100."""

    name: str
    abnormality: float
    weight: int


class Guarded(NamedTuple):
    """The weights of all nodes after the number of nodes with a lowered weight was limited.

    Attributes:
        weights: Name of a node -> weight to publish. Nodes beyond the limit have the full weight, 100.
        abnormal: Names of all nodes whose computed weight is lower than 100, worst first.
        cap: Maximum number of nodes with a lowered weight.
    """

    weights: dict[str, int]
    abnormal: list[str]
    cap: int

    @property
    def is_mass_abnormal(self) -> bool:
        """Whether the number of abnormal nodes is above the limit of nodes whose weight may be lowered."""
        return len(self.abnormal) > self.cap


def guard_weights(max_abnormal_ratio: float, nodes: Iterable[NodeWeight]) -> Guarded:
    """Return the weights to publish.

    At most `max_abnormal_ratio` of the nodes, the most abnormal ones, get a lower weight. The number is rounded up.

    Args:
        max_abnormal_ratio: Share of the nodes, from 0 to 1.
        nodes: All assessed nodes.

    Source:
        manager spec, 16.3; vectors manager/slo_weights
    """
    everything = list(nodes)
    cap = math.ceil(max_abnormal_ratio * len(everything) - _FLOAT_NOISE)
    lowered = sorted(
        (node for node in everything if node.weight < FULL_WEIGHT), key=lambda node: (-node.abnormality, node.name)
    )
    weights = {node.name: FULL_WEIGHT for node in everything}
    weights.update((node.name, node.weight) for node in lowered[:cap])
    return Guarded(weights, [node.name for node in lowered], cap)
