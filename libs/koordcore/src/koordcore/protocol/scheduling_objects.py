"""API objects that placement reads beside pods and nodes, cut down to the fields that some part of the system reads.

Source:
    scheduler-core spec, 5.6, 5.9, 6, 10.1
"""

import msgspec

from koordcore.protocol.objects import KubeStruct, LabelSelector, NodeSelector, ObjectMeta, Quantities


class ElasticQuotaSpec(KubeStruct):
    """`ElasticQuota.spec`: resource lists as written."""

    min: Quantities = {}
    max: Quantities = {}


class ElasticQuotaStatus(KubeStruct):
    """`ElasticQuota.status`."""

    used: Quantities = {}


class ElasticQuota(KubeStruct):
    """scheduling.sigs.k8s.io/v1alpha1."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ElasticQuotaSpec = msgspec.field(default_factory=ElasticQuotaSpec)
    status: ElasticQuotaStatus = msgspec.field(default_factory=ElasticQuotaStatus)


class PodDisruptionBudgetSpec(KubeStruct):
    """`PodDisruptionBudget.spec`: the amounts are integers or percentages, as written."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(KubeStruct):
    """`PodDisruptionBudget.status`; disrupted_pods: name -> time of an eviction that is under way."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(KubeStruct):
    """policy/v1."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


class ServiceSpec(KubeStruct):
    """`Service.spec`."""

    selector: dict[str, str] = {}


class Service(KubeStruct):
    """v1: its selector is the default selector of topology spread."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ControllerSpec(KubeStruct):
    """`spec` of a controller of pods."""

    selector: LabelSelector | None = None


class SelectingController(KubeStruct):
    """apps/v1 or batch/v1: its selector is a default selector of topology spread."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ControllerSpec = msgspec.field(default_factory=ControllerSpec)


class PersistentVolumeClaimSpec(KubeStruct):
    """`PersistentVolumeClaim.spec`."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] = []


class PersistentVolumeClaim(KubeStruct):
    """v1."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)


class VolumeNodeAffinity(KubeStruct):
    """`PersistentVolume.spec.nodeAffinity`."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(KubeStruct):
    """`PersistentVolume.spec`."""

    node_affinity: VolumeNodeAffinity | None = None
    access_modes: list[str] = []


class PersistentVolume(KubeStruct):
    """v1, cluster scoped; zone labels stand in its metadata."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
