"""The plugins of a profile, asked about some rows; what they say of the shape of nodes is kept per kind of pod."""

from collections import OrderedDict
from typing import Final

import numpy as np

from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows
from koord_scheduler.domain.evaluate.asked import AskedPlugins
from koord_scheduler.domain.evaluate.views.refusals import FEASIBLE, NO_NODE, refused_by
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.framework.profile import Profile
from koord_scheduler.domain.pods.equivalence_classes import PodClass

MOST_KEPT: Final = 256
"""Kinds of pods, by what they ask of the shape of nodes, and by all that they ask."""


class Judged:
    """Answers of some of the plugins for every row: verdicts, and raw scores per plugin (None: all 0)."""

    __slots__ = ("position", "raw", "verdict")

    def __init__(self, capacity: int, scores: int) -> None:
        self.position = 0
        self.verdict: IntArray = np.full(capacity, NO_NODE, np.int64)
        self.raw: list[IntArray | None] = [None] * scores

    def store_raw(self, index: int, rows: Rows, values: IntArray | None) -> None:
        """Keep a plugin's raw scores for some rows."""
        raw = self.raw[index]
        if raw is None:
            if values is None:
                return
            raw = self.raw[index] = np.zeros(len(self.verdict), np.int64)
        raw[rows] = 0 if values is None else values


class Answers:
    """The plugins of one profile over the columns of one cluster.

    asked      the plugins that concern each class of pods

    Args:
        keep: False: nothing is kept from one look to the next.
    """

    def __init__(self, nodes: NodeColumns, profile: Profile, *, keep: bool = True) -> None:
        self._keep = keep
        self.nodes = nodes
        self.profile = profile
        self.asked = AskedPlugins(profile)
        self._shapes: OrderedDict[bytes, Judged] = OrderedDict()

    def passing(self, pod: PodClass, rows: Rows) -> Rows:
        """Return the given rows that pass every filter, without caching the answer."""
        nodes = self.nodes
        rows = rows[nodes.alive[rows]]
        for _, plugin in self.asked.of(pod).filters:
            if len(rows) == 0:
                return rows
            codes = plugin.filter(pod, nodes, rows)
            if codes is not None:
                rows = rows[codes == 0]
        return rows

    def passes(self, pod: PodClass, row: int) -> bool:
        """Return whether one row passes every filter now, including load that is assumed for a trial."""
        if pod.shape_key not in self._shapes:
            return len(self.passing(pod, np.array([row], np.intp))) > 0
        if not self.suits(pod, row):
            return False
        asked = self.asked.of(pod)
        for single in asked.row_filters:
            function = single.row_filter(pod, self.nodes)
            if function is not None and function(row):
                return False
        for plugin in asked.other_filters:
            codes = plugin.filter(pod, self.nodes, np.array([row], np.intp))
            if codes is not None and codes[0]:
                return False
        return True

    def suits(self, pod: PodClass, row: int) -> bool:
        """Return whether one row passes the filters that do not read load."""
        return self.shape_of(pod).verdict.item(row) == FEASIBLE

    def shape_of(self, pod: PodClass) -> Judged:
        """Up-to-date answers of the plugins that read the shape of nodes."""
        judged = self._shapes.get(pod.shape_key) if self._keep else None
        if judged is None or len(judged.verdict) != self.nodes.capacity:
            judged = self._shapes[pod.shape_key] = Judged(self.nodes.capacity, len(self.profile.scores))
            changed = None
            if len(self._shapes) > MOST_KEPT:
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(pod.shape_key)
            if judged.position == self.nodes.shape.position:
                return judged
            changed = self.nodes.shape.since(judged.position)
        rows = all_rows(self.nodes) if changed is None else np.array(sorted(changed), np.intp)
        judged.verdict[rows] = np.where(self.nodes.alive[rows], FEASIBLE, NO_NODE)
        self.ask(Reads.SHAPE, pod, rows, judged)
        judged.position = self.nodes.shape.position
        return judged

    def ask(self, reads: Reads, pod: PodClass, rows: Rows, into: Judged) -> None:
        """Ask the plugins of one kind about some rows; a row keeps the verdict of the first plugin that refused it."""
        filters, scores = self.asked.of(pod).by_reads[reads]
        nodes = self.nodes
        for index, plugin in filters:
            codes = plugin.filter(pod, nodes, rows)
            if codes is not None:
                into.verdict[rows] = refused_by(index, codes, into.verdict[rows])
        for index, scorer in scores:
            into.store_raw(index, rows, scorer.score(pod, nodes, rows))


def all_rows(nodes: NodeColumns) -> Rows:
    """Return every row that is or was a node."""
    return np.arange(len(nodes.names), dtype=np.intp)
