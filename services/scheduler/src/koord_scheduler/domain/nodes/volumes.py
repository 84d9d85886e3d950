"""Persistent volumes and claims, and which nodes use claims.

Source: scheduler-core spec, 5.9.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, cast

from koordcore.protocol.objects import NodeSelector, Pod
from koordcore.protocol.scheduling_objects import PersistentVolume, PersistentVolumeClaim

from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.pods.info import PodInfo

CLAIMS: Final = "VolumeClaims"
"""Key of a pod class's aspects under which its `Claims` are stored."""
ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


@dataclass(frozen=True, slots=True)
class Claims:
    """The PersistentVolumeClaims of a pod: its namespace and their names."""

    namespace: str
    names: tuple[str, ...]


class Volumes:
    """PersistentVolumeClaims and volumes of the cluster, and how many pods on each node use a claim.

    Attributes:
        changes: Number that grows with every change of a claim or volume.
        claims: (namespace, name) of a claim -> name of its volume; "" if it is not bound.
        exclusive: (namespace, name) of claims that only one pod at a time may use (ReadWriteOncePod).
        users: (namespace, name) of a claim -> position of a node -> number of pods there that use the claim.
        volumes: Name of a volume -> (its required node affinity, its zone and region labels).
    """

    name = CLAIMS

    def __init__(self) -> None:
        self.changes = 0
        self.claims: dict[tuple[str, str], str] = {}
        self.exclusive: set[tuple[str, str]] = set()
        self.users: dict[tuple[str, str], dict[int, int]] = {}
        self.volumes: dict[str, tuple[NodeSelector | None, dict[str, str]]] = {}

    def put_claim(self, claim: PersistentVolumeClaim) -> None:
        """Add or change a PersistentVolumeClaim."""
        key = claim.metadata.namespace, claim.metadata.name
        self.claims[key] = claim.spec.volume_name
        (self.exclusive.add if READ_WRITE_ONCE_POD in claim.spec.access_modes else self.exclusive.discard)(key)
        self.changes += 1

    def drop_claim(self, namespace: str, name: str) -> None:
        """Forget a deleted PersistentVolumeClaim."""
        self.claims.pop((namespace, name), None)
        self.exclusive.discard((namespace, name))
        self.changes += 1

    def put_volume(self, volume: PersistentVolume) -> None:
        """Add or change a PersistentVolume."""
        affinity, labels = volume.spec.node_affinity, volume.metadata.labels
        zones: dict[str, str] = {key: labels[key] for key in ZONE_LABELS if key in labels}
        self.volumes[volume.metadata.name] = (affinity.required if affinity is not None else None, zones)
        self.changes += 1

    def drop_volume(self, name: str) -> None:
        """Forget a deleted PersistentVolume."""
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
        """See `Follower.took`."""
        if pod_info.pod_class is not None and (claims := pod_info.pod_class.aspects.get(self.name)) is not None:
            self._count(row, cast("Claims", claims), 1)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """See `Follower.gave`."""
        if pod_info.pod_class is not None and (claims := pod_info.pod_class.aspects.get(self.name)) is not None:
            self._count(row, cast("Claims", claims), -1)

    def may_refuse(self, pod_class: PodClass) -> bool:
        """See `Follower.may_refuse`."""
        return self.name in pod_class.aspects

    def _count(self, row: int, claims: Claims, delta: int) -> None:
        for name in claims.names:
            rows = self.users.setdefault((claims.namespace, name), {})
            rows[row] = rows.get(row, 0) + delta
            if not rows[row]:
                del rows[row]
            if not rows:
                del self.users[claims.namespace, name]
