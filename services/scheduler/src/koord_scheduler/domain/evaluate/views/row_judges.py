"""The plugins that read the load, for a single row without arrays: what a placement changes is one node."""

from typing import NamedTuple

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.evaluate.asked import RowPlugins
from koord_scheduler.domain.evaluate.views.refusals import CODE_BITS
from koord_scheduler.domain.framework.node_points import RowJudge
from koord_scheduler.domain.pods.equivalence_classes import PodClass


class RowJudges(NamedTuple):
    """The same for one kind of pod: those that have something to say of it. Filters with the base of their verdicts."""

    filters: list[tuple[int, RowJudge]]
    scores: list[tuple[int, RowJudge, int]]

    @classmethod
    def of(cls, plugins: RowPlugins, pod: PodClass, nodes: NodeColumns) -> "RowJudges":
        """The judges of one kind of pod."""
        filters = [((index + 1) << CODE_BITS, plugin.row_filter(pod, nodes)) for index, plugin in plugins.filters]
        scores = [(index, plugin.row_score(pod, nodes), weight) for index, plugin, weight in plugins.scores]
        return cls(
            [(base, judge) for base, judge in filters if judge is not None],
            [(index, judge, weight) for index, judge, weight in scores if judge is not None],
        )
