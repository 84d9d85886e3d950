"""Calls the filters and scores of a profile for some nodes. Results that depend on the nodes' shape are cached.

A row is the position of a node in the node columns.
"""

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
"""Maximum number of cached classes of pods: by what they ask of the shape of nodes, and by everything that they ask."""


class RowAnswers:
    """Filter and score results of some plugins for all nodes, as cached arrays.

    Attributes:
        position: Position in the journal of changed nodes up to which the results are current.
        status: Filter status of each node, int64 (N,): -1 no node, 0 feasible, otherwise who refuses it (`refusals`).
        raw: For each score of the profile: raw scores, int64 (N,); None if all are 0.
        status_at, raw_at: The same memory for single elements, which is faster.
    """

    __slots__ = ("position", "raw", "raw_at", "status", "status_at")

    def __init__(self, capacity: int, scores: int) -> None:
        self.position = 0
        self.status: IntArray = np.full(capacity, NO_NODE, np.int64)
        self.status_at = self.status.data
        self.raw: list[IntArray | None] = [None] * scores
        self.raw_at: list[memoryview | None] = [None] * scores

    def store_raw(self, index: int, rows: Rows, values: IntArray | None) -> None:
        """Store a plugin's raw scores for some nodes.

        Args:
            index: Index of the plugin in the profile's scores.
            rows: Positions of the nodes, shape (K,).
            values: Raw scores, int64 (K,); None if all are 0.
        """
        raw = self.raw[index]
        if raw is None:
            if values is None:
                return
            raw = self.raw[index] = np.zeros(len(self.status), np.int64)
            self.raw_at[index] = raw.data
        raw[rows] = 0 if values is None else values


class Answers:
    """Calls the filters and scores of one profile, and caches the results that depend on the shape of nodes alone.

    Attributes:
        asked: Which filters and scores apply to each class of pods.

    Args:
        keep: Whether results are cached between cycles.
    """

    def __init__(self, nodes: NodeColumns, profile: Profile, *, keep: bool = True) -> None:
        self._keep = keep
        self.nodes = nodes
        self.profile = profile
        self.asked = AskedPlugins(profile)
        self._shapes: OrderedDict[bytes, RowAnswers] = OrderedDict()

    def passing(self, pod: PodClass, rows: Rows) -> Rows:
        """Return the positions of the nodes at `rows` that pass every filter for the class.

        The result is not cached.
        """
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
        """Return whether the node at position `row` passes every filter now.

        Pods that are on the node on trial count.
        """
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
        """Return whether the node at position `row` passes the filters that read only its labels, taints and flags."""
        return self.shape_of(pod).status.item(row) == FEASIBLE

    def shape_of(self, pod: PodClass) -> RowAnswers:
        """Return the results of the plugins that read only labels, taints and flags, after updating changed nodes."""
        answers = self._shapes.get(pod.shape_key) if self._keep else None
        if answers is None or len(answers.status) != self.nodes.capacity:
            answers = self._shapes[pod.shape_key] = RowAnswers(self.nodes.capacity, len(self.profile.scores))
            changed = None
            if len(self._shapes) > MOST_KEPT:
                self._shapes.popitem(last=False)
        else:
            self._shapes.move_to_end(pod.shape_key)
            if answers.position == self.nodes.shape.position:
                return answers
            changed = self.nodes.shape.since(answers.position)
        rows = all_rows(self.nodes) if changed is None else np.array(sorted(changed), np.intp)
        answers.status[rows] = np.where(self.nodes.alive[rows], FEASIBLE, NO_NODE)
        self.ask(Reads.SHAPE, pod, rows, answers)
        answers.position = self.nodes.shape.position
        return answers

    def ask(self, reads: Reads, pod: PodClass, rows: Rows, into: RowAnswers) -> None:
        """Call the plugins that read the shape of nodes, or those that read their load, and store the results.

        The filter status of a node names the first plugin that refuses it.

        Args:
            reads: Which plugins to call.
            pod: Equivalence class of the pods.
            rows: Positions of the nodes, shape (K,).
            into: Where the results are stored.
        """
        filters, scores = self.asked.of(pod).by_reads[reads]
        nodes = self.nodes
        for index, plugin in filters:
            codes = plugin.filter(pod, nodes, rows)
            if codes is not None:
                into.status[rows] = refused_by(index, codes, into.status[rows])
        for index, scorer in scores:
            into.store_raw(index, rows, scorer.score(pod, nodes, rows))


def all_rows(nodes: NodeColumns) -> Rows:
    """Return every node position that is in use or was in use before its node was deleted."""
    return np.arange(len(nodes.names), dtype=np.intp)
