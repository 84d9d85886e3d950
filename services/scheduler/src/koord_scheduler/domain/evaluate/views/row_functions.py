"""The plugins that read the load, for a single row without arrays: what a placement changes is one node."""

from typing import NamedTuple

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.evaluate.asked import RowPlugins
from koord_scheduler.domain.evaluate.views.refusals import CODE_BITS
from koord_scheduler.domain.framework.node_points import RowFunction
from koord_scheduler.domain.pods.equivalence_classes import PodClass


class RowFunctions(NamedTuple):
    """Filters and scores of one class of pods as functions of one row; each filter with the base of its verdicts."""

    filters: list[tuple[int, RowFunction]]
    scores: list[tuple[int, RowFunction, int]]

    @classmethod
    def of(cls, plugins: RowPlugins, pod: PodClass, nodes: NodeColumns) -> "RowFunctions":
        """Return the functions that the plugins have for one class of pods."""
        filters = [((index + 1) << CODE_BITS, plugin.row_filter(pod, nodes)) for index, plugin in plugins.filters]
        scores = [(index, plugin.row_score(pod, nodes), weight) for index, plugin, weight in plugins.scores]
        return cls(
            [(base, function) for base, function in filters if function is not None],
            [(index, function, weight) for index, function, weight in scores if function is not None],
        )
