"""The storage objects that decide where a pod with claims can run, reduced to the fields that Koordstream reads.

The log contains exactly these fields, and the annotations of `KEPT_ANNOTATIONS`.

Source: scheduler-core spec, 5.9; https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/ and
    https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from koordcore.protocol.objects import KubeStruct, LabelSelector, NodeSelector, ObjectMeta, Pod, Quantities, Volume

# Annotation of a claim: its binding is complete. The value does not matter.
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
# Annotation of a volume or claim that no user bound, so that the binding may be undone.
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
# Annotation of a claim: the node for which a provisioner makes the volume.
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
# Annotation of a claim or volume with the name of its storage class. It takes precedence over the field.
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
# Annotations of claims and volumes that decide.
KEPT_ANNOTATIONS: Final = frozenset({BIND_COMPLETED, SELECTED_NODE, BETA_STORAGE_CLASS})

# Provisioner of a storage class whose volumes nobody makes on demand, such as that of local volumes.
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
FILESYSTEM: Final = "Filesystem"
STORAGE: Final = "storage"  # Resource name of the size of a volume in `requests` and `capacity`


class StorageRequests(KubeStruct):
    """Object `resources` of a claim: the requested size under the name `storage`."""

    requests: Quantities = {}


class PersistentVolumeClaimSpec(KubeStruct):
    """Object `spec` of a PersistentVolumeClaim. `volume_name` is "" while no volume is bound or demanded.
    `storage_class_name`, `volume_mode` and `volume_attributes_class_name` are None if they are not set.
    """

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] = []
    resources: StorageRequests = msgspec.field(default_factory=StorageRequests)
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class Phase(KubeStruct):
    """Object `status` of a claim or volume, reduced to its phase; "" if it is not set."""

    phase: str = ""


class PersistentVolumeClaim(KubeStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: Phase = msgspec.field(default_factory=Phase)


class ClaimReference(KubeStruct):
    """Object `spec.claimRef` of a PersistentVolume. `uid` is "" if a user reserved the volume by name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(KubeStruct):
    """Object `spec.nodeAffinity` of a PersistentVolume: nodes that can use the volume. `required` None: all nodes."""

    required: NodeSelector | None = None


class CsiVolume(KubeStruct):
    """Object `spec.csi` of a PersistentVolume, reduced to the name of the driver."""

    driver: str = ""


class PersistentVolumeSpec(KubeStruct):
    """Object `spec` of a PersistentVolume. None: the field is not set; for `node_affinity`, every node can use it."""

    capacity: Quantities = {}
    access_modes: list[str] = []
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiVolume | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolume(KubeStruct):
    """A PersistentVolume object (v1). Its labels may name its zone and region."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: Phase = msgspec.field(default_factory=Phase)


class TopologySelectorLabelRequirement(KubeStruct):
    """One condition of a topology term: the node's label `key` has one of `values`."""

    key: str
    values: list[str] = []


class TopologySelectorTerm(KubeStruct):
    """Conditions on the labels of a node, which must all match. A term without conditions matches no node."""

    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(KubeStruct):
    """A StorageClass object (storage.k8s.io/v1). `allowed_topologies`: volumes can be made for nodes that match one of
    these terms; empty: for every node.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologySelectorTerm] = []


class VolumeNodeResources(KubeStruct):
    """Object `allocatable` of a CSI driver on a node. `count`: maximum number of volumes; None: no limit."""

    count: int | None = None


class CsiNodeDriver(KubeStruct):
    """A CSI driver that is installed on a node, with its limits; None: no limits."""

    name: str
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(KubeStruct):
    """Object `spec` of a CSINode: the drivers of the node."""

    drivers: list[CsiNodeDriver] = []


class CsiNode(KubeStruct):
    """A CSINode object (storage.k8s.io/v1). It has the name of its node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: CsiNodeSpec = msgspec.field(default_factory=CsiNodeSpec)


class VolumeAttachmentSource(KubeStruct):
    """Object `source` of a VolumeAttachment. `persistent_volume_name` is "" for a volume in the pod's specification."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(KubeStruct):
    """Object `spec` of a VolumeAttachment: a volume, the CSI driver that attaches it, and the node."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = msgspec.field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(KubeStruct):
    """A VolumeAttachment object (storage.k8s.io/v1)."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)


class CsiDriverSpec(KubeStruct):
    """Object `spec` of a CSIDriver. `storage_capacity`: whether CSIStorageCapacity objects tell its free storage."""

    storage_capacity: bool = False


class CsiDriver(KubeStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: CsiDriverSpec = msgspec.field(default_factory=CsiDriverSpec)


class CsiStorageCapacity(KubeStruct):
    """A CSIStorageCapacity object (storage.k8s.io/v1): free storage of a class for the nodes of a topology.
    `node_topology` None: no node has access. Quantities are None if they are unknown.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


def storage_class_of(found: PersistentVolumeClaim | PersistentVolume) -> str:
    """Return the name of the storage class of a claim or volume; "" for none."""
    beta = found.metadata.annotations.get(BETA_STORAGE_CLASS)
    return beta if beta is not None else found.spec.storage_class_name or ""


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim has a volume and its binding is complete."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def claims_of(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Yield the name of each claim of a pod, and whether it belongs to a generic ephemeral volume. The claim of an
    ephemeral volume has the name `<pod>-<volume>`, and a controller creates it for the pod.
    """
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", True


def has_claims(pod: Pod) -> bool:
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in pod.spec.volumes
    )


def has_ephemeral_claims(pod: Pod) -> bool:
    """Return whether a pod uses a claim whose name contains the name of the pod."""
    return any(volume.ephemeral is not None for volume in pod.spec.volumes)


def is_token(volume: Volume) -> bool:
    """Return whether the ServiceAccount admission of an API server added a volume to its pod. Its name ends with random
    letters, so otherwise equal pods differ in it. Nothing is placed by it.
    """
    return volume.name.startswith("kube-api-access-") and volume == Volume(name=volume.name)
