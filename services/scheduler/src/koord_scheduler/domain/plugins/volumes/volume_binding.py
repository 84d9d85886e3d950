"""VolumeBinding: persistent volumes that restrict the nodes of a pod.

Volumes of bound claims have node affinity and zone labels. A claim that is not bound yet restricts nothing, because
this scheduler does not bind claims.

Source:
    scheduler-core spec, 5.9
"""

from collections.abc import Iterator
from typing import Final, cast

import numpy as np

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.extension_points import CROSS_NODE_FILTER
from koord_scheduler.domain.nodes.volumes import CLAIMS, Claims, Volumes
from koord_scheduler.domain.plugins.affinity.node_affinity import term_matches
from koord_scheduler.domain.pods.equivalence_classes import Subject

_SEPARATOR: Final = "__"
MISSING_CLAIM: Final = 1
NODE_AFFINITY: Final = 2
ZONE: Final = 3


class VolumeBinding:
    """The plugin VolumeBinding: refuses nodes that cannot reach the pod's volumes."""

    name = "VolumeBinding"
    extension_points = (CROSS_NODE_FILTER,)

    def __init__(self, nodes: NodeColumns, volumes: Volumes) -> None:
        self.nodes = nodes
        self.volumes = volumes

    def version(self) -> int:
        """See `CrossNodeFilterPlugin.version`."""
        return self.volumes.changes

    def filter_for(self, subject: Subject) -> "VolumeFilter | None":
        """See `CrossNodeFilterPlugin.filter_for`."""
        claims = subject.pod_class.aspects.get(CLAIMS)
        return VolumeFilter(self.nodes, self.volumes, cast("Claims", claims)) if claims is not None else None


class VolumeFilter:
    """Refuses nodes outside the node affinity and zones of the volumes of some claims, until a volume changes."""

    def __init__(self, nodes: NodeColumns, volumes: Volumes, claims: Claims) -> None:
        self._nodes = nodes
        self._missing = [name for name in claims.names if (claims.namespace, name) not in volumes.claims]
        bound = (volumes.claims.get((claims.namespace, name), "") for name in claims.names)
        self._volumes = [volumes.volumes[name] for name in bound if name in volumes.volumes]
        self._position = -1
        self._codes: IntArray = np.zeros(0, np.int64)

    def filter(self, rows: Rows) -> IntArray | None:
        """See `CrossNodeFilter.filter`."""
        if self._missing:
            return np.full(len(rows), MISSING_CLAIM, np.int64)
        if self._position != self._nodes.shape.position:
            self._position = self._nodes.shape.position
            self._codes = self._all_codes()
        return self._codes[rows]

    def reason(self, code: int) -> str:
        """See `CrossNodeFilter.reason`."""
        if code == MISSING_CLAIM:
            return f'persistentvolumeclaim "{self._missing[0]}" not found'
        if code == NODE_AFFINITY:
            return "node(s) didn't match PersistentVolume's node affinity"
        return "node(s) had no available volume zone"

    def is_unresolvable(self, code: int) -> bool:
        """Return True, because evicting pods does not move a volume."""
        return True

    def _all_codes(self) -> IntArray:
        codes = np.zeros(self._nodes.capacity, np.int64)
        rows = np.arange(len(self._nodes.names), dtype=np.intp)
        for affinity, zones in self._volumes:
            for mismatch in self._zone_mismatches(zones):
                codes[mismatch & (codes == 0)] = ZONE
            if affinity is not None:
                matches = np.zeros(len(codes), np.bool_)
                for term in affinity.node_selector_terms:
                    matches[rows] |= term_matches(term, self._nodes, rows)
                codes[~matches & (codes == 0)] = NODE_AFFINITY
        return codes

    def _zone_mismatches(self, zones: dict[str, str]) -> Iterator[BoolArray]:
        for key, text in zones.items():
            column = self._nodes.label(key)
            allowed = [index for index, value in enumerate(column.texts) if value in text.split(_SEPARATOR)]
            yield ~np.isin(column.values, allowed)
