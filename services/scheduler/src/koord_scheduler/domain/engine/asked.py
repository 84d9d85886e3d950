"""The filters and scores of a profile that concern a pod equivalence class, with their positions in the profile.

For other classes, the filter passes every node and the score is 0.
"""

from typing import NamedTuple, cast

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.node_points import (
    FilterPlugin,
    Reads,
    RowFilterPlugin,
    RowScorePlugin,
    ScorePlugin,
)
from koord_scheduler.domain.framework.plugin import Plugin, declares
from koord_scheduler.domain.framework.profile import Profile


class RowPlugins(NamedTuple):
    """The filters and scores of a class that read the load of nodes and can evaluate one node without arrays."""

    filters: list[tuple[int, RowFilterPlugin]]  # (index in the profile's filters, filter)
    scores: list[tuple[int, RowScorePlugin, int]]  # (index in the profile's scores, score, weight)


class Asked:
    """The filters and scores of a profile that apply to one class of pods. An index is a plugin's position in the
    profile.
    """

    def __init__(self, profile: Profile, concerned: int) -> None:
        plugins = profile.concerning(concerned)
        ids = {id(plugin) for plugin in (*plugins.at(points.FILTER), *plugins.at(points.SCORE))}
        # (index, filter), in the order in which they refuse.
        self.filters = [(place, each) for place, each in enumerate(profile.filters) if id(each) in ids]
        # Index -> score.
        self.scores = {place: each for place, (each, _) in enumerate(profile.scores) if id(each) in ids}
        # The filters and the scores, grouped by the part of a node that they read: its shape or its load.
        self.by_reads: dict[Reads, tuple[list[tuple[int, FilterPlugin]], list[tuple[int, ScorePlugin]]]] = {
            reads: (
                [(place, each) for place, each in self.filters if each.reads is reads],
                [(place, each) for place, each in self.scores.items() if each.reads is reads],
            )
            for reads in Reads
        }
        load_filters, load_scores = self.by_reads[Reads.LOAD]
        row_filters = [(place, found) for place, each in load_filters if (found := row_filter_of(each)) is not None]
        # Filters that read load and can evaluate one node without arrays.
        self.row_filters = [each for _, each in row_filters]
        # Filters that read load and need arrays.
        self.other_filters = [each for _, each in load_filters if row_filter_of(each) is None]
        row_scores = [
            (place, found, profile.scores[place][1])
            for place, each in load_scores
            if (found := row_score_of(each)) is not None
        ]
        needs_arrays = self.other_filters or len(row_scores) < len(load_scores)
        # All plugins that read load, for a single node; None if one of them needs arrays.
        self.rows = None if needs_arrays else RowPlugins(row_filters, row_scores)
        versions = {id(plugin): plugin.version for plugin in plugins.at(points.CROSS_NODE_FILTER)}
        versions |= {id(plugin): plugin.version for plugin in plugins.at(points.CROSS_NODE_SCORE)}
        # `version` methods of the plugins that read pods on other nodes. Results are valid while the versions are
        # equal.
        self.versions = list(versions.values())


class AskedPlugins:
    """Finds and caches which filters and scores of a profile apply to a class of pods."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._by_concerned: dict[int, Asked] = {}

    def of(self, pod: PodClass) -> Asked:
        """The filters and scores that concern the pods of the class. Classes with the same plugins share one result."""
        asked = self._by_concerned.get(pod.concerned)
        if asked is None:
            asked = self._by_concerned[pod.concerned] = Asked(self._profile, pod.concerned)
        return asked


def row_filter_of(plugin: Plugin) -> RowFilterPlugin | None:
    """None if it is no filter that can evaluate one node without arrays."""
    return cast("RowFilterPlugin", plugin) if declares(plugin, points.ROW_FILTER) else None


def row_score_of(plugin: Plugin) -> RowScorePlugin | None:
    """None if it is no score that can evaluate one node without arrays."""
    return cast("RowScorePlugin", plugin) if declares(plugin, points.ROW_SCORE) else None
