"""VolumeRestrictions: only one pod in the cluster may use a claim with access mode ReadWriteOncePod.

Conflicts between disks that pods name without a claim are not detected, because their contents are not mirrored.

Source: scheduler-core spec, 5.9
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

HERE: Final = 1
ELSEWHERE: Final = 2
IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


class VolumeRestrictions:
    """The plugin VolumeRestrictions: refuses every node while another pod uses a ReadWriteOncePod claim of the pod."""

    name = "VolumeRestrictions"
    extension_points = (CONCERNS, CROSS_NODE_FILTER)

    def __init__(self, volumes: VolumeBooks) -> None:
        self.volumes = volumes

    def concerns(self, pod: Pod) -> bool:
        """Return whether the pod uses volumes by claims."""
        return has_claims(pod)

    def version(self) -> int:
        """Return a number that grows with every change that may help or hinder a pod with claims.

        The users of a claim are looked up in each cycle, so they do not change it.
        """
        return self.volumes.changes

    def filter_for(self, subject: Subject) -> "ExclusiveClaims | None":
        """Return the filter for the claims that only one pod may use (ReadWriteOncePod); None if the pod has none."""
        claims = subject.claims
        if claims is None:
            return None
        found = (self.volumes.claims.get((claims.namespace, name)) for name in claims.names)
        exclusive = [claim.key for claim in found if claim is not None and claim.is_exclusive]
        return ExclusiveClaims(self.volumes, exclusive) if exclusive else None


class ExclusiveClaims:
    """Refuses nodes while other pods use these ReadWriteOncePod claims."""

    def __init__(self, volumes: VolumeBooks, claims: list[ClaimKey]) -> None:
        self._volumes = volumes
        self._claims = claims

    def filter(self, rows: Rows) -> IntArray | None:
        """Refuse all nodes while another pod uses one of the claims.

        The code tells whether a node runs all users of the claims, because evicting pods helps only there.
        """
        used = [users for claim in self._claims if (users := self._volumes.users.get(claim))]
        if not used:
            return None
        codes = np.full(len(rows), ELSEWHERE, np.int64)
        for row in used[0]:
            if all(users.keys() == {row} for users in used):
                codes[rows == row] = HERE
        return codes

    def reason(self, code: int) -> str:
        """Return the only reason: another pod uses a claim that only one pod may use."""
        return IN_USE

    def is_unresolvable(self, code: int) -> bool:
        """Return whether preemption cannot help, because a pod on another node uses one of the claims."""
        return code == ELSEWHERE
