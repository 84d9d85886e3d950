"""Further API objects that placement reads, reduced to the fields that Koordstream reads.

Source: scheduler-core spec, 5.6, 6, 10.1.
"""

import msgspec

from koordcore.protocol.objects import KubeStruct, LabelSelector, ObjectMeta, Quantities


class ElasticQuotaSpec(KubeStruct):
    """Object `spec` of an ElasticQuota: resource name -> amount that is guaranteed (`min`) and the limit (`max`).
    Amounts are texts or numbers as written. They are not parsed here, so an invalid quantity is no error.
    """

    min: Quantities = {}
    max: Quantities = {}


class ElasticQuotaStatus(KubeStruct):
    """Object `status` of an ElasticQuota, reduced to the resource list `used`."""

    used: Quantities = {}


class ElasticQuota(KubeStruct):
    """An ElasticQuota object (scheduling.sigs.k8s.io/v1alpha1), as the scheduler reads it from the log. The amounts in
    `spec` and `status` stay as written. So decoding the object does not fail for an invalid quantity.
    `protocol.quota.quota_spec` parses them later, and takes an invalid resource list as empty.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ElasticQuotaSpec = msgspec.field(default_factory=ElasticQuotaSpec)
    status: ElasticQuotaStatus = msgspec.field(default_factory=ElasticQuotaStatus)


class PodDisruptionBudgetSpec(KubeStruct):
    """Object `spec` of a PodDisruptionBudget: its selector, and the number of pods that must stay or may be gone.
    Numbers are integers or percentages, as written; None if not set.
    """

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(KubeStruct):
    """Object `status` of a PodDisruptionBudget: numbers of healthy, desired and expected pods, allowed evictions.
    `disrupted_pods`: pod name -> RFC 3339 time of an eviction that has not finished.
    """

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(KubeStruct):
    """A PodDisruptionBudget object (policy/v1), which limits how many of the selected pods may be evicted at once."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


class ServiceSpec(KubeStruct):
    """Object `spec` of a Service, reduced to the selector of its pods."""

    selector: dict[str, str] = {}


class Service(KubeStruct):
    """A Service or ReplicationController object (v1), reduced to its selector. Topology spread uses it as a default
    selector.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ControllerSpec(KubeStruct):
    """Object `spec` of a controller of pods, such as a ReplicaSet, reduced to its selector."""

    selector: LabelSelector | None = None


class SelectingController(KubeStruct):
    """A controller of pods (apps/v1), reduced to its selector. Topology spread uses it as a default
    selector.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ControllerSpec = msgspec.field(default_factory=ControllerSpec)
