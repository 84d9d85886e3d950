"""Filter statuses: one number per row that tells which plugin refuses it, and the reasons in words.

-1: the row is not a node; 0: feasible; otherwise (place of the refusing plugin + 1) << 48 | its code
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from koordcore.events.scheduling.placement_explanation import PluginExclusion

from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.framework.node_points import FilterPlugin
from koord_scheduler.domain.pods.equivalence_classes import PodClass

NO_NODE: Final = -1
FEASIBLE: Final = 0
CODE_BITS: Final = 48
CODE_MASK: Final = (1 << CODE_BITS) - 1


class Refusals(NamedTuple):
    """Rows that one plugin refuses for one reason.

    Attributes:
        plugin: Name of the plugin.
        reason: Phrase for users.
        rows: The rows, ascending, shape (K,).
        is_resolvable: Whether the rows may become feasible if pods leave.
    """

    plugin: str
    reason: str
    rows: Rows
    is_resolvable: bool


def refused_by(index: int, codes: IntArray, statuses: IntArray) -> IntArray:
    """Return filter statuses in which one more filter has refused rows that were feasible before.

    Args:
        index: Place of the filter in the profile.
        codes: Its code for each row, int64 (K,); 0 passes.
        statuses: Filter status of each row, int64 (K,).
    """
    return np.where((statuses == FEASIBLE) & (codes != 0), codes | ((index + 1) << CODE_BITS), statuses)


def refusals_of(
    statuses: IntArray, filters: Sequence[FilterPlugin], pod: PodClass, nodes: NodeColumns
) -> list[Refusals]:
    """Return which plugin refuses which rows for which reason.

    Args:
        statuses: Filter status of every row, int64 (N,).
        filters: The filters of the profile.
        pod: The class of pods.
        nodes: All nodes.
    """
    found: list[Refusals] = []
    for status in row_list(np.unique(statuses[statuses > FEASIBLE])):
        plugin = filters[(status >> CODE_BITS) - 1]
        reason = ", ".join(plugin.reasons(pod, nodes, status & CODE_MASK))
        rows = np.flatnonzero(statuses == status)
        never = plugin.unresolvable(pod, nodes, rows)
        found += [
            Refusals(plugin.name, reason, part, resolvable)
            for part, resolvable in ((rows[~never], True), (rows[never], False))
            if len(part)
        ]
    return found


def explained(
    counts: Mapping[int, int], filters: Sequence[FilterPlugin], pod: PodClass, nodes: NodeColumns
) -> list[PluginExclusion]:
    """Return the number of nodes that each plugin refused, and the reasons, in the order of the filters.

    Filters that refused no node are absent.

    Args:
        counts: Filter status -> number of nodes.
        filters: The filters of the profile.
        pod: The class of pods.
        nodes: All nodes.
    """
    excluded = [0] * len(filters)
    reasons: list[dict[str, int]] = [{} for _ in filters]
    for status in sorted(counts):
        count = counts[status]
        if status <= FEASIBLE or count == 0:
            continue
        index = (status >> CODE_BITS) - 1
        excluded[index] += count
        for reason in filters[index].reasons(pod, nodes, status & CODE_MASK):
            reasons[index][reason] = reasons[index].get(reason, 0) + count
    return [
        PluginExclusion(plugin=plugin.name, excluded=excluded[index], reasons=reasons[index])
        for index, plugin in enumerate(filters)
        if excluded[index]
    ]
