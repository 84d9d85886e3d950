"""Volume limits: how many volumes of each CSI driver the pods of each node use, and how many the node can attach.

A volume that several pods of a node use counts once. A claim and its volume belong together one to one, so claims are
counted instead of volumes.

Source:
    scheduler-core spec, 5.9 (NodeVolumeLimits)
"""

from typing import Final

import numpy as np
from koordcore.protocol.storage import CsiNode

from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns
from koord_scheduler.domain.volumes.objects import ClaimKey

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
        """Count a claim that the first pod on a node uses.

        Args:
            claim: The claim.
            row: Position of the node.
            driver: CSI driver of the claim; "" for none: then it is not counted. If the claim is in use on another node
                already, the driver given for that node stays.
        """
        self._add(self._driver.setdefault(claim, driver), row, 1)

    def ended(self, claim: ClaimKey, row: int, *, is_last: bool) -> None:
        """Stop counting a claim on a node, because no pod there uses it any more.

        Args:
            claim: The claim.
            row: Position of the node.
            is_last: Whether no pod on any other node uses the claim.
        """
        self._add(self._driver[claim], row, -1)
        if is_last:
            del self._driver[claim]

    def driver_is(self, claim: ClaimKey, rows: list[int], driver: str) -> None:
        """Move the counts of a claim in use to its present driver. No-op if it is not in use or the driver is the same.

        Args:
            claim: The claim.
            rows: Positions of the nodes whose pods use it.
            driver: Its CSI driver; "" for none.
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
