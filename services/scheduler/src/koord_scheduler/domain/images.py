"""Which node has which container image, and the score that follows. source    scheduler-core spec, 5.8"""

from collections.abc import Hashable
from typing import Final, cast

import numpy as np
from koordcore.protocol.objects import Node, Pod

from koord_scheduler.domain.columns import IntArray, NodeColumns, Rows
from koord_scheduler.domain.templates import Subject

_MIB: Final = 1 << 20
LEAST_BYTES: Final = 23 * _MIB
MOST_BYTES_PER_CONTAINER: Final = 1000 * _MIB


def normalized(image: str) -> str:
    """The name with `:latest` when it names no tag; a digest counts as one."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


class ImageStates:
    """Images by node: image -> row -> bytes. Also reads the images of pods and makes the plugin's scores."""

    name = "ImageLocality"

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self.on_rows: dict[str, dict[int, int]] = {}
        self._of_row: dict[int, frozenset[str]] = {}

    def put_node(self, row: int, node: Node) -> None:
        """A node is there, or has changed."""
        sizes = {normalized(name): image.size_bytes for image in node.status.images for name in image.names}
        self.drop_node(row)
        self._of_row[row] = frozenset(sizes)
        for image, size in sizes.items():
            self.on_rows.setdefault(image, {})[row] = size

    def drop_node(self, row: int) -> None:
        """The row is no node any more."""
        for image in self._of_row.pop(row, ()):
            del self.on_rows[image][row]
            if not self.on_rows[image]:
                del self.on_rows[image]

    def read(self, pod: Pod) -> Hashable:
        """See `PodReader.read`."""
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return tuple(normalized(container.image) for container in containers if container.image) or None

    def version(self) -> int:
        """See `CoupledScorePlugin.version`: a score asks for the present state itself."""
        return 0

    def score_for(self, subject: Subject) -> "ImageScore | None":
        """See `CoupledScorePlugin.score_for`."""
        images = subject.template.aspects.get(self.name)
        return ImageScore(self, cast("tuple[str, ...]", images)) if images else None


class ImageScore:
    """The score of pods with these images."""

    def __init__(self, states: ImageStates, images: tuple[str, ...]) -> None:
        self._states = states
        self._images = images

    def scores(self, feasible: Rows) -> IntArray | None:
        """size * (nodes that have it / all nodes), summed over the pod's images on the node, between two bounds."""
        present = [rows for image in self._images if (rows := self._states.on_rows.get(image))]
        if not present:
            return None
        nodes = self._states.nodes
        total = np.zeros(nodes.capacity, np.int64)
        for rows in present:
            spread = len(rows) / len(nodes)
            for row, size in rows.items():
                total[row] += int(size * spread)
        most = MOST_BYTES_PER_CONTAINER * len(self._images)
        return 100 * (np.clip(total[feasible], LEAST_BYTES, most) - LEAST_BYTES) // (most - LEAST_BYTES)
