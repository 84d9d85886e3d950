"""Count the reasons why pods are pending: the reasons that excluded nodes in their last attempts."""

from collections.abc import Iterable

import msgspec
from koordcore.events.explanations import PodUnschedulable


class PendingReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why nodes were refused, and the number of pending pods with it.

    Attributes:
        plugin: Plugin that refused the nodes.
        reason: Text of the reason.
        pods: Number of pending pods with this reason.
        nodes_max: Largest number of nodes that it excluded for one pod.
    """

    plugin: str
    reason: str
    pods: int
    nodes_max: int


def count_reasons(explanations: Iterable[PodUnschedulable]) -> list[PendingReason]:
    """Count the reasons in the last explanations of pending pods. The most frequent one comes first."""
    counted: dict[tuple[str, str], tuple[int, int]] = {}
    for explanation in explanations:
        for exclusion in explanation.explanation.exclusions:
            for reason, nodes in exclusion.reasons.items():
                pods, most = counted.get((exclusion.plugin, reason), (0, 0))
                counted[exclusion.plugin, reason] = (pods + 1, max(most, nodes))
    ordered = sorted(counted.items(), key=lambda item: (-item[1][0], -item[1][1], item[0]))
    return [
        PendingReason(plugin=plugin, reason=reason, pods=pods, nodes_max=most)
        for (plugin, reason), (pods, most) in ordered
    ]
