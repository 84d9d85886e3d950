"""NodeVolumeLimits: a node attaches at most as many volumes of a CSI driver as its CSINode object states.

Volumes count that pods of the node use, or that are attached to it (VolumeAttachment).

Source: scheduler-core spec, 5.9; Kubernetes 1.35
"""

from typing import Final

import numpy as np
from koordcore.protocol.objects import Pod
from koordcore.protocol.storage import has_claims

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.columns.node_columns import IntArray, Rows
from koord_scheduler.domain.framework.extension_points import CONCERNS, CROSS_NODE_FILTER
from koord_scheduler.domain.plugins.volumes.books import VolumeBooks
from koord_scheduler.domain.plugins.volumes.objects import ClaimKey

_EXCEEDED: Final = 1


class NodeVolumeLimits:
    """The plugin NodeVolumeLimits: refuses nodes that cannot attach the volumes of the pod."""

    name = "NodeVolumeLimits"
    extension_points = (CONCERNS, CROSS_NODE_FILTER)

    def __init__(self, volumes: VolumeBooks) -> None:
        self.volumes = volumes

    def concerns(self, pod: Pod) -> bool:
        """Return whether the pod uses volumes by claims."""
        return has_claims(pod)

    def version(self) -> int:
        """Return a number that grows with every change that may help or hinder a pod with claims.

        The volumes of each node are looked up in each cycle, so they do not change it.
        """
        return self.volumes.changes

    def filter_for(self, subject: Subject) -> "LimitFilter | None":
        """Return the filter for the pod's claims, by driver; None if no node limits one of these drivers."""
        claims = subject.claims
        if claims is None:
            return None
        by_driver: dict[str, list[ClaimKey]] = {}
        for name in claims.names:
            key = (claims.namespace, name)
            by_driver.setdefault(self.volumes.driver_of(key), []).append(key)
        by_driver.pop("", None)
        limited = {driver: keys for driver, keys in by_driver.items() if self.volumes.attached.is_limited(driver)}
        return LimitFilter(self.volumes, limited) if limited else None


class LimitFilter:
    """Refuses nodes that cannot attach the volumes of some claims.

    Args:
        by_driver: CSI driver -> the claims with volumes of it.
    """

    def __init__(self, volumes: VolumeBooks, by_driver: dict[str, list[ClaimKey]]) -> None:
        self._volumes = volumes
        self._by_driver = by_driver

    def filter(self, rows: Rows) -> IntArray | None:
        """Refuse nodes where the new volumes of a driver and the attached ones exceed the driver's limit."""
        refused = np.zeros(len(rows), np.bool_)
        for driver, keys in self._by_driver.items():
            limits = self._volumes.attached.limits(driver)[rows]
            new = np.full(len(rows), len(keys), np.int64)
            for key in keys:
                new -= np.isin(rows, list(self._volumes.users.get(key, ())))
            used = self._volumes.attached.used(driver)[rows] + self._volumes.attachments.unused(driver)[rows]
            refused |= (limits >= 0) & (new > 0) & (used + new > limits)
        return refused.astype(np.int64) * _EXCEEDED

    def reason(self, code: int) -> str:
        """Return the only reason: the node exceeds its volume count."""
        return "node(s) exceed max volume count"

    def is_unresolvable(self, code: int) -> bool:
        """Return False: preemption may help, because evicted pods detach their volumes."""
        return False
