"""Equivalence classes of pods: what plugins read from a pod, resolved once for all pods with equal values.

    PodClass   decides about nodes, apart from pods on other nodes; views cache answers per class
    PodKind    what constraints of other pods read (`population`)

The thousand replicas of a Deployment are one class and one kind. The built-in transformers change a pod before it is
read: deprecated resource names, and changes behind feature gates.

Source: scheduler-core spec, 3 (input transformers), 12.2 b; protocol spec, 2.2 (8), 3.1
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol import keys
from koordcore.protocol.annotations.gang import gang_name
from koordcore.protocol.annotations.pods import preemption_policy_or_never
from koordcore.protocol.objects import Affinity, NodeAffinity, Pod, PodSpec, Toleration
from koordcore.protocol.pod_resources import pod_requests, pod_requests_non_zero, resize_of
from koordcore.protocol.priority import priority_value
from koordcore.protocol.resource_names import parse_replace_resources, rename_pod, replace_pod_resources
from koordcore.protocol.storage import claims_of, is_token
from koordcore.values import codec

from koord_scheduler.domain.cluster.kinds import OwnTerms, PodKind, resolved_term
from koord_scheduler.domain.columns.node_columns import Demand, NodeColumns


@dataclass(frozen=True, slots=True)
class Claims:
    namespace: str  # Namespace of the pod and of its claims
    names: tuple[str, ...]
    ephemeral: frozenset[str] = frozenset()  # The names that belong to ephemeral volumes


def claims_of_pod(pod: Pod) -> Claims | None:
    """None if it uses none."""
    found = list(claims_of(pod))
    if not found:
        return None
    names = tuple(dict.fromkeys(name for name, _ in found))
    return Claims(pod.metadata.namespace, names, frozenset(name for name, is_ephemeral in found if is_ephemeral))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTransformers:
    """What the scheduler changes in pods when it reads them. An attribute says whether a feature gate is on."""

    # `spec.priority` becomes the priority value of the pod: the default of its class if none is set.
    priority: bool = False
    preemption_policy: bool = False  # `spec.preemptionPolicy` becomes what a label states, Never without the label
    # The annotation of a pod can remove its resources, or move their amounts to other names.
    replace_resources: bool = False

    def transform(self, pod: Pod) -> Pod:
        """Return the pod with deprecated resource names replaced and the changes of enabled gates. The same object if
        nothing changes. The method is idempotent. Raises InvalidInput: a request is not a valid quantity.
        """
        pod = rename_pod(pod)
        wish = pod.metadata.annotations.get(keys.REPLACE_RESOURCES) if self.replace_resources else None
        if wish:
            # The annotation goes with it: a pod that comes back from a snapshot must not be transformed again.
            kept = {key: text for key, text in pod.metadata.annotations.items() if key != keys.REPLACE_RESOURCES}
            meta = msgspec.structs.replace(pod.metadata, annotations=kept)
            pod = replace_pod_resources(msgspec.structs.replace(pod, metadata=meta), parse_replace_resources(wish))
        spec = pod.spec
        if self.priority and spec.priority != (priority := priority_value(pod)):
            spec = msgspec.structs.replace(spec, priority=priority)
        if self.preemption_policy and spec.preemption_policy != (
            policy := preemption_policy_or_never(pod.metadata.labels)
        ):
            spec = msgspec.structs.replace(spec, preemption_policy=policy)
        return pod if spec is pod.spec else msgspec.structs.replace(pod, spec=spec)


_REMEMBERED: Final = 8192
DEFAULT_SCHEDULER: Final = "koord-scheduler"


class Reader(Protocol):
    """A plugin that reads more of a pod than resources, selectors and tolerations (extension point ReadPod)."""

    @property
    def name(self) -> str:
        """Under which `PodClass.aspects` has the value of `read`."""
        ...

    def read(self, pod: Pod) -> Hashable:
        """A hashable value with all parts of the pod that the plugin reads. None if the plugin ignores this pod."""
        ...


class Concerned(Protocol):
    """A plugin that concerns only some pods (extension point Concerns)."""

    def concerns(self, pod: Pod) -> bool:
        """Called once for pods with equal spec, namespace, labels, annotations and owners."""
        ...


class Transformer(Protocol):
    """A plugin that changes pods before any other plugin reads them (extension point TransformPod)."""

    def transform(self, pod: Pod) -> Pod:
        """Return the pod as all plugins shall see it. If nothing changes, return the same object."""
        ...


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class PodClass:
    """A pod equivalence class: everything that decides whether a node suits a pod, apart from pods on other nodes. Pods
    of one class fit on the same nodes and share cached results of filters and scores.
    """

    key: bytes  # Identifies the class
    # Equal for classes that differ only in requests, and in aspects that no filter by node shape reads.
    shape_key: bytes
    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    node_affinity: NodeAffinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    demand: Demand  # The amounts that the pod takes
    # Name of a plugin -> the value that it read from the pod.
    aspects: Mapping[str, Hashable] = field(default_factory=dict[str, Hashable])
    concerned: int = 0  # Bit i is set if plugin i of `PodClasses.concerned` concerns the pod

    @property
    def requests(self) -> Mapping[str, int]:
        """Milli-cores, bytes, whole units."""
        return self.demand.requests


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Subject:
    """The part of a pod that decides whether it finds a node: class, kind, profile, claims and gang. Pods with equal
    values share one object.
    """

    pod_class: PodClass  # Properties that are compared with one node alone, such as requests and tolerations
    # Properties that are compared with pods on all nodes: namespace, labels, affinity, spread constraints.
    kind: PodKind
    profile: str = ""  # Scheduler name of the pod, which selects the profile
    # Its PersistentVolumeClaims; None if it uses none. They are not part of the class, because the pods of a
    # StatefulSet differ in nothing else.
    claims: Claims | None = None
    # Name of its gang; "" without one. Of two gangs with equal pods, the smaller one may fit where the other does not,
    # so an event that helps must wake both.
    gang: str = ""
    # The subject of equal pods without a gang; None if this one has none. Filters and scores do not depend on the gang.
    alone: "Subject | None" = None


_Identity: TypeAlias = tuple[PodClass, PodKind, str, Claims | None, str]
"""Class, kind, profile, claims and gang of a subject."""


class Reading(NamedTuple):
    """The result of reading a pod object: the pod after all transformers, with its subject."""

    subject: Subject
    pod: Pod  # The pod after the transformers
    sort: "PodSort"  # Cache that all pods with equal specs, labels and annotations share


@dataclass(slots=True, eq=False)
class PodSort:
    """Cache of results that all pods with equal spec, labels and annotations share."""

    subject: Subject
    is_transformed: bool  # Whether a transformer changes these pods
    pod: Pod
    # Kubernetes QoS class -> the pod in the form that its node's agent gets, see the function `on_node`.
    on_node: dict[str, PodOnNode] = field(default_factory=dict[str, PodOnNode])


class PodClasses:
    """All equivalence classes and kinds of existing pods. One disappears when no pod refers to it any more."""

    def __init__(
        self, nodes: NodeColumns, readers: Sequence[Reader] = (), transformers: PodTransformers | None = None
    ) -> None:
        self._nodes = nodes
        self._transform = (transformers or PodTransformers()).transform
        # Scheduler name -> plugins that change its pods. Complete before the first pod is read.
        self.transformers: Mapping[str, Sequence[Transformer]] = {}
        self.readers = list(readers)  # Plugins that read something from pods. Complete before the first pod is read.
        # Names of the readers on whose values filters or scores by node shape depend.
        self.shape_readers: set[str] = set()
        # Plugins that concern only some pods. Complete before the first pod is read.
        self.concerned: list[Concerned] = []
        # Returns the value that depends on the name or uid of a pod. Pods with different values share no reading.
        self.named: Callable[[Pod], tuple[Hashable, ...]] = lambda _: ()
        self._templates: WeakValueDictionary[tuple[bytes, int, tuple[Hashable, ...]], PodClass] = WeakValueDictionary()
        self._kinds: WeakValueDictionary[bytes, PodKind] = WeakValueDictionary()
        self._subjects: WeakValueDictionary[_Identity, Subject] = WeakValueDictionary()
        self._known: dict[bytes, PodSort] = {}

    def _transformed(self, pod: Pod) -> Pod:
        pod = self._transform(pod)
        for plugin in self.transformers.get(scheduler_name_of(pod), ()):
            pod = plugin.transform(pod)
        return pod

    def forget(self) -> None:
        """Drop the cached results of `read`, because the set of pods that a plugin concerns has changed."""
        self._known.clear()

    def forget_like(self, is_meant: Callable[[Pod], bool]) -> None:
        """Drop the cached results of `read` for pods that `is_meant`."""
        for key in [key for key, sort in self._known.items() if is_meant(sort.pod)]:
            del self._known[key]

    def of(self, pod: Pod) -> PodClass:
        """Raises InvalidInput: a request is not a valid quantity."""
        return self.read(pod).subject.pod_class

    def as_is(self, pod: Pod, profile: str = "") -> Subject:
        """The subject without calling transformers, for copies that replace a pod for one cycle. `profile`: scheduler
        name under which it is scheduled; "" if it only counts on a node. Raises InvalidInput: a request is not a valid
        quantity.
        """
        return self._subject(pod, profile)

    def read(self, pod: Pod) -> Reading:
        """Return the pod after the transformers, with its subject. The result is cached for pods that are equal but for
        the names of their tokens' volumes. Raises InvalidInput: a request is not a valid quantity.
        """
        meta = pod.metadata
        key = codec.encode(
            (
                _without_tokens(pod.spec),
                meta.namespace,
                meta.labels,
                meta.annotations,
                meta.owner_references,
                meta.deletion_timestamp is not None,
                resize_of(pod),
            )
        )
        named = self.named(pod)
        if named:
            key += repr(named).encode()
        known = self._known.get(key)
        if known is None:
            transformed = self._transformed(pod)
            known = PodSort(self._subject(transformed, scheduler_name_of(pod)), transformed is not pod, pod)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = known
        return Reading(known.subject, self._transformed(pod) if known.is_transformed else pod, known)

    def read_on_node(self, pod: Pod) -> Reading:
        """As `read`, for a pod that has a node at the API server, so that it only counts there. Pods that differ in
        nothing but their nodes have one subject, and their objects share all parts that are equal. Raises InvalidInput:
        a request is not a valid quantity.
        """
        if resize_of(pod) is not None:
            return self.read(pod)  # it counts with what its kubelet tells, which is nothing without a node
        without = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
        subject, _, sort = self.read(without)
        return Reading(subject, self._transformed(pod) if sort.is_transformed else _sharing(pod, sort.pod), sort)

    def _subject(self, pod: Pod, profile: str) -> Subject:
        gang = gang_name(pod.metadata.labels, pod.metadata.annotations)
        read = (self._template(pod), self._kind(pod), profile, claims_of_pod(pod))
        alone = self._subject_of((*read, ""), None)
        return self._subject_of((*read, gang), alone) if gang else alone

    def _subject_of(self, identity: _Identity, alone: Subject | None) -> Subject:
        subject = self._subjects.get(identity)
        if subject is None:
            subject = self._subjects[identity] = Subject(*identity, alone)
        return subject

    def _template(self, pod: Pod) -> PodClass:
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        requests, non_zero = pod_requests(pod), pod_requests_non_zero(pod)
        aspects = {reader.name: aspect for reader in self.readers if (aspect := reader.read(pod)) is not None}
        concerned = sum(1 << bit for bit, plugin in enumerate(self.concerned) if plugin.concerns(pod))
        of_shape = [repr(aspects.get(name)) for name in sorted(self.shape_readers)]
        of_node = [spec.node_name, spec.node_selector, affinity, spec.tolerations]
        shape_key = codec.encode_canonical([*of_node, concerned, *of_shape])
        key = shape_key + codec.encode_canonical([requests, non_zero])
        identity = (key, concerned, tuple(aspects.items()))
        known = self._templates.get(identity)
        if known is None or self._nodes.is_outdated(known.demand):
            known = self._templates[identity] = PodClass(
                key=key,
                shape_key=shape_key,
                node_name=spec.node_name,
                node_selector=spec.node_selector,
                node_affinity=affinity,
                tolerations=tuple(spec.tolerations),
                demand=self._nodes.demand(requests, non_zero),
                aspects=aspects,
                concerned=concerned,
            )
        return known

    def _kind(self, pod: Pod) -> PodKind:
        meta, affinity = pod.metadata, pod.spec.affinity
        terminating = meta.deletion_timestamp is not None
        pod_terms = [affinity.pod_affinity, affinity.pod_anti_affinity] if affinity is not None else []
        owners = tuple((owner.kind, owner.name) for owner in meta.owner_references if owner.controller)
        spread = tuple(pod.spec.topology_spread_constraints)
        key = codec.encode_canonical([meta.namespace, meta.labels, terminating, pod_terms, owners, spread])
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = PodKind(
                namespace=meta.namespace,
                labels=meta.labels,
                terminating=terminating,
                terms=own_terms(affinity, meta.namespace, meta.labels),
                spread=spread,
                owners=owners,
            )
        return known


def _without_tokens(spec: PodSpec) -> PodSpec:
    volumes = [volume for volume in spec.volumes if not is_token(volume)]
    return spec if len(volumes) == len(spec.volumes) else msgspec.structs.replace(spec, volumes=volumes)


def _sharing(pod: Pod, equal: Pod) -> Pod:
    """Return the pod with the parts of another one that has equal labels, annotations and owners, and an equal spec
    apart from the node and the volumes of tokens. A cluster has many pods of few workloads, and these parts are most of
    what a pod holds.
    """
    theirs, replace = equal.metadata, msgspec.structs.replace
    volumes = equal.spec.volumes if equal.spec.volumes == pod.spec.volumes else pod.spec.volumes
    return replace(
        pod,
        metadata=replace(
            pod.metadata,
            namespace=theirs.namespace,
            labels=theirs.labels,
            annotations=theirs.annotations,
            owner_references=theirs.owner_references,
        ),
        spec=replace(equal.spec, node_name=pod.spec.node_name, volumes=volumes),
    )


def scheduler_name_of(pod: Pod) -> str:
    """Its label, otherwise `spec.schedulerName`, otherwise koord-scheduler."""
    return pod.metadata.labels.get(keys.SCHEDULER_NAME, pod.spec.scheduler_name) or DEFAULT_SCHEDULER


def own_terms(affinity: Affinity | None, namespace: str, labels: Mapping[str, str]) -> OwnTerms:
    """With default namespaces and label keys resolved. Source: scheduler-core spec, 5.7."""
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return OwnTerms()
    wanted, unwanted = affinity.pod_affinity, affinity.pod_anti_affinity
    return OwnTerms(
        affinity=tuple(resolved_term(term, namespace, labels) for term in (wanted.required if wanted else ())),
        anti_affinity=tuple(resolved_term(term, namespace, labels) for term in (unwanted.required if unwanted else ())),
        preferred=tuple(
            (resolved_term(item.pod_affinity_term, namespace, labels), sign * item.weight)
            for sign, side in ((1, wanted), (-1, unwanted))
            if side is not None
            for item in side.preferred
        ),
    )
