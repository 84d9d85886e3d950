"""VolumeRestrictions: only one pod in the cluster may use a claim with access mode ReadWriteOncePod.

Conflicts between disks that pods name without a claim are not detected, because their contents are not mirrored.

Source:
    scheduler-core spec, 5.9
"""

from typing import Final

import numpy as np
from koordcore.protocol.objects import Pod
from koordcore.protocol.storage.claims import has_claims

from koord_scheduler.domain.columns.node_columns import IntArray, Rows
from koord_scheduler.domain.framework.extension_points import CONCERNS, CROSS_NODE_FILTER
from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.volumes.books import VolumeBooks
from koord_scheduler.domain.volumes.objects import ClaimKey

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
        """See `ConcernedPlugin.concerns`."""
        return has_claims(pod)

    def version(self) -> int:
        """See `CrossNodeFilterPlugin.version`. The users of a claim are looked up in each cycle."""
        return self.volumes.changes

    def filter_for(self, subject: Subject) -> "ExclusiveClaims | None":
        """See `CrossNodeFilterPlugin.filter_for`."""
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
        """See `CrossNodeFilter.filter`. Evicting pods helps only on a node that runs all users of the claims."""
        used = [users for claim in self._claims if (users := self._volumes.users.get(claim))]
        if not used:
            return None
        codes = np.full(len(rows), ELSEWHERE, np.int64)
        for row in used[0]:
            if all(users.keys() == {row} for users in used):
                codes[rows == row] = HERE
        return codes

    def reason(self, code: int) -> str:
        """See `CrossNodeFilter.reason`."""
        return IN_USE

    def is_unresolvable(self, code: int) -> bool:
        """See `CrossNodeFilter.is_unresolvable`."""
        return code == ELSEWHERE
