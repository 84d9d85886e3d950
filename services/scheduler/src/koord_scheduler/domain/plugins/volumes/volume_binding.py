"""Persistent volumes that tie pods to nodes: node affinity and zone labels of what a pod's claims are bound to, and
claims that one pod at a time may use.

A claim that is not bound yet ties its pod to no node; binding it is not this scheduler's work.
source    scheduler-core spec, 5.9
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from koordcore.protocol.objects import NodeSelector, Pod
from koordcore.protocol.scheduling_objects import PersistentVolume, PersistentVolumeClaim

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.plugins.affinity.node_affinity import term_matches
from koord_scheduler.domain.pods.equivalence_classes import PodClass, Subject
from koord_scheduler.domain.pods.info import PodInfo

ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_SEPARATOR: Final = "__"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
MISSING_CLAIM: Final = 1
NODE_AFFINITY: Final = 2
ZONE: Final = 3


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a pod, by name."""

    namespace: str
    names: tuple[str, ...]


class Volumes:
    """Claims and volumes, and which nodes use claims. Also reads the claims of pods.

    changes     grows with every change of an object
    exclusive   claims that one pod at a time may use
    users       claim -> row -> pods that use it there
    """

    name = "VolumeBinding"

    def __init__(self) -> None:
        self.changes = 0
        self.claims: dict[tuple[str, str], str] = {}
        self.exclusive: set[tuple[str, str]] = set()
        self.users: dict[tuple[str, str], dict[int, int]] = {}
        self.volumes: dict[str, tuple[NodeSelector | None, dict[str, str]]] = {}

    def put_claim(self, claim: PersistentVolumeClaim) -> None:
        """A claim is there, or has changed."""
        key = claim.metadata.namespace, claim.metadata.name
        self.claims[key] = claim.spec.volume_name
        (self.exclusive.add if READ_WRITE_ONCE_POD in claim.spec.access_modes else self.exclusive.discard)(key)
        self.changes += 1

    def drop_claim(self, namespace: str, name: str) -> None:
        """A claim is gone."""
        self.claims.pop((namespace, name), None)
        self.exclusive.discard((namespace, name))
        self.changes += 1

    def put_volume(self, volume: PersistentVolume) -> None:
        """A volume is there, or has changed."""
        affinity, labels = volume.spec.node_affinity, volume.metadata.labels
        zones: dict[str, str] = {key: labels[key] for key in ZONE_LABELS if key in labels}
        self.volumes[volume.metadata.name] = (affinity.required if affinity is not None else None, zones)
        self.changes += 1

    def drop_volume(self, name: str) -> None:
        """A volume is gone."""
        self.volumes.pop(name, None)
        self.changes += 1

    def read(self, pod: Pod) -> Hashable:
        """See `PodReader.read`."""
        names = tuple(
            volume.persistent_volume_claim.claim_name
            for volume in pod.spec.volumes
            if volume.persistent_volume_claim is not None
        )
        return Claims(pod.metadata.namespace, names) if names else None

    def took(self, row: int, pod_info: PodInfo) -> None:
        """See `node accounting.Follower`."""
        if pod_info.pod_class is not None and (claims := pod_info.pod_class.aspects.get(self.name)) is not None:
            self._count(row, cast("Claims", claims), 1)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """See `node accounting.Follower`."""
        if pod_info.pod_class is not None and (claims := pod_info.pod_class.aspects.get(self.name)) is not None:
            self._count(row, cast("Claims", claims), -1)

    def may_refuse(self, pod_class: PodClass) -> bool:
        """See `node accounting.Follower`."""
        return self.name in pod_class.aspects

    def _count(self, row: int, claims: Claims, delta: int) -> None:
        for name in claims.names:
            rows = self.users.setdefault((claims.namespace, name), {})
            rows[row] = rows.get(row, 0) + delta
            if not rows[row]:
                del rows[row]
            if not rows:
                del self.users[claims.namespace, name]


class VolumeBinding:
    """Refuses nodes that the pod's volumes cannot be reached from."""

    name = "VolumeBinding"

    def __init__(self, nodes: NodeColumns, volumes: Volumes) -> None:
        self.nodes = nodes
        self.volumes = volumes

    def version(self) -> int:
        """See `CrossNodeFilterPlugin.version`."""
        return self.volumes.changes

    def filter_for(self, subject: Subject) -> "VolumeFilter | None":
        """See `CrossNodeFilterPlugin.filter_for`."""
        claims = subject.pod_class.aspects.get(self.name)
        return VolumeFilter(self.nodes, self.volumes, cast("Claims", claims)) if claims is not None else None


class VolumeFilter:
    """The filter of pods with these claims, as of one version of the volumes."""

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
            self._codes = self._judged()
        return self._codes[rows]

    def reason(self, code: int) -> str:
        """See `CrossNodeFilter.reason`."""
        if code == MISSING_CLAIM:
            return f'persistentvolumeclaim "{self._missing[0]}" not found'
        if code == NODE_AFFINITY:
            return "node(s) didn't match PersistentVolume's node affinity"
        return "node(s) had no available volume zone"

    def is_unresolvable(self, code: int) -> bool:
        """No pod's leaving moves a volume."""
        return True

    def _judged(self) -> IntArray:
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
