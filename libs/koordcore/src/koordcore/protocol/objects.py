"""The Kubernetes objects that the log mirrors, cut down to the fields that some part of the system reads.

These are the hot-path types: msgspec structs that decode in microseconds and drop what they do not name (container
environment, commands, volumes' secrets and managed fields never enter the log). What a user may write, with field,
rule and value in the error, is judged at the edge by `koordcore.protocol.manifests`, which produces these types.
Field names on the wire are Kubernetes' own (camelCase).
"""

from typing import TypeVar, cast

import msgspec

from koordcore.values import codec

Quantities = dict[str, str | int | float]
"""A resource list as written: name -> quantity text or bare JSON number (protocol spec, 1.1)."""


class KubeStruct(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base of all API structs: camelCase on the wire, defaults left out. Trees: no garbage collector need follow."""


class OwnerReference(KubeStruct):
    """`metadata.ownerReferences[]`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(KubeStruct):
    """`metadata`. Absent text is ""; times are RFC 3339 text as the API server writes it."""

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
    """One expression of a label selector: In, NotIn, Exists, DoesNotExist (Gt, Lt in node selectors)."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(KubeStruct):
    """`matchLabels` and `matchExpressions`, ANDed (protocol spec, 1.3)."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class ResourceRequirements(KubeStruct):
    """`resources` of a container or a pod."""

    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(KubeStruct):
    """`ports[]` of a container."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(KubeStruct):
    """A container or init container; `restart_policy` "Always" makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] = []
    restart_policy: str | None = None


class Toleration(KubeStruct):
    """`spec.tolerations[]`; operator defaults to Equal, empty effect matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(KubeStruct):
    """`spec.taints[]` of a node."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSelectorTerm(KubeStruct):
    """Expressions over labels and fields, ANDed; an empty term matches nothing."""

    match_expressions: list[LabelSelectorRequirement] = []
    match_fields: list[LabelSelectorRequirement] = []


class NodeSelector(KubeStruct):
    """Terms, ORed."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(KubeStruct):
    """A weighted node selector term, weight 1..100."""

    weight: int = 1
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(KubeStruct):
    """`spec.affinity.nodeAffinity`."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list[PreferredSchedulingTerm], name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(KubeStruct):
    """One term of pod (anti-)affinity."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(KubeStruct):
    """A preferred term, weight 1..100."""

    weight: int = 1
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(KubeStruct):
    """`spec.affinity.podAffinity` and `podAntiAffinity` (same shape)."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list[PodAffinityTerm], name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list[WeightedPodAffinityTerm], name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(KubeStruct):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(KubeStruct):
    """`spec.topologySpreadConstraints[]`."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


class VolumeClaimSource(KubeStruct):
    """`spec.volumes[].persistentVolumeClaim`."""

    claim_name: str = ""


class Volume(KubeStruct):
    """`spec.volumes[]`: its claim, if it is one; what else a volume holds (secrets among it) is not kept."""

    name: str = ""
    persistent_volume_claim: VolumeClaimSource | None = None


class PodResourceClaim(KubeStruct):
    """`spec.resourceClaims[]`."""

    name: str = ""


class SchedulingGate(KubeStruct):
    """`spec.schedulingGates[]`."""

    name: str


class PodSpec(KubeStruct):
    """`spec` of a pod."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Quantities = {}
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    scheduling_gates: list[SchedulingGate] = []
    volumes: list[Volume] = []
    resource_claims: list[PodResourceClaim] = []
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduler_name: str = ""
    node_name: str = ""
    host_network: bool = False
    termination_grace_period_seconds: int | None = None


class PodCondition(KubeStruct):
    """`status.conditions[]` of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class PodStatus(KubeStruct):
    """`status` of a pod."""

    phase: str = ""
    qos_class: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: list[PodCondition] = []


class Pod(KubeStruct):
    """A pod."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class NodeSpec(KubeStruct):
    """`spec` of a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeCondition(KubeStruct):
    """`status.conditions[]` of a node."""

    type: str = ""
    status: str = ""
    reason: str = ""


class ContainerImage(KubeStruct):
    """`status.images[]` of a node."""

    names: list[str] = []
    size_bytes: int = 0


class NodeStatus(KubeStruct):
    """`status` of a node."""

    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[NodeCondition] = []
    images: list[ContainerImage] = []


class Node(KubeStruct):
    """A node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Namespace(KubeStruct):
    """A namespace: only its metadata matters here."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class PriorityClass(KubeStruct):
    """A `scheduling.k8s.io/v1` PriorityClass."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class ConfigMap(KubeStruct):
    """A ConfigMap's text entries."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    data: dict[str, str] = {}


class PodTemplate(KubeStruct):
    """`spec.template` of a workload."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class Workload(KubeStruct):
    """A Deployment or Job as a pod template with a number of pods (Job: `parallelism`)."""

    kind: str = ""
    api_version: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


O = TypeVar("O", bound=KubeStruct)  # noqa: E741 - the conventional letter for "some object type"


def without_nulls(value: object) -> object:
    """Return the same JSON value with object entries that are `null` dropped: Kubernetes reads them as absent."""
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        return {key: without_nulls(item) for key, item in entries.items() if item is not None}
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [without_nulls(item) for item in items]
    return value


def object_from_json(raw: object, kind: type[O]) -> O:
    """Return the subset of a decoded JSON object; unknown fields are dropped, nulls count as absent.

    Raises:
        codec.DecodeError: Naming the path, for a field of a wrong type.
    """
    return codec.convert(without_nulls(raw), kind)


def pod_from_json(raw: object) -> Pod:
    """Return a pod from decoded JSON, see `object_from_json`."""
    try:
        # objects from an API server hold no nulls, and looking for them takes ten times as long as the conversion
        return codec.convert(raw, Pod)
    except codec.DecodeError:
        return object_from_json(raw, Pod)


def node_from_json(raw: object) -> Node:
    """Return a node from decoded JSON, see `object_from_json`."""
    return object_from_json(raw, Node)
