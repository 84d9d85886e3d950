"""Volume limits: how many volumes of each CSI driver the pods of each node use, and how many the node can attach.

A volume that several pods of a node use counts once. A claim and its volume belong together one to one, so claims
are counted instead of volumes. Volumes that are attached although no pod of the node uses them (VolumeAttachments)
occupy a place until they are detached, as kube-scheduler counts them. The numbers of a node are computed when they are
read, and only if something of the node has changed.

Source: scheduler-core spec, 5.9 (NodeVolumeLimits); Kubernetes 1.35, plugins/nodevolumelimits/csi.go
"""

from collections.abc import Container, Mapping
from typing import Final

import numpy as np
from koordcore.protocol.storage import CsiNode, VolumeAttachment

from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns
from koord_scheduler.domain.plugins.volumes.objects import ClaimKey, Volume


class Attachments:
    """The VolumeAttachments of all nodes. `volumes`: name -> volume; the caller changes it. `users`: claim -> positions
    of the nodes whose pods use it; the caller changes it.
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
        """Count a node's attachments again at the next question, because its pods began or ended to use a claim."""
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


NO_LIMIT: Final = -1


class AttachedVolumes:
    """Numbers of used claims by CSI driver and node, and the limits of nodes."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._used: dict[str, IntArray] = {}
        self._driver: dict[ClaimKey, str] = {}
        self._limits: dict[str, dict[str, int]] = {}
        self._changes = 0
        self._columns: dict[str, tuple[tuple[int, int, int], IntArray]] = {}

    def put_node(self, found: CsiNode) -> set[str]:
        """Set the limits of a node, and return the drivers whose limit is higher than before, or gone."""
        name = found.metadata.name
        before = self._limits.get(name, {})
        limits = self._limits[name] = {
            each.name: each.allocatable.count
            for each in found.spec.drivers
            if each.allocatable is not None and each.allocatable.count is not None
        }
        self._changes += 1
        return {driver for driver, count in before.items() if driver not in limits or limits[driver] > count}

    def drop_node(self, name: str) -> set[str]:
        """Forget the limits of a node, and return the drivers that it limited."""
        self._changes += 1
        return set(self._limits.pop(name, ()))

    def began(self, claim: ClaimKey, row: int, driver: str) -> None:
        """Count a claim that the first pod on a node uses. `driver`: CSI driver of the claim; "" for none: then it is
        not counted. If the claim is in use on another node already, the driver given for that node stays.
        """
        self._add(self._driver.setdefault(claim, driver), row, 1)

    def ended(self, claim: ClaimKey, row: int, *, is_last: bool) -> None:
        """Stop counting a claim on a node, because no pod there uses it any more. `is_last`: whether no pod on any
        other node uses the claim.
        """
        self._add(self._driver[claim], row, -1)
        if is_last:
            del self._driver[claim]

    def driver_is(self, claim: ClaimKey, rows: list[int], driver: str) -> None:
        """Move the counts of a claim in use to its present driver. No-op if it is not in use or the driver is the same.
        `driver`: its CSI driver; "" for none.
        """
        before = self._driver.get(claim)
        if before is None or before == driver:
            return
        self._driver[claim] = driver
        for row in rows:
            self._add(before, row, -1)
            self._add(driver, row, 1)

    def used(self, driver: str) -> IntArray:
        """Return the number of used claims of a driver on each node, shape (N,)."""
        used = self._used.get(driver)
        if used is None or len(used) < self._nodes.capacity:
            grown = np.zeros(self._nodes.capacity, np.int64)
            if used is not None:
                grown[: len(used)] = used
            used = self._used[driver] = grown
        return used

    def is_limited(self, driver: str) -> bool:
        """Return whether any node limits the volumes of a driver."""
        return bool((self.limits(driver) != NO_LIMIT).any())

    def limits(self, driver: str) -> IntArray:
        """Return the maximum number of volumes of a driver on each node, shape (N,); -1 for no limit."""
        nodes = self._nodes
        stamp = (self._changes, nodes.shape.position, nodes.capacity)
        known = self._columns.get(driver)
        if known is None or known[0] != stamp:
            limits = np.full(nodes.capacity, NO_LIMIT, np.int64)
            for name, by_driver in self._limits.items():
                row = nodes.row(name)
                if row is not None:
                    limits[row] = by_driver.get(driver, NO_LIMIT)
            known = self._columns[driver] = (stamp, limits)
        return known[1]

    def _add(self, driver: str, row: int, delta: int) -> None:
        if driver:
            self.used(driver)[row] += delta
