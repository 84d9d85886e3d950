"""The filters VolumeZone, VolumeRestrictions and NodeVolumeLimits.

VolumeZone: a node must be in a zone and region that the labels of the pod's bound volumes name.

VolumeRestrictions: only one pod in the cluster may use a claim with access mode ReadWriteOncePod. Conflicts between
disks that pods name without a claim are not detected, because their contents are not mirrored.

NodeVolumeLimits: a node attaches at most as many volumes of a CSI driver as its CSINode object states. Volumes count
that pods of the node use, or that are attached to it (VolumeAttachment).

Source: scheduler-core spec, 5.9; Kubernetes 1.35
"""

from typing import Final

import numpy as np
from koordcore.protocol.objects import Pod
from koordcore.protocol.storage import has_claims

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.extension_points import CONCERNS, CROSS_NODE_FILTER
from koord_scheduler.domain.plugins.volumes.books import VolumeBooks
from koord_scheduler.domain.plugins.volumes.objects import ZONE_LABELS, ClaimKey

_SEPARATOR: Final = "__"
"""Between the zones of a volume that is in several of them."""
_OTHER_ZONE: Final = 1


class ClaimsPlugin:
    """What the plugins that filter nodes by the claims of a pod have in common. The users of a claim and the volumes of
    a node are looked up in each cycle, so they do not change `version`.
    """

    def __init__(self, volumes: VolumeBooks) -> None:
        self.volumes = volumes

    def concerns(self, pod: Pod) -> bool:
        return has_claims(pod)

    def version(self) -> int:
        return self.volumes.changes


class VolumeZone(ClaimsPlugin):
    """The plugin VolumeZone: refuses nodes in other zones than the pod's bound volumes."""

    name = "VolumeZone"
    extension_points = (CONCERNS, CROSS_NODE_FILTER)

    def __init__(self, nodes: NodeColumns, volumes: VolumeBooks) -> None:
        super().__init__(volumes)
        self.nodes = nodes

    def filter_for(self, subject: Subject) -> "ZoneFilter | None":
        claims = subject.claims
        if claims is None:
            return None
        bound = self.volumes.needs(claims).bound
        volumes = [volume for claim in bound if (volume := self.volumes.volumes.get(claim.volume)) is not None]
        zones = [(key, text) for volume in volumes for key, text in volume.zones.items()]
        return ZoneFilter(self.nodes, zones) if zones else None


class ZoneFilter:
    """Refuses nodes whose zone or region differs from that of the pod's volumes. Nodes without such labels pass.
    `zones`: (label of a volume, its value).
    """

    def __init__(self, nodes: NodeColumns, zones: list[tuple[str, str]]) -> None:
        self._nodes = nodes
        self._zones = zones
        self._position = -1
        self._codes: IntArray = np.zeros(0, np.int64)

    def filter(self, rows: Rows) -> IntArray | None:
        """Refuse nodes whose zone labels do not match those of the volumes. Evaluated again after nodes changed."""
        if self._position != self._nodes.shape.position:
            self._position = self._nodes.shape.position
            self._codes = self._all_codes()
        return self._codes[rows]

    def reason(self, code: int) -> str:
        return "node(s) had no available volume zone"

    def is_unresolvable(self, code: int) -> bool:
        """Return True: preemption cannot help, because it does not move a volume."""
        return True

    def _all_codes(self) -> IntArray:
        has_zone = np.zeros(self._nodes.capacity, np.bool_)
        for key in ZONE_LABELS:
            has_zone |= self._nodes.label(key).values > 0
        refused = np.zeros(self._nodes.capacity, np.bool_)
        for key, text in self._zones:
            # A volume with the former label is also compared with the present label of a node.
            has_key = self._nodes.label(key).values > 0
            matches = np.where(has_key, self._has_one_of(key, text), self._has_one_of(ZONE_LABELS[key], text))
            refused |= ~matches
        return (refused & has_zone).astype(np.int64) * _OTHER_ZONE

    def _has_one_of(self, key: str, text: str) -> BoolArray:
        column, values = self._nodes.label(key), text.split(_SEPARATOR)
        allowed = [index for index, value in enumerate(column.texts) if value in values]
        return np.isin(column.values, allowed)


HERE: Final = 1
ELSEWHERE: Final = 2
IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


class VolumeRestrictions(ClaimsPlugin):
    """The plugin VolumeRestrictions: refuses every node while another pod uses a ReadWriteOncePod claim of the pod."""

    name = "VolumeRestrictions"
    extension_points = (CONCERNS, CROSS_NODE_FILTER)

    def filter_for(self, subject: Subject) -> "ExclusiveClaims | None":
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
        """Refuse all nodes while another pod uses one of the claims. The code tells whether a node runs all users of
        the claims, because evicting pods helps only there.
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
        return IN_USE

    def is_unresolvable(self, code: int) -> bool:
        """Return whether preemption cannot help, because a pod on another node uses one of the claims."""
        return code == ELSEWHERE


_EXCEEDED: Final = 1


class NodeVolumeLimits(ClaimsPlugin):
    """The plugin NodeVolumeLimits: refuses nodes that cannot attach the volumes of the pod."""

    name = "NodeVolumeLimits"
    extension_points = (CONCERNS, CROSS_NODE_FILTER)

    def filter_for(self, subject: Subject) -> "LimitFilter | None":
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
    """Refuses nodes that cannot attach the volumes of some claims. `by_driver`: CSI driver -> the claims with volumes
    of it.
    """

    def __init__(self, volumes: VolumeBooks, by_driver: dict[str, list[ClaimKey]]) -> None:
        self._volumes = volumes
        self._by_driver = by_driver

    def filter(self, rows: Rows) -> IntArray | None:
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
        return "node(s) exceed max volume count"

    def is_unresolvable(self, code: int) -> bool:
        """Return False: preemption may help, because evicted pods detach their volumes."""
        return False
