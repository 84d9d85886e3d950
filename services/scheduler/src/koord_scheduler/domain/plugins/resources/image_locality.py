"""ImageLocality: prefers nodes that have the pod's container images. The scores of a pod class are computed for all
nodes at once and cached. They are computed again (`settle`) if one of its images comes to a node or leaves it, or if
the number of nodes changes. Only nodes whose score has changed are evaluated again.

Source: scheduler-core spec, 5.8
"""

from collections.abc import Hashable
from typing import Final, cast
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from koordcore.protocol.objects import Node, Pod

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.cluster.node_facts import images_of, normalized
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.framework.extension_points import (
    FOLLOW_NODES,
    READ_POD,
    ROW_SCORE,
    ROW_STATES,
    SCORE,
    SETTLE,
)
from koord_scheduler.domain.framework.node_points import Reads, RowFunction, RowStates
from koord_scheduler.domain.plugins.resources.scores import RawScores

_MIB: Final = 1 << 20
LEAST_BYTES: Final = 23 * _MIB
MOST_BYTES_PER_CONTAINER: Final = 1000 * _MIB


class ImageLocality(RawScores):
    """The plugin ImageLocality: scores nodes higher that already have large images of the pod."""

    name = "ImageLocality"
    extension_points = (SCORE, ROW_SCORE, ROW_STATES, READ_POD, FOLLOW_NODES, SETTLE)
    reads = Reads.LOAD

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self.on_rows: dict[str, dict[int, int]] = {}
        self._of_row: dict[int, dict[str, int]] = {}
        self._scores: WeakKeyDictionary[PodClass, IntArray] = WeakKeyDictionary()
        self._users: dict[str, WeakSet[PodClass]] = {}
        self._forgetting = Forgetting()
        self._stale: WeakSet[PodClass] = WeakSet()
        self._count = 0

    # --- what happens ------------------------------------------------------------------------------------------------

    def put_node(self, row: int, node: Node) -> None:
        """Record the images of a node and their sizes. `settle` computes the scores of changed images again."""
        sizes = images_of(node)
        before = self._of_row.get(row, {})
        if sizes != before:
            self._of_row[row] = sizes
            for image in before.keys() - sizes.keys():
                self._take_off(row, image)
            for image, size in sizes.items() - before.items():
                self.on_rows.setdefault(image, {})[row] = size
                self._stale.update(self._users.get(image, ()))

    def drop_node(self, row: int) -> None:
        for image in self._of_row.pop(row, {}):
            self._take_off(row, image)

    def settle(self) -> None:
        if self._count != len(self.nodes):
            self._count = len(self.nodes)
            self._stale.update(self._scores.keys())
        for pod_class in list(self._stale):
            before, after = self._of(pod_class), self._worked_out(pod_class)
            for row in row_list(np.flatnonzero(before != after)):
                self.nodes.load.record(row)
            self._scores[pod_class] = after
        self._stale.clear()

    # --- what is asked -----------------------------------------------------------------------------------------------

    def read(self, pod: Pod) -> Hashable:
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return tuple(normalized(container.image) for container in containers if container.image) or None

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return higher scores the more bytes of the pod's images the node has. None if no node has any of them."""
        scores = self._of(pod)
        return scores[rows] if scores.any() else None

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function that scores one node; None for classes without images. If only this function is used for a
        class, no scores are cached for the class.
        """
        kept = self._scores

        def score(row: int) -> int:
            scores = kept.get(pod)
            return self._score_on(pod, row) if scores is None or row >= len(scores) else scores.item(row)

        return score if self._images(pod) else None

    def row_states(self, pod: PodClass, nodes: NodeColumns) -> RowStates:
        """Return a state that is equal for all classes with equal images, so that they share their scores."""
        images = self._images(pod)
        if images:
            self._of(pod)  # from now on, `settle` records the nodes whose score changes
        return RowStates(images, score=self.row_score(pod, nodes))

    def _of(self, pod_class: PodClass) -> IntArray:
        """Return the scores of every row, int64 (N,)."""
        scores = self._scores.get(pod_class)
        if scores is None:
            for image in self._images(pod_class):
                self._users.setdefault(image, WeakSet()).add(pod_class)
            if self._forgetting.is_due(len(self._users)):
                self._users = {image: users for image, users in self._users.items() if users}
                self._forgetting.searched(len(self._users))
            scores = self._scores[pod_class] = self._worked_out(pod_class)
        elif len(scores) < self.nodes.capacity:
            larger = np.zeros(self.nodes.capacity, np.int64)
            larger[: len(scores)] = scores
            scores = self._scores[pod_class] = larger
        return scores

    def _worked_out(self, pod_class: PodClass) -> IntArray:
        """Return the score of every row. Over the pod's images on the node, size * (nodes with the image / all nodes)
        is summed up, and scaled between two bounds.
        """
        images = self._images(pod_class)
        total = np.zeros(self.nodes.capacity, np.int64)
        for image in images:
            on_rows = self.on_rows.get(image)
            if on_rows:
                rows = np.fromiter(on_rows.keys(), np.intp, len(on_rows))
                sizes = np.fromiter(on_rows.values(), np.int64, len(on_rows))
                total[rows] += np.trunc(sizes * (len(on_rows) / len(self.nodes))).astype(np.int64)
        most = MOST_BYTES_PER_CONTAINER * max(len(images), 1)
        return 100 * (np.clip(total, LEAST_BYTES, most) - LEAST_BYTES) // (most - LEAST_BYTES)

    def _score_on(self, pod_class: PodClass, row: int) -> int:
        """Return the score of one row, without caching anything."""
        images, present = self._images(pod_class), self._of_row.get(row, {})
        total = sum(
            int(present[image] * (len(self.on_rows[image]) / len(self.nodes))) for image in images if image in present
        )
        most = MOST_BYTES_PER_CONTAINER * max(len(images), 1)
        return 100 * (min(max(total, LEAST_BYTES), most) - LEAST_BYTES) // (most - LEAST_BYTES)

    def _images(self, pod_class: PodClass) -> tuple[str, ...]:
        return cast("tuple[str, ...]", pod_class.aspects.get(self.name, ()))

    def _take_off(self, row: int, image: str) -> None:
        rows = self.on_rows[image]
        del rows[row]
        if not rows:
            del self.on_rows[image]
        self._stale.update(self._users.get(image, ()))
