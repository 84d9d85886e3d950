"""VolumeZone: a node must be in a zone and region that the labels of the pod's bound volumes name.

Source: scheduler-core spec, 5.9
"""

from typing import Final

import numpy as np
from koordcore.protocol.objects import Pod
from koordcore.protocol.storage import has_claims

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.extension_points import CONCERNS, CROSS_NODE_FILTER
from koord_scheduler.domain.plugins.volumes.books import VolumeBooks
from koord_scheduler.domain.plugins.volumes.objects import ZONE_LABELS

_SEPARATOR: Final = "__"
"""Between the zones of a volume that is in several of them."""
_OTHER_ZONE: Final = 1


class VolumeZone:
    """The plugin VolumeZone: refuses nodes in other zones than the pod's bound volumes."""

    name = "VolumeZone"
    extension_points = (CONCERNS, CROSS_NODE_FILTER)

    def __init__(self, nodes: NodeColumns, volumes: VolumeBooks) -> None:
        self.nodes = nodes
        self.volumes = volumes

    def concerns(self, pod: Pod) -> bool:
        """Return whether the pod uses volumes by claims."""
        return has_claims(pod)

    def version(self) -> int:
        """Return a number that grows with every change of storage that may help or hinder a pod with claims."""
        return self.volumes.changes

    def filter_for(self, subject: Subject) -> "ZoneFilter | None":
        """Return the filter for the zones of the pod's bound volumes; None if they have no zone."""
        claims = subject.claims
        if claims is None:
            return None
        bound = self.volumes.needs(claims).bound
        volumes = [volume for claim in bound if (volume := self.volumes.volumes.get(claim.volume)) is not None]
        zones = [(key, text) for volume in volumes for key, text in volume.zones.items()]
        return ZoneFilter(self.nodes, zones) if zones else None


class ZoneFilter:
    """Refuses nodes whose zone or region differs from that of the pod's volumes. Nodes without such labels pass.

    Args:
        zones: (label of a volume, its value).
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
        """Return the only reason: the node is in no zone of the volumes."""
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
