"""Claims, volumes and storage classes of the cluster, and which of them placed pods use. A placed pod takes the volumes
that its allocation names, until it loses its node: no other claim gets them, and the claim stays with its volume or
node. For a bound claim, the state in the API server takes precedence.

Source: scheduler-core spec, 5.9.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from koordcore.protocol import storage
from koordcore.protocol.objects import Pod
from koordcore.protocol.storage import has_claims
from koordcore.values.allocation import ClaimBinding

from koord_scheduler.domain.cluster.equivalence_classes import Claims, PodClass, claims_of_pod
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.plugins.volumes import objects
from koord_scheduler.domain.plugins.volumes.attachments import AttachedVolumes, Attachments
from koord_scheduler.domain.plugins.volumes.matching import Matching
from koord_scheduler.domain.plugins.volumes.waiting import HelpedStorage, PodsThatWait

_Taker: TypeAlias = tuple[str, int]
"""Uid of a placed pod, and the position of its node."""
CLAIMS: Final = "VolumeClaims"
"""Key of a pod class's aspects that is set if its pods have claims."""


class Taken(NamedTuple):
    """The volume that a placed pod takes for one of its claims; "" if a new volume is made for the pod's node."""

    volume: str
    node: str


@dataclass(slots=True, kw_only=True)
class ClaimsByNeed:
    """The existing claims of a pod, grouped by what must still happen before the pod can use them."""

    bound: list[objects.Claim] = field(default_factory=list[objects.Claim])  # Claims with a volume
    # Unbound claims that a controller of the cluster binds: their binding has begun, or their storage class is unknown
    # or does not wait for a pod. The pod is not placed before.
    immediate: list[objects.Claim] = field(default_factory=list[objects.Claim])
    # Unbound claims with the volume that is reserved for each.
    reserved: list[tuple[objects.Claim, objects.Volume]] = field(
        default_factory=list[tuple[objects.Claim, objects.Volume]]
    )
    # Unbound claims with the node for which a volume is made.
    selected: list[tuple[objects.Claim, str]] = field(default_factory=list[tuple[objects.Claim, str]])
    # Unbound claims for which the scheduler chooses.
    free: list[objects.Claim] = field(default_factory=list[objects.Claim])

    @property
    def wants(self) -> objects.Wants:
        """Return the requirements of the claims in `free`, in the same order."""
        return tuple(claim.wanted for claim in self.free)


class VolumeBooks:
    """All claims and volumes, how many pods of each node use a claim, and the volumes that placed pods take."""

    name = CLAIMS

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self.changes = 0  # Number that grows with every change that may help or hinder a pod with claims
        self.claims: dict[objects.ClaimKey, objects.Claim] = {}  # Namespace and name -> claim
        self.volumes: dict[str, objects.Volume] = {}  # Name -> volume
        # Claim -> position of a node -> number of pods there that use the claim.
        self.users: dict[objects.ClaimKey, dict[int, int]] = {}
        self.matching = Matching(nodes)  # Unbound volumes and storage classes, and the nodes that suit unbound claims
        self.attached = AttachedVolumes(nodes)  # Numbers of volumes that pods of nodes use, by CSI driver
        # Volumes that are attached to nodes without a pod that uses them.
        self.attachments = Attachments(nodes, self.volumes, self.users)
        self.helped = HelpedStorage()  # Changes that may help waiting pods; `QueueingHints` empties it
        self._reserved: dict[objects.ClaimKey, dict[str, None]] = {}
        self._taken: dict[objects.ClaimKey, dict[_Taker, Taken]] = {}
        self._takers: dict[str, set[_Taker]] = {}
        self._capacities: dict[str, objects.Capacity] = {}
        self.waiting = PodsThatWait()  # Pods that were rejected because of one of their claims

    # --- objects of the API ------------------------------------------------------------------------------------------

    def put_claim(self, found: storage.PersistentVolumeClaim) -> None:
        """Add or change a PersistentVolumeClaim, and wake the pods that wait for it."""
        claim = objects.claim_from(found)
        self.claims[claim.key] = claim
        self._claim_changed(claim.key)

    def drop_claim(self, namespace: str, name: str) -> None:
        """Forget a deleted PersistentVolumeClaim, and wake the pods that wait for it."""
        self.claims.pop((namespace, name), None)
        self._claim_changed((namespace, name))

    def _claim_changed(self, key: objects.ClaimKey) -> None:
        self._count_driver(key)
        self.waiting.claim_changed(key)
        self.helped.claim(key)
        self.changes += 1

    def put_volume(self, found: storage.PersistentVolume) -> None:
        volume = objects.volume_from(found)
        self.drop_volume(volume.name)
        self.volumes[volume.name] = volume
        self.attachments.volume_changed(volume.name)
        self.helped.storage_class(volume.storage_class)
        if volume.claim is not None:
            self._reserved.setdefault(volume.claim, {})[volume.name] = None
            self.helped.claim(volume.claim)
            self._count_driver(volume.claim)
        elif self._is_open(volume):
            self.matching.add_volume(volume)

    def drop_volume(self, name: str) -> None:
        """Forget a deleted PersistentVolume. No-op if it is unknown."""
        self.changes += 1
        volume = self.volumes.pop(name, None)
        if volume is None:
            return
        self.attachments.volume_changed(name)
        if volume.claim is not None:
            self.helped.claim(volume.claim)
            names = self._reserved[volume.claim]
            del names[name]
            if not names:
                del self._reserved[volume.claim]
        elif self._is_open(volume):
            self.matching.remove_volume(volume)

    def _is_open(self, volume: objects.Volume) -> bool:
        """Return whether a volume without a claim can be given to any."""
        return volume.is_available and volume.name not in self._takers

    def put_class(self, found: storage.StorageClass) -> None:
        self.matching.put_class(objects.class_from(found))
        self._class_changed(found.metadata.name)

    def drop_class(self, name: str) -> None:
        """Forget a deleted StorageClass."""
        self.matching.drop_class(name)
        self._class_changed(name)

    def _class_changed(self, name: str) -> None:
        self.changes += 1
        self.helped.storage_class(name)
        for key in [key for key in self.waiting.claims if self._class_of(key) == name]:
            self.waiting.claim_changed(key)
        for key in self.users:
            if self._class_of(key) == name:
                self._count_driver(key)

    def _class_of(self, key: objects.ClaimKey) -> str | None:
        claim = self.claims.get(key)
        return claim.wanted.storage_class if claim is not None else None

    def put_capacity(self, found: storage.CsiStorageCapacity) -> None:
        """Add or change a CSIStorageCapacity."""
        capacity = objects.capacity_from(found)
        self.drop_capacity(found.metadata.namespace, found.metadata.name)
        self._capacities[capacity.id] = capacity
        self.matching.add_capacity(capacity)
        self.helped.storage_class(capacity.storage_class)

    def drop_capacity(self, namespace: str, name: str) -> None:
        """Forget a deleted CSIStorageCapacity. No-op if it is unknown."""
        self.changes += 1
        capacity = self._capacities.pop(f"{namespace}/{name}", None)
        if capacity is not None:
            self.matching.remove_capacity(capacity)

    def put_limits(self, found: storage.CsiNode) -> None:
        """Add or change a CSINode."""
        self.helped.drivers(self.attached.put_node(found))
        self.changes += 1

    def drop_limits(self, node: str) -> None:
        """Forget the deleted CSINode of a node."""
        self.helped.drivers(self.attached.drop_node(node))
        self.changes += 1

    def put_attachment(self, found: storage.VolumeAttachment) -> None:
        self.drop_attachment(found.metadata.name)
        self.attachments.put(found)

    def drop_attachment(self, name: str) -> None:
        """Forget a deleted VolumeAttachment. No-op if it is unknown."""
        driver = self.attachments.drop(name)
        if driver:
            self.helped.drivers([driver])

    def put_driver(self, found: storage.CsiDriver) -> None:
        """Add or change a CSIDriver."""
        self.matching.count_driver(found.metadata.name, is_counted=found.spec.storage_capacity)
        self.helped.drivers([found.metadata.name])
        self.changes += 1

    def drop_driver(self, name: str) -> None:
        """Forget a deleted CSIDriver."""
        self.matching.count_driver(name, is_counted=False)
        self.helped.drivers([name])
        self.changes += 1

    # --- pods --------------------------------------------------------------------------------------------------------

    def read(self, pod: Pod) -> Hashable:
        """Return True for a pod with claims, else None. The names of claims are not part of its class."""
        return True if has_claims(pod) else None

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether pods of the class use volumes, so that a filter may refuse them."""
        return self.name in pod_class.aspects

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Count a pod as a user of its claims on its node. The first user of a claim on a node attaches the volume."""
        claims = _claims_of(pod_info)
        if claims is None:
            return
        for name in claims.names:
            key = (claims.namespace, name)
            rows = self.users.setdefault(key, {})
            rows[row] = rows.get(row, 0) + 1
            if rows[row] == 1:
                self.attached.began(key, row, self.driver_of(key))
                self.attachments.use_changed(row)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """Stop counting a pod as a user of its claims. The last user of a claim on a node detaches the volume."""
        claims = _claims_of(pod_info)
        if claims is None:
            return
        for name in claims.names:
            key = (claims.namespace, name)
            rows = self.users[key]
            rows[row] -= 1
            if not rows[row]:
                del rows[row]
                self.attached.ended(key, row, is_last=not rows)
                self.attachments.use_changed(row)
            if not rows:
                del self.users[key]

    def take(self, row: int, uid: str, bindings: tuple[ClaimBinding, ...]) -> None:
        """Record the volumes that a placed pod takes by its allocation, or its node for new volumes. `bindings`: its
        unbound claims, from its allocation.
        """
        taker, node = (uid, row), self._nodes.names[row]
        for each in bindings:
            self._taken.setdefault((each.namespace, each.claim), {})[taker] = Taken(each.volume, node)
            volume = self.volumes.get(each.volume)
            if volume is not None and volume.claim is None and self._is_open(volume):
                self.matching.remove_volume(volume)
            if each.volume:
                self._takers.setdefault(each.volume, set()).add(taker)
        self.changes += 1

    def give(self, row: int, uid: str, bindings: tuple[ClaimBinding, ...]) -> None:
        """Undo `take` for a pod, with the same arguments."""
        taker = (uid, row)
        for each in bindings:
            key = (each.namespace, each.claim)
            self.helped.claim(key)
            del self._taken[key][taker]
            if not self._taken[key]:
                del self._taken[key]
            if each.volume:
                self._give_back(each.volume, taker)
        self.changes += 1

    def _give_back(self, name: str, taker: _Taker) -> None:
        takers = self._takers[name]
        takers.remove(taker)
        if not takers:
            del self._takers[name]
            volume = self.volumes.get(name)
            if volume is not None and volume.claim is None and self._is_open(volume):
                self.matching.add_volume(volume)
                self.helped.storage_class(volume.storage_class)

    def take_helped(self) -> HelpedStorage:
        """Return the changes of storage since the last call that may help waiting pods, and forget them."""
        helped, self.helped = self.helped, HelpedStorage()
        return helped

    # --- what a pod needs --------------------------------------------------------------------------------------------

    def needs(self, claims: Claims) -> ClaimsByNeed:
        """Return the claims of a pod in groups, see `ClaimsByNeed`. Claims that do not exist are left out."""
        needs = ClaimsByNeed()
        for name in claims.names:
            claim = self.claims.get((claims.namespace, name))
            if claim is not None:
                self._sort(claim, needs)
        return needs

    def _sort(self, claim: objects.Claim, needs: ClaimsByNeed) -> None:
        known = self.matching.classes.get(claim.wanted.storage_class)
        if claim.is_bound:
            needs.bound.append(claim)
        elif claim.volume or known is None or not known.waits:
            needs.immediate.append(claim)
        elif (volume := self._volume_for(claim)) is not None:
            needs.reserved.append((claim, volume))
        elif node := self._node_for(claim):
            needs.selected.append((claim, node))
        else:
            needs.free.append(claim)

    def _volume_for(self, claim: objects.Claim) -> objects.Volume | None:
        """Return the volume that a placed pod took for an unbound claim, or that the API reserves for it."""
        for taken in self._taken.get(claim.key, {}).values():
            if taken.volume in self.volumes:
                return self.volumes[taken.volume]
        for name in sorted(self._reserved.get(claim.key, ())):
            volume = self.volumes[name]
            if volume.claim_uid in ("", claim.uid) and volume.suits_as_reserved(claim.wanted):
                return volume
        return None

    def _node_for(self, claim: objects.Claim) -> str:
        taken = (each.node for each in self._taken.get(claim.key, {}).values() if not each.volume)
        return next(taken, claim.selected_node)

    def traits(self, claims: Claims) -> Iterator[tuple[objects.ClaimKey, str, str]]:
        """Yield key, storage class and CSI driver of each claim of a pod; "" for an unknown part."""
        for name in claims.names:
            key = (claims.namespace, name)
            yield key, self._class_of(key) or "", self.driver_of(key)

    def driver_of(self, key: objects.ClaimKey) -> str:
        """Return the CSI driver of a claim: the driver of its volume, or the provisioner of its class; "" for none."""
        claim = self.claims.get(key)
        if claim is None:
            return ""
        volume = self.volumes.get(claim.volume)
        if volume is not None:
            return volume.driver
        known = self.matching.classes.get(claim.wanted.storage_class)
        return known.provisioner if known is not None and known.can_provision else ""

    def _count_driver(self, key: objects.ClaimKey) -> None:
        rows = self.users.get(key)
        if rows:
            self.attached.driver_is(key, list(rows), self.driver_of(key))


def _claims_of(pod_info: PodInfo) -> Claims | None:
    """Return the claims of a pod; None if it has none, or if only the log's ledger knows it."""
    pod, pod_class = pod_info.pod, pod_info.pod_class
    if pod is None or pod_class is None or CLAIMS not in pod_class.aspects:
        return None
    return claims_of_pod(pod)
