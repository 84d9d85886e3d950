"""Filter statuses: one number per node, which encodes the plugin that refuses the node and its reason.

-1: there is no node at this position; 0: feasible; otherwise (index of the refusing plugin + 1) << 48 | its code
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from koordcore.events.pod import PluginExclusion

from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.framework.node_points import FilterPlugin
from koord_scheduler.domain.pods.equivalence_classes import PodClass

NO_NODE: Final = -1
FEASIBLE: Final = 0
CODE_BITS: Final = 48
CODE_MASK: Final = (1 << CODE_BITS) - 1


class Refusals(NamedTuple):
    """The nodes that one plugin refuses for one reason.

    Attributes:
        plugin: Name of the plugin.
        reason: Phrase for users.
        rows: Positions of the nodes, ascending, shape (K,).
        is_resolvable: Whether the nodes may become feasible if pods leave them.
    """

    plugin: str
    reason: str
    rows: Rows
    is_resolvable: bool


def refused_by(index: int, codes: IntArray, statuses: IntArray) -> IntArray:
    """Return the filter statuses after one more filter. A feasible node that this filter refuses gets its status.

    Args:
        index: Index of the filter in the profile's filters.
        codes: Code of the filter for each node, int64 (K,); 0 passes.
        statuses: Filter status of each node before, int64 (K,).
    """
    return np.where((statuses == FEASIBLE) & (codes != 0), codes | ((index + 1) << CODE_BITS), statuses)


def refusals_of(
    statuses: IntArray, filters: Sequence[FilterPlugin], pod: PodClass, nodes: NodeColumns
) -> list[Refusals]:
    """Return the refused nodes by plugin and reason, from filter statuses.

    Args:
        statuses: Filter status of every position, int64 (N,).
        filters: The filters of the profile.
        pod: Equivalence class of the pods.
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

    A filter that refused no node has no entry.

    Args:
        counts: Filter status -> number of nodes.
        filters: The filters of the profile.
        pod: Equivalence class of the pods.
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


def merged(exclusions: Iterable[PluginExclusion]) -> list[PluginExclusion]:
    """Return one exclusion per plugin, in the order of their first occurrence.

    The numbers of nodes of entries with the same plugin are summed, in total and for each reason.
    """
    excluded: dict[str, int] = {}
    reasons: dict[str, dict[str, int]] = {}
    for each in exclusions:
        excluded[each.plugin] = excluded.get(each.plugin, 0) + each.excluded
        known = reasons.setdefault(each.plugin, {})
        for reason, count in each.reasons.items():
            known[reason] = known.get(reason, 0) + count
    return [PluginExclusion(plugin=plugin, excluded=excluded[plugin], reasons=reasons[plugin]) for plugin in excluded]
