"""Volumes that are attached to nodes although no pod there uses them, by CSI driver: from VolumeAttachments.

They occupy a place of their node until they are detached, as kube-scheduler counts them. The numbers of a node are
computed when they are read, and only if something of the node has changed.

Source:
    Kubernetes 1.35, pkg/scheduler/framework/plugins/nodevolumelimits/csi.go
"""

from collections.abc import Container, Mapping

import numpy as np
from koordcore.protocol.storage import VolumeAttachment

from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns
from koord_scheduler.domain.forgetting import Forgetting
from koord_scheduler.domain.volumes.objects import ClaimKey, Volume


class Attachments:
    """The VolumeAttachments of all nodes.

    Args:
        nodes: The nodes.
        volumes: Name -> volume; the caller changes it.
        users: Claim -> positions of the nodes whose pods use it; the caller changes it.
    """

    def __init__(
        self, nodes: NodeColumns, volumes: Mapping[str, Volume], users: Mapping[ClaimKey, Container[int]]
    ) -> None:
        self._nodes = nodes
        self._volumes = volumes
        self._users = users
        self._known: dict[str, VolumeAttachment] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._by_volume: dict[str, dict[str, None]] = {}
        self._changed: set[str] = set()
        self._forgetting = Forgetting()
        self._position = 0
        self._columns: dict[str, IntArray] = {}

    def put(self, found: VolumeAttachment) -> None:
        """Add or change an attachment."""
        name = found.metadata.name
        self.drop(name)
        self._known[name] = found
        self._by_node.setdefault(found.spec.node_name, {})[name] = None
        self._by_volume.setdefault(found.spec.source.persistent_volume_name, {})[name] = None
        self._node_changed(found.spec.node_name)

    def drop(self, name: str) -> str:
        """Forget a deleted attachment, and return its CSI driver; "" if it is unknown."""
        found = self._known.pop(name, None)
        if found is None:
            return ""
        volume = found.spec.source.persistent_volume_name
        for index, key in ((self._by_node, found.spec.node_name), (self._by_volume, volume)):
            del index[key][name]
            if not index[key]:
                del index[key]
        self._node_changed(found.spec.node_name)
        return found.spec.attacher

    def volume_changed(self, name: str) -> None:
        """Count the attachments of a volume again at the next question, because it was added, changed or deleted."""
        for each in self._by_volume.get(name, ()):
            self._node_changed(self._known[each].spec.node_name)

    def use_changed(self, row: int) -> None:
        """Count a node's attachments again at the next question, because its pods began or ended to use a claim.

        Args:
            row: Position of the node.
        """
        if self._by_node:
            self._changed.add(self._nodes.names[row])

    def _node_changed(self, name: str) -> None:
        self._changed.add(name)
        if self._forgetting.is_due(len(self._changed)):
            self._changed = {each for each in self._changed if self._nodes.row(each) is not None}
            self._forgetting.searched(len(self._changed))

    def unused(self, driver: str) -> IntArray:
        """Return the number of attached volumes of a driver that no pod of the node uses, shape (N,)."""
        self._settle()
        return self._column(driver)

    def _settle(self) -> None:
        nodes = self._nodes
        reshaped = nodes.shape.since(self._position)
        self._position = nodes.shape.position
        if reshaped is None:
            self._columns.clear()
            rows = {row for name in self._by_node if (row := nodes.row(name)) is not None}
        else:
            rows = {row for row in reshaped if row < len(nodes.names)}
            rows.update(row for name in self._changed if (row := nodes.row(name)) is not None)
        self._changed.clear()
        for row in rows:
            for column in self._columns.values():
                if row < len(column):
                    column[row] = 0
            for name in self._by_node.get(nodes.names[row], ()):
                self._count(row, self._known[name])

    def _count(self, row: int, found: VolumeAttachment) -> None:
        volume = self._volumes.get(found.spec.source.persistent_volume_name)
        if volume is None or not volume.driver:
            return
        if volume.claim is None or row not in self._users.get(volume.claim, ()):
            self._column(found.spec.attacher)[row] += 1

    def _column(self, driver: str) -> IntArray:
        column = self._columns.get(driver)
        if column is None or len(column) < self._nodes.capacity:
            grown = np.zeros(self._nodes.capacity, np.int64)
            if column is not None:
                grown[: len(column)] = column
            column = self._columns[driver] = grown
        return column
