"""Claims, volumes and storage classes as values, parsed from the objects of the API.

Source: scheduler-core spec, 5.9.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from koordcore.protocol import storage
from koordcore.protocol.objects import NodeSelector
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.quantity import parse_value

ClaimKey: TypeAlias = tuple[str, str]
"""Namespace and name of a claim."""
ZONE_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Label of a volume that names its zone or region -> the present name of this label on nodes."""
_AVAILABLE: Final = ("Available", "")
"""Phases of a volume that can be bound. "" without an API server, where nothing sets the phase."""
_LOST: Final = "Lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Requirements of an unbound claim for a volume. Claims with equal requirements suit the same volumes and nodes."""

    storage_class: str  # Name of the storage class; "" for none
    size_bytes: int  # Minimum size; 0 if the claim requests none
    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str  # Name of the VolumeAttributesClass; "" for none
    selector: Selector | None  # Selector on the labels of the volume; None: every volume


Wants: TypeAlias = tuple[Wanted, ...]
"""What each of several claims wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    key: ClaimKey
    uid: str
    wanted: Wanted
    volume: str  # Name of its volume; "" if it has none. The binding may be incomplete.
    is_bound: bool  # Whether the binding to `volume` is complete
    is_lost: bool  # Whether its volume was deleted
    is_deleted: bool  # Whether it is being deleted
    is_exclusive: bool  # Whether only one pod at a time may use it (ReadWriteOncePod)
    selected_node: str  # Node for which a provisioner makes its volume; "" if none was selected
    owners: frozenset[str]  # Uids of its owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    name: str
    storage_class: str
    capacity_bytes: int
    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    labels: Mapping[str, str]  # Its labels, which selectors of claims read
    zones: Mapping[str, str]  # Label -> value, for its labels that name a zone or region
    affinity: NodeSelector | None  # Nodes that can use it; None: all
    claim: ClaimKey | None  # Claim that it is bound to or reserved for; None if there is none
    claim_uid: str  # Uid of this claim; "" if a user reserved the volume by name
    is_available: bool  # Whether its phase allows to bind it
    driver: str  # Name of its CSI driver; "" if it has none

    def suits(self, wanted: Wanted) -> bool:
        """Return whether the volume meets the requirements of a claim. The storage class and whether the volume is
        available are not compared.
        """
        return (
            self.capacity_bytes >= wanted.size_bytes
            and self.volume_mode == wanted.volume_mode
            and self.attributes_class == wanted.attributes_class
            and wanted.access_modes <= self.access_modes
            and (wanted.selector is None or wanted.selector.matches(self.labels))
        )

    def suits_as_reserved(self, wanted: Wanted) -> bool:
        """Return whether the volume can be bound to the claim that it is reserved for. Class, size, mode and attributes
        are compared, access modes and selector are not.
        """
        return (
            self.storage_class == wanted.storage_class
            and self.capacity_bytes >= wanted.size_bytes
            and self.volume_mode == wanted.volume_mode
            and self.attributes_class == wanted.attributes_class
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    name: str
    provisioner: str  # Name of the provisioner; for CSI drivers that of the driver
    waits: bool  # Whether a claim is bound only when a pod uses it (WaitForFirstConsumer)
    topologies: tuple[storage.TopologySelectorTerm, ...]  # Nodes for which volumes can be made; empty: all

    @property
    def can_provision(self) -> bool:
        """Whether a provisioner makes volumes of the class."""
        return self.provisioner not in ("", storage.NO_PROVISIONER)

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Return whether volumes of the class can be made for nodes with these labels."""
        if not self.topologies:
            return True
        terms = (term.match_label_expressions for term in self.topologies)
        return any(term and all(labels.get(each.key) in each.values for each in term) for term in terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A CSIStorageCapacity: free storage of a class for some nodes."""

    id: str  # Namespace and name
    storage_class: str
    nodes: Selector | None  # Selector on the labels of nodes that have access; None: no node has
    most_bytes: int | None  # Size of the largest volume that can be made; None if it is unknown


def claim_from(found: storage.PersistentVolumeClaim) -> Claim:
    """Return a claim as a value. Raises InvalidInput: the size or the selector is not valid."""
    meta, spec = found.metadata, found.spec
    return Claim(
        key=(meta.namespace, meta.name),
        uid=meta.uid,
        wanted=Wanted(
            storage_class=storage.storage_class_of(found),
            size_bytes=parse_value(spec.resources.requests.get(storage.STORAGE, 0)),
            access_modes=frozenset(spec.access_modes),
            volume_mode=spec.volume_mode or storage.FILESYSTEM,
            attributes_class=spec.volume_attributes_class_name or "",
            selector=None if spec.selector is None else compile_selector(spec.selector),
        ),
        volume=spec.volume_name,
        is_bound=storage.is_fully_bound(found),
        is_lost=found.status.phase == _LOST,
        is_deleted=meta.deletion_timestamp is not None,
        is_exclusive=storage.READ_WRITE_ONCE_POD in spec.access_modes,
        selected_node=meta.annotations.get(storage.SELECTED_NODE, ""),
        owners=frozenset(owner.uid for owner in meta.owner_references),
    )


def volume_from(found: storage.PersistentVolume) -> Volume:
    """Return a volume as a value. Raises InvalidInput: the capacity is not valid."""
    meta, spec = found.metadata, found.spec
    reference = spec.claim_ref
    return Volume(
        name=meta.name,
        storage_class=storage.storage_class_of(found),
        capacity_bytes=parse_value(spec.capacity.get(storage.STORAGE, 0)),
        access_modes=frozenset(spec.access_modes),
        volume_mode=spec.volume_mode or storage.FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name or "",
        labels=meta.labels,
        zones={key: meta.labels[key] for key in ZONE_LABELS if key in meta.labels},
        affinity=spec.node_affinity.required if spec.node_affinity is not None else None,
        claim=None if reference is None else (reference.namespace, reference.name),
        claim_uid="" if reference is None else reference.uid,
        is_available=found.status.phase in _AVAILABLE and meta.deletion_timestamp is None,
        driver=spec.csi.driver if spec.csi is not None else "",
    )


def class_from(found: storage.StorageClass) -> Class:
    return Class(
        name=found.metadata.name,
        provisioner=found.provisioner,
        waits=found.volume_binding_mode == storage.WAIT_FOR_FIRST_CONSUMER,
        topologies=tuple(found.allowed_topologies),
    )


def capacity_from(found: storage.CsiStorageCapacity) -> Capacity:
    """Return a storage capacity as a value. The maximum size of a volume takes precedence over the free storage. Raises
    InvalidInput: a quantity or the selector is not valid.
    """
    most = found.capacity if found.maximum_volume_size is None else found.maximum_volume_size
    return Capacity(
        id=f"{found.metadata.namespace}/{found.metadata.name}",
        storage_class=found.storage_class_name,
        nodes=None if found.node_topology is None else compile_selector(found.node_topology),
        most_bytes=None if most is None else parse_value(most),
    )
