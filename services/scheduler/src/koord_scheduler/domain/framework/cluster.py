"""The facts about the cluster that plugins share, whatever the profile.

The fold calls this module for each fact, and the fact is passed to everything that keeps state about it: books of
features, and plugins. Effects on waiting pods are only collected here (`activate`), because the queue decides about
these.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar, cast

from koordcore.protocol.objects import LabelSelector, Namespace, Node, Pod, Workload, object_from_json
from koordcore.protocol.scheduling_objects import PodDisruptionBudget, SelectingController, Service
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.accounting import LowestPriorities, NodeAccounting
from koord_scheduler.domain.cluster.equivalence_classes import PodClasses, PodTransformers
from koord_scheduler.domain.cluster.population import Population
from koord_scheduler.domain.cluster.selectors import DisruptionBudgets, OwnerSelectors
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.columns.node_shape import NodeShape
from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.framework.extension_points import (
    CONCERNS,
    FOLLOW_NODES,
    FOLLOW_PODS,
    READ_POD,
    READ_SHAPE,
    SETTLE,
)
from koord_scheduler.domain.framework.fact_points import NodeFollower, PodFollower, SettlingPlugin
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.node_points import ConcernedPlugin, PodReader
from koord_scheduler.domain.framework.plugin import Plugin, declares
from koord_scheduler.domain.framework.topology_hints import Affinities

T = TypeVar("T", bound=Plugin)
ConfigReader: TypeAlias = Callable[[Mapping[str, str]], list[str]]
"""Takes the data of a ConfigMap, empty if it was deleted, and returns a sentence for each entry that it ignores."""
CONTROLLER_PLURALS: Final = {
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "deployments": "Deployment",
}
"""Controllers with a label selector that spreads their pods by default.

A Deployment owns pods without an API server only. Jobs are not among them, as in kube-scheduler.
"""
_SELECTING_BY_LABELS: Final = {"services": "", "replicationcontrollers": "ReplicationController"}
"""Kinds whose selector is a plain map of labels. The kind of a controller; "" for none."""
_PLURALS: Final = frozenset({"poddisruptionbudgets", *_SELECTING_BY_LABELS, *CONTROLLER_PLURALS})


class Cluster:
    """State of the cluster that plugins of all profiles read. Each feature has its own in its book."""

    def __init__(self, gates: SchedulerGates | None = None) -> None:
        self.gates = gates = gates or SchedulerGates()  # The feature gates
        self.schedulers: frozenset[str] = (
            frozenset()
        )  # Scheduler names of the profiles, whose pods this scheduler places
        transformers = PodTransformers(
            priority=gates.priority_transformer,
            preemption_policy=gates.preemption_policy_transformer,
            replace_resources=gates.replace_resources_transformer,
        )
        self.nodes = NodeColumns()  # All nodes as arrays
        # Numbers of pods on nodes, by selector, for affinity and spread constraints.
        self.population = Population(self.nodes)
        self.owners = OwnerSelectors()  # Selectors of services and controllers
        self.budgets = DisruptionBudgets()
        self.pod_classes = PodClasses(self.nodes, [], transformers)  # Equivalence classes of pods
        self.priorities = LowestPriorities()
        # Counts a pod on its node, in `nodes`, `population`, books and plugins.
        self.accounting = NodeAccounting(self.nodes, self.population, [self.priorities])
        self.node_followers: list[NodeFollower] = []
        self.settling_plugins: list[SettlingPlugin] = []
        # Functions from a pod to the inputs of decisions that depend on its own name or uid; usually none.
        self.named_by: list[Callable[[Pod], tuple[Hashable, ...]]] = []
        self.pod_classes.named = self._read_of_name
        # Whether a plugin has begun to concern all pods, so that pods must be read again. The fold does so.
        self.reads_differ = False
        self.affinities = Affinities()  # NUMA zones of the pod at Reserve, for all plugins that allocate inside zones
        self.books: dict[str, Book] = {}  # Name -> book of a feature
        self.plurals = set(_PLURALS)  # The custom objects that placement reads
        self.hardware: set[str] = set()  # Those of them that describe the node of the same name
        self.publishing: dict[str, Book] = {}  # Kind of an aggregate -> the book whose feature publishes its status
        self._readers: dict[str, Book] = {}
        self._node_books: list[Book] = []
        self._pod_books: list[Book] = []
        self._configs: dict[tuple[str, str], list[ConfigReader]] = {}
        self._shared: list[tuple[str, object, Plugin]] = []
        self._joined: list[Plugin] = []
        # Uids of pods that shall be attempted because of folded facts. The queue takes them out.
        self.activate: dict[str, None] = {}
        # Sentences about facts that are valid but probably unintended, the last 1000. `StateFold` takes them.
        self.warnings: deque[str] = deque(maxlen=1000)

    def add(self, book: Book) -> None:
        """Add the book of a feature. Complete before the first fact is folded."""
        self.books[book.name] = book
        self.plurals |= book.plurals
        self.hardware |= book.hardware
        self._readers.update(dict.fromkeys(book.plurals, book))
        self.publishing.update(dict.fromkeys(book.kinds, book))
        kind = type(book)
        if kind.put_node is not Book.put_node or kind.drop_node is not Book.drop_node:
            self._node_books.append(book)
        if kind.put_pod is not Book.put_pod or kind.drop_pod is not Book.drop_pod:
            self._pod_books.append(book)

    def _read_of_name(self, pod: Pod) -> tuple[Hashable, ...]:
        found: tuple[Hashable, ...] = ()
        for named in self.named_by:
            found += named(pod)
        return found

    def shared(self, name: str, key: object, make: Callable[[], T]) -> T:
        """An instance that all profiles with equal arguments share, made on the first call. `key`: its arguments; None
        without.
        """
        for known, known_key, plugin in self._shared:
            if known == name and known_key == key:
                return cast("T", plugin)
        plugin = make()
        self._shared.append((name, key, plugin))
        return plugin

    def join(self, plugin: Plugin) -> None:
        """Register a plugin for notifications of nodes and pods, and for reading pods, as its extension points declare.
        No-op if the plugin is registered already.
        """
        if any(plugin is known for known in self._joined):
            return
        self._joined.append(plugin)
        bit = 0
        if declares(plugin, CONCERNS):
            bit = 1 << len(self.pod_classes.concerned)
            self.pod_classes.concerned.append(cast("ConcernedPlugin", plugin))
        if declares(plugin, FOLLOW_NODES):
            self.node_followers.append(cast("NodeFollower", plugin))
        if declares(plugin, SETTLE):
            self.settling_plugins.append(cast("SettlingPlugin", plugin))
        if declares(plugin, FOLLOW_PODS):
            follower = cast("PodFollower", plugin)
            if bit:
                self.accounting.concerned.append((bit, follower))
            else:
                self.accounting.followers.append(follower)
        if declares(plugin, READ_POD):
            self.pod_classes.readers.append(cast("PodReader", plugin))
        if declares(plugin, READ_SHAPE):
            self.pod_classes.shape_readers.add(plugin.name)

    def settle(self) -> None:
        """Call `settle` of the plugins that compute the effects of many changes at once (SettlingPlugin)."""
        for plugin in self.settling_plugins:
            plugin.settle()

    def put_node(self, row: int, node: Node, shape: NodeShape) -> None:
        """The columns have its shape already. `shape` has the allocatable after the manager's decisions."""
        for follower in self.node_followers:
            follower.put_node(row, node)
        for book in self._node_books:
            book.put_node(row, node, shape)

    def drop_node(self, row: int, name: str) -> None:
        for follower in self.node_followers:
            follower.drop_node(row)
        for book in self._node_books:
            book.drop_node(row, name)

    def put_pod(self, uid: str, pod: Pod, requests: Mapping[str, int], *, assigned: bool) -> None:
        """See `Book.put_pod`."""
        for book in self._pod_books:
            book.put_pod(uid, pod, requests, assigned=assigned)

    def drop_pod(self, uid: str) -> None:
        for book in self._pod_books:
            book.drop_pod(uid)

    def put_namespace(self, namespace: Namespace) -> None:
        self.population.put_namespace(namespace.metadata.name, namespace.metadata.labels)

    def drop_namespace(self, name: str) -> None:
        self.population.drop_namespace(name)

    def put_workload(self, workload: Workload) -> None:
        """Record the selector of a controller, such as a ReplicaSet, that owns pods."""
        meta = workload.metadata
        self.owners.put_controller(workload.kind, meta.namespace, meta.name, workload.selector)

    def drop_workload(self, workload: Workload) -> None:
        self.owners.put_controller(workload.kind, workload.metadata.namespace, workload.metadata.name, None)

    def follow_config(self, namespace: str, name: str, read: ConfigReader) -> None:
        """Register `read`, which gets the data of a ConfigMap at each change. Others are not kept."""
        self._configs.setdefault((namespace, name), []).append(read)

    def put_config(self, namespace: str, name: str, data: Mapping[str, str]) -> bool:
        """Return whether the ConfigMap has readers. `data` is empty if it was deleted."""
        readers = self._configs.get((namespace, name), ())
        for read in readers:
            self.warnings += [f"ConfigMap {namespace}/{name}: {problem}" for problem in read(data)]
        return bool(readers)

    def put_object(self, plural: str, document: object) -> bool:
        """Add or replace an API object (decoded JSON). Return False if it is invalid: it is ignored, with a warning.
        No-op for kinds that placement does not read. `plural` is the plural name of the kind.
        """
        try:
            self._put_object(plural, document)
        except (codec.DecodeError, InvalidInput) as error:
            self.warnings.append(f"an object of {plural} cannot be read and is passed over: {error}")
            return False
        return True

    def _put_object(self, plural: str, document: object) -> None:
        book = self._readers.get(plural)
        if book is not None:
            self.warnings += book.put_object(plural, document)
        elif plural == "poddisruptionbudgets":
            self.budgets.put(object_from_json(document, PodDisruptionBudget))
        elif plural in _SELECTING_BY_LABELS:
            service = object_from_json(document, Service)
            meta, labels = service.metadata, service.spec.selector
            if kind := _SELECTING_BY_LABELS[plural]:
                self.owners.put_controller(kind, meta.namespace, meta.name, LabelSelector(match_labels=labels))
            else:
                self.owners.put_service(meta.namespace, meta.name, labels)
        elif plural in CONTROLLER_PLURALS:
            owner = object_from_json(document, SelectingController)
            kind, meta = CONTROLLER_PLURALS[plural], owner.metadata
            self.owners.put_controller(kind, meta.namespace, meta.name, owner.spec.selector)

    def drop_object(self, plural: str, namespace: str, name: str) -> None:
        """Remove a deleted API object. No-op for kinds that placement does not read."""
        book = self._readers.get(plural)
        if book is not None:
            self.warnings += book.drop_object(plural, namespace, name)
        elif plural == "poddisruptionbudgets":
            self.budgets.drop(namespace, name)
        elif plural == "services":
            self.owners.drop_service(namespace, name)
        elif kind := CONTROLLER_PLURALS.get(plural) or _SELECTING_BY_LABELS.get(plural):
            self.owners.put_controller(kind, namespace, name, None)

    def take_activated(self) -> list[str]:
        """Return the uids of pods to attempt because of facts folded since the last call, and forget them."""
        uids = list(self.activate)
        self.activate.clear()
        return uids

    def activated(self, uids: Iterable[str]) -> None:
        """Record the uids of pods that shall be attempted because of a fact, until `take_activated`."""
        self.activate.update(dict.fromkeys(uids))
