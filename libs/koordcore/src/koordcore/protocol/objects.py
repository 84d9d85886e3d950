"""The Kubernetes objects that the log mirrors, reduced to the fields that Koordstream reads.

They are msgspec structs that decode in microseconds and drop all other fields. So container environment, commands,
volumes' secrets and managed fields never enter the log. `koordcore.protocol.manifests` validates the documents of users
and produces these types. JSON names are those of Kubernetes (camelCase).

Source: Kubernetes, metadata.generateName (names of at most 63 letters; vowels and what looks like them left out).
"""

from typing import Final, TypeVar, cast

import msgspec

from koordcore.values import codec

# Resource list as written: name -> quantity text or JSON number (protocol spec, 1.1).
Quantities = dict[str, str | int | float]


class KubeStruct(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base class of all structs for Kubernetes objects. In JSON, names are camelCase and fields with defaults are
    omitted.
    """


POD_SCHEDULED: Final = "PodScheduled"  # Type of the condition that tells whether a pod has a node
UNSCHEDULABLE: Final = "Unschedulable"
"""Reason of this condition if another node may help. Autoscalers add nodes for pods with this reason only."""
SCHEDULER_ERROR: Final = "SchedulerError"
"""Reason of this condition after an error of the scheduler."""
SCHEDULING_GATED: Final = "SchedulingGated"
"""Reason of this condition if the pod may not be attempted yet."""
WAITING_FOR_GANG: Final = "WaitingForGang"
"""Reason of this condition if the pod waits for other members of its gang. Our own."""
QUOTA_EXCEEDED: Final = "QuotaExceeded"
"""Reason of this condition if a quota refuses the pod. Our own."""
RESIZE_PENDING: Final = "PodResizePending"  # Type of the condition that the kubelet has not granted a resize
INFEASIBLE: Final = "Infeasible"  # Reason of `RESIZE_PENDING`: the node can never grant the resize


class ResourceRequirements(KubeStruct):
    """Requests and limits of a container or a pod as resource lists (object `resources`)."""

    requests: Quantities = {}
    limits: Quantities = {}


class ContainerStateWaiting(KubeStruct):
    """Object `waiting` of a container's state: why the container does not run."""

    reason: str = ""


class ContainerStateTerminated(KubeStruct):
    """Object `terminated` of a container's state: why the container ended, and its exit code."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(KubeStruct):
    """The state of a container. Both fields are None if the container runs or its state is unknown."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(KubeStruct):
    """A container in the status of a pod: its name, its restarts, and its present state (None if unknown)."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState | None = None
    # Requests that the kubelet has granted. They differ from the spec until the kubelet has granted a resize.
    allocated_resources: Quantities = {}
    # Requests and limits in force; None if the kubelet has not told them. They differ from those of
    # `allocated_resources` until the kubelet has carried out a resize.
    resources: ResourceRequirements | None = None


class PodCondition(KubeStruct):
    """A condition in the status of a pod: type, status, reason and time of the last change."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


DISRUPTION_TARGET: Final = "DisruptionTarget"
"""Type of the condition of a pod that is about to leave. Its reason names who takes the pod."""
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
"""Reason of this condition if a scheduler preempts the pod."""


class PodStatus(KubeStruct):
    """Object `status` of a pod. An absent text is "". The containers' statuses are tuples, so that all pods without
    them share one empty value.
    """

    phase: str = ""
    reason: str = ""
    qos_class: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: list[PodCondition] = []
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    # As the fields of a container's status, for the pod-level resources.
    allocated_resources: Quantities = {}
    resources: ResourceRequirements | None = None


class OwnerReference(KubeStruct):
    """Reference to an owner: kind, name and uid. `controller`: whether this owner controls the object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(KubeStruct):
    """Object `metadata`. An absent text is ""; times are RFC 3339 texts of the API server, None if not set."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []


class LabelSelectorRequirement(KubeStruct):
    """One condition of a selector: key, operator (In, NotIn, Exists, DoesNotExist; for nodes Gt, Lt) and values."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(KubeStruct):
    """A label selector as written: `match_labels` and `match_expressions` must all match (protocol spec, 1.3)."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class ContainerPort(KubeStruct):
    """A port of a container and the port that it takes on the host; `host_port` 0: none."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(KubeStruct):
    """A container or init container. `restart_policy` "Always" makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] = []
    restart_policy: str | None = None


class Toleration(KubeStruct):
    """A taint that a pod tolerates: key, operator, value and effect (object `spec.tolerations[]`). The default operator
    is Equal. An empty effect matches every effect.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(KubeStruct):
    """A taint of a node: key, value and effect. It keeps away pods that do not tolerate it (object `spec.taints[]`)."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSelectorTerm(KubeStruct):
    """Conditions on labels and fields of a node, which must all match. A term without conditions matches no node."""

    match_expressions: list[LabelSelectorRequirement] = []
    match_fields: list[LabelSelectorRequirement] = []


class NodeSelector(KubeStruct):
    """Conditions on nodes as a list of terms, of which at least one must match."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(KubeStruct):
    """A preferred condition on nodes, with a weight of 1 to 100 that is added to the score."""

    weight: int = 1
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(KubeStruct):
    """Required and preferred conditions of a pod on nodes (object `spec.affinity.nodeAffinity`). `required` is None if
    the pod requires nothing.
    """

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list[PreferredSchedulingTerm], name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(KubeStruct):
    """Pods that a pod wants near or far, by selectors of pods and namespaces. Two nodes are near each other if their
    values of the label `topology_key` are equal.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(KubeStruct):
    """A preferred pod affinity term, with a weight of 1 to 100 that is added to the score."""

    weight: int = 1
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(KubeStruct):
    """Required and preferred terms of a pod about other pods (objects `podAffinity` and `podAntiAffinity`)."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list[PodAffinityTerm], name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list[WeightedPodAffinityTerm], name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(KubeStruct):
    """Rules that attract a pod to nodes or pods, or keep it away from pods (object `spec.affinity`). None: no rule."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(KubeStruct):
    """A rule for spreading the selected pods evenly over topology domains (object `spec.topologySpreadConstraints[]`).
    The numbers of pods in two domains may differ by at most `max_skew`.
    """

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class VolumeClaimSource(KubeStruct):
    """Reference of a volume to its PersistentVolumeClaim: object `spec.volumes[].persistentVolumeClaim`."""

    claim_name: str = ""


class VolumeSource(KubeStruct):
    """A source of a volume. The fields of the source are dropped; only its kind is kept."""


class Volume(KubeStruct):
    """A volume of a pod with its source. All attributes are None if the source is of a kind that is dropped."""

    name: str = ""
    persistent_volume_claim: VolumeClaimSource | None = None
    host_path: VolumeSource | None = None
    empty_dir: VolumeSource | None = None
    ephemeral: VolumeSource | None = None


class PodResourceClaim(KubeStruct):
    """Reference of a pod to a ResourceClaim: object `spec.resourceClaims[]`. Only its name in the pod is kept."""

    name: str = ""


class SchedulingGate(KubeStruct):
    """A gate that keeps a pod out of scheduling: object `spec.schedulingGates[]`."""

    name: str


class NativeGroup(KubeStruct):
    """A pod's group in Kubernetes' Workload API: object `spec.workloadRef` (1.35) or `spec.schedulingGroup` (1.36 on).
    Only its names are kept.
    """

    name: str = ""
    pod_group: str = ""
    pod_group_name: str = ""


class PodSpec(KubeStruct):
    """Object `spec` of a pod, reduced to the fields that placement needs. None and "" mean that a field is not set."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[SchedulingGate] = []
    workload_ref: NativeGroup | None = None
    scheduling_group: NativeGroup | None = None
    volumes: list[Volume] = []
    resource_claims: list[PodResourceClaim] = []
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduler_name: str = ""
    node_name: str = ""
    host_network: bool = False
    termination_grace_period_seconds: int | None = None


class Pod(KubeStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeSpec(KubeStruct):
    """Object `spec` of a node: its taints, and whether it is closed for new pods (`unschedulable`)."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeCondition(KubeStruct):
    type: str = ""
    status: str = ""
    reason: str = ""


class ContainerImage(KubeStruct):
    """An image that is stored on a node: its names and its size in bytes (object `status.images[]`)."""

    names: list[str] = []
    size_bytes: int = 0


class NodeStatus(KubeStruct):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[NodeCondition] = []
    images: list[ContainerImage] = []


class Node(KubeStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Namespace(KubeStruct):
    """A namespace. Only its metadata is kept."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class PriorityClass(KubeStruct):
    """A PriorityClass (scheduling.k8s.io/v1): a name for a priority value, with a preemption policy."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class ConfigMap(KubeStruct):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    data: dict[str, str] = {}


class PodTemplate(KubeStruct):
    """Template of the pods of a workload: object `spec.template`."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class Workload(KubeStruct):
    """A Deployment or Job: its pod template and its number of pods (`replicas`; for a Job its `parallelism`)."""

    kind: str = ""
    api_version: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


O = TypeVar("O", bound=KubeStruct)  # noqa: E741 - the conventional letter for "some object type"


def without_nulls(value: object) -> object:
    """Return a copy of a JSON value without object members that are `null`. Kubernetes reads these as absent."""
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        return {key: without_nulls(item) for key, item in entries.items() if item is not None}
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [without_nulls(item) for item in items]
    return value


def object_from_json(raw: object, kind: type[O]) -> O:
    """Convert a decoded JSON object to the struct type `kind`. Unknown fields are dropped, and nulls count as absent.

    Raises:
        codec.DecodeError: A field has a wrong type. The error has its path.
    """
    return codec.convert(raw if _is_free_of_nulls(raw) else without_nulls(raw), kind)


def _is_free_of_nulls(raw: object) -> bool:
    """Return True if the value certainly contains no null. Encoding it takes a twentieth of the time of a copy."""
    try:
        return b"null" not in codec.encode(raw)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def pod_from_json(raw: object) -> Pod:
    """Convert a decoded JSON object to a Pod. Unknown fields are dropped, and nulls count as absent.

    Raises:
        codec.DecodeError: A field has a wrong type. The error has its path.
    """
    try:
        # objects from an API server hold no nulls, and looking for them takes ten times as long as the conversion
        return codec.convert(raw, Pod)
    except codec.DecodeError:
        return object_from_json(raw, Pod)


def node_from_json(raw: object) -> Node:
    """Convert a decoded JSON object to a Node. Unknown fields are dropped, and nulls count as absent.

    Raises:
        codec.DecodeError: A field has a wrong type. The error has its path.
    """
    return object_from_json(raw, Node)


_SUFFIX: Final = 5
_MOST: Final = 63 - _SUFFIX
_LETTERS: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")


def generated_base(name: str) -> str:
    """Return the prefix (`generateName`) of a name that an API server generated; "" for any other name. A generated
    name ends with five random characters of a certain alphabet.
    """
    base, suffix = name[:-_SUFFIX], name[-_SUFFIX:]
    return base if _LETTERS.issuperset(suffix) else ""


def base_of_names(generate_name: str) -> str:
    """Return the prefix of the names that an API server makes from a `generateName`. It is `generate_name` itself, cut
    to 58 characters, because the whole name has at most 63.
    """
    return generate_name[:_MOST]
