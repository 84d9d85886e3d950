"""Cluster state that admission reads besides the object.

It contains profiles, namespaces, priority classes, quotas and configuration. `fold_fact` keeps it up to date from
events, at a cost that does not grow with the cluster.

Source:
    manager spec, 8 to 13, 13.2 (rules are checked on the observed state); event-bus spec, 2.1
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from koordcore.events import objects
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, plural_of
from koordcore.protocol import keys
from koordcore.protocol.config.admission import NodeLabels
from koordcore.protocol.objects import Pod, PriorityClass
from koordcore.state import ClusterState, aggregates
from koordcore.state.index import IdsByKey
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.config_maps import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from koord_manager.domain.admission.context.enhanced_rules import EnhancedRules, read_rules
from koord_manager.domain.admission.context.hardware_shapes import HardwareShapes
from koord_manager.domain.admission.context.profiles import (
    ColocationProfile,
    ProfileIndex,
    QuotaProfile,
    read_profile,
    read_quota_profile,
)
from koord_manager.domain.admission.context.quota import Quotas, read_quota
from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.request import JsonObject

ENHANCED_NAMESPACE: Final = "koordinator-system"
ENHANCED_NAME: Final = "pod-enhanced-validator-config"

PROFILES: Final = "clustercolocationprofiles"
QUOTAS: Final = "elasticquotas"
QUOTA_PROFILES: Final = "elasticquotaprofiles"
ADMISSION_KINDS: Final = frozenset((PROFILES, QUOTAS, QUOTA_PROFILES))
"""Plurals of the custom resources that admission reads."""

Recommend = Callable[[JsonObject, str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigNames:
    """Names of the ConfigMaps that the manager reads.

    They are set by the flags --config-namespace, --slo-config-name and --pod-enhanced-validator-config-*.
    """

    slo_namespace: str = SLO_CONFIG_NAMESPACE
    slo_name: str = SLO_CONFIG_NAME
    enhanced_namespace: str = ENHANCED_NAMESPACE
    enhanced_name: str = ENHANCED_NAME


class Facts:
    """Profiles, quotas, namespaces, priority classes, nodes and configuration of the cluster."""

    def __init__(self, names: ConfigNames = ConfigNames()) -> None:
        self.names = names  # Names of the ConfigMaps that the manager reads
        self.quotas = Quotas()
        self.slo_config: Mapping[str, str] | None = None  # Data of slo-controller-config, or None if it does not exist
        self.enhanced_rules = EnhancedRules()  # Labels that pods must have
        self.hardware = HardwareShapes()  # The largest NUMA zones and GPU groups of the cluster
        # `<plural>=<namespace>/<name>` -> reason why a stored custom resource is ignored.
        self.unreadable: dict[str, str] = {}
        # Function that sets the recommended requests of a new pod in place, or None if there is no recommender. It
        # returns the name of the Recommendation, or None if nothing is recommended for the pod.
        self.recommend: Recommend | None = None
        self._profiles: dict[str, ColocationProfile] = {}
        self._profile_index: ProfileIndex | None = None
        self._quota_profiles: dict[tuple[str, str], QuotaProfile] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._priority_classes: dict[str, PriorityClass] = {}
        self._nodes: dict[str, Mapping[str, str]] = {}
        self._pods_by_namespace = IdsByKey[str]()
        self._pods_by_quota = IdsByKey[str]()

    # -- taking in ---------------------------------------------------------------------------------------------------

    def observe(self, plural: str, namespace: str, name: str, document: JsonObject) -> None:
        """Add or replace a custom resource; no-op for kinds that admission does not read.

        If the object is not valid, it is removed, and the reason is stored in `unreadable`.

        Args:
            plural: Plural of its kind, such as `elasticquotas`.
            namespace: Its namespace, or empty for a cluster-scoped kind.
        """
        key = f"{plural}={namespace}/{name}"
        self.unreadable.pop(key, None)
        try:
            match plural:
                case "clustercolocationprofiles":
                    self._profiles[name] = read_profile(document)
                    self._profile_index = None
                case "elasticquotas":
                    self.quotas.put(read_quota(document))
                case "elasticquotaprofiles":
                    self._quota_profiles[namespace, name] = read_quota_profile(document)
                case "noderesourcetopologies":
                    self.hardware.topology_observed(name, document)
                case "devices":
                    self.hardware.device_observed(name, document)
                case _:
                    pass
        except (InvalidInput, RecursionError) as error:
            self.forget(plural, namespace, name)
            self.unreadable[key] = str(error)

    def forget(self, plural: str, namespace: str, name: str) -> None:
        """Remove a custom resource, for example after its deletion; no-op if it is unknown."""
        self.unreadable.pop(f"{plural}={namespace}/{name}", None)
        match plural:
            case "clustercolocationprofiles":
                self._profiles.pop(name, None)
                self._profile_index = None
            case "elasticquotas":
                self.quotas.remove(namespace, name)
            case "elasticquotaprofiles":
                self._quota_profiles.pop((namespace, name), None)
            case "noderesourcetopologies":
                self.hardware.topology_observed(name, None)
            case "devices":
                self.hardware.device_observed(name, None)
            case _:
                pass

    def namespace_observed(self, name: str, labels: Mapping[str, str] | None) -> None:
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels

    def priority_class_observed(self, name: str, priority_class: PriorityClass | None) -> None:
        if priority_class is None:
            self._priority_classes.pop(name, None)
        else:
            self._priority_classes[name] = priority_class

    def node_observed(self, name: str, labels: Mapping[str, str] | None) -> None:
        if labels is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = labels

    def config_observed(self, namespace: str, name: str, data: Mapping[str, str] | None) -> None:
        """Set the data of a ConfigMap that the manager reads; None removes it. No-op for other ConfigMaps."""
        if (namespace, name) == (self.names.slo_namespace, self.names.slo_name):
            self.slo_config = data
        elif (namespace, name) == (self.names.enhanced_namespace, self.names.enhanced_name):
            self.enhanced_rules = read_rules(self.enhanced_rules, data)

    def pod_observed(self, uid: str, pod: Pod) -> None:
        """Count a new or changed pod in the numbers of pods of its namespace and of the quota that its label names."""
        self._pods_by_namespace.put(uid, pod.metadata.namespace)
        quota = pod.metadata.labels.get(keys.QUOTA_NAME)
        self._pods_by_quota.put(uid, *([quota] if quota else []))

    def pod_gone(self, uid: str) -> None:
        """Remove a deleted pod from the numbers of pods of its namespace and quota; no-op if it was never counted."""
        self._pods_by_namespace.put(uid)
        self._pods_by_quota.put(uid)

    def with_profiles(self, index: ProfileIndex) -> "Facts":
        """Return a copy with other colocation profiles. It shares all else and is valid until the original changes."""
        other = copy.copy(self)
        other._profile_index = index
        return other

    # -- looking up --------------------------------------------------------------------------------------------------

    def profiles(self) -> ProfileIndex:
        if self._profile_index is None:
            self._profile_index = ProfileIndex(self._profiles)
        return self._profile_index

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Name of each existing namespace -> its labels."""
        return self._namespaces

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace, or None if the namespace was never observed or was deleted."""
        return self._namespaces.get(name)

    def priority_class(self, name: str) -> PriorityClass | None:
        return self._priority_classes.get(name)

    def default_priority_class(self) -> PriorityClass | None:
        """Return the class of pods that name none, or None if no class is a default.

        Of several, the one with the lowest value is returned, and of equal values the first by name.

        Source: Kubernetes, admission plugin Priority.
        """
        defaults = [found for found in self._priority_classes.values() if found.global_default]
        return min(defaults, key=lambda found: (found.value, found.metadata.name), default=None)

    def quota_profile_of_tree(self, tree_id: str) -> QuotaProfile | None:
        """Return the profile of a quota tree, or None if no profile has a label with its id.

        If several profiles have it, the first by namespace and name is returned.
        """
        found = (profile for _, profile in sorted(self._quota_profiles.items()) if profile.tree_id == tree_id)
        return next(found, None)

    def nodes(self) -> Iterable[NodeLabels]:
        """Return every node with its labels, in order of name."""
        return (NodeLabels(name=name, labels=self._nodes[name]) for name in sorted(self._nodes))

    def pods_of_quota(self, name: str) -> int:
        """Return the number of pods whose quota label has this name."""
        return len(self._pods_by_quota.of(name))

    def pods_of_namespace(self, name: str) -> int:
        return len(self._pods_by_namespace.of(name))


def facts_of(state: ClusterState, names: ConfigNames) -> Facts:
    """Build the cluster state of admission from a folded state of the log, for example from a snapshot."""
    facts = Facts(names)
    for namespace in state.of_kind(aggregates.NamespaceState).values():
        facts.namespace_observed(namespace.object.metadata.name, namespace.object.metadata.labels)
    for priority_class in state.of_kind(aggregates.PriorityClassState).values():
        facts.priority_class_observed(priority_class.object.metadata.name, priority_class.object)
    for node in state.of_kind(aggregates.NodeSpecState).values():
        facts.node_observed(node.object.metadata.name, node.object.metadata.labels)
    for config in state.of_kind(aggregates.ConfigState).values():
        if config.object is not None:
            meta = config.object.metadata
            facts.config_observed(meta.namespace, meta.name, config.object.data)
    for id_, custom in state.of_kind(aggregates.CustomObjectState).items():
        _observe(facts, id_, custom.object)
    for uid, pod in state.of_kind(aggregates.PodSpecState).items():
        facts.pod_observed(uid, pod.object)
    return facts


def fold_fact(facts: Facts, ref: AggregateRef, event: Event) -> None:
    """Update the cluster state of admission with one event of the log; no-op for kinds of events that it does not read.

    Args:
        facts: Changed in place.
        ref: Aggregate of the event, such as `podspec.<uid>`.
    """
    match event:
        case objects.PodSpecAdded() | objects.PodSpecChanged():
            facts.pod_observed(ref.id, event.object)
        case objects.PodSpecDeleted():
            facts.pod_gone(ref.id)
        case CustomObjectObserved():
            _observe(facts, ref.id, event.object)
        case CustomObjectDeleted():
            facts.forget(plural_of(ref.id), event.namespace, event.name)
        case objects.NamespaceObserved():
            facts.namespace_observed(event.object.metadata.name, event.object.metadata.labels)
        case objects.NamespaceDeleted():
            facts.namespace_observed(event.name, None)
        case objects.PriorityClassObserved():
            facts.priority_class_observed(event.object.metadata.name, event.object)
        case objects.PriorityClassDeleted():
            facts.priority_class_observed(event.name, None)
        case objects.NodeSpecAdded() | objects.NodeSpecChanged():
            facts.node_observed(event.object.metadata.name, event.object.metadata.labels)
        case objects.NodeSpecDeleted():
            facts.node_observed(event.name, None)
        case objects.ConfigAccepted():
            facts.config_observed(event.object.metadata.namespace, event.object.metadata.name, event.object.data)
        case objects.ConfigDeleted():
            facts.config_observed(event.namespace, event.name, None)
        case _:
            pass


def _observe(facts: Facts, ref_id: str, document: JsonObject) -> None:
    try:
        metadata = seen(document, "metadata")
    except InvalidInput as error:
        facts.unreadable[ref_id] = str(error)
        return
    facts.observe(plural_of(ref_id), str(metadata.get("namespace") or ""), str(metadata.get("name") or ""), document)
