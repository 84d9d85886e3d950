"""The state that the parts of a scheduler share: folded facts, objects as they were last, the queue and statuses."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.objects import ConfigAccepted, CustomObjectObserved, NamespaceObserved, WorkloadObserved
from koordcore.protocol.objects import Node
from koordcore.protocol.reservations import is_reserve_pod
from koordcore.state.shared_parts import SharedParts

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.forgetting import DeletedPods, Forgetting
from koord_scheduler.domain.cluster.node_facts import NodePolicy
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Demand
from koord_scheduler.domain.engine.engine import Engine
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.extension_points import RESIZE_POD
from koord_scheduler.domain.framework.plugin import PluginFault
from koord_scheduler.domain.loop.commit.own_appends import LogPosition
from koord_scheduler.domain.loop.commit.status_writes import StatusWrites
from koord_scheduler.domain.loop.queue.nominator import Nominator
from koord_scheduler.domain.loop.queue.scheduling_queue import SchedulingQueue
from koord_scheduler.domain.loop.state.queueing_hints import QueueingHints
from koord_scheduler.domain.loop.status.status_writer import StatusWriter
from koord_scheduler.domain.plugins.books import books_of
from koord_scheduler.domain.plugins.gang.round import JobAttempt


@dataclass(slots=True)
class Mirror:
    """The last state of all objects that placement reads, apart from pods."""

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])  # Name -> node
    # Name of a node -> what the manager has decided about it.
    policies: dict[str, NodePolicy] = field(default_factory=dict[str, NodePolicy])
    # Name of a deleted node -> id of the event that deleted it.
    node_gone_by: dict[str, str] = field(default_factory=dict[str, str])
    # Aggregate id -> custom object.
    objects: dict[str, CustomObjectObserved] = field(default_factory=dict[str, CustomObjectObserved])
    namespaces: dict[str, NamespaceObserved] = field(default_factory=dict[str, NamespaceObserved])  # Name -> namespace
    # Uid -> workload controller.
    workloads: dict[str, WorkloadObserved] = field(default_factory=dict[str, WorkloadObserved])
    # Aggregate id -> ConfigMap, for those that a plugin reads.
    configs: dict[str, ConfigAccepted] = field(default_factory=dict[str, ConfigAccepted])
    _forgetting: Forgetting = field(default_factory=Forgetting)

    def prune(self, has_pods: Callable[[str], bool]) -> bool:
        """Forget the deleted nodes without pods. No-op until `Forgetting` requires a search. `has_pods`: whether the
        log has placed a pod on the node with this name. Returns whether the nodes were searched.
        """
        gone_by = self.node_gone_by
        if not self._forgetting.is_due(len(gone_by)):
            return False
        for name in [name for name in gone_by if not has_pods(name)]:
            del gone_by[name]
            self.policies.pop(name, None)  # the log may have stored a decision about the node after its deletion
        self._forgetting.searched(len(gone_by))
        return True


_MOST_UNTOLD: Final = 1000
"""Maximum number of records that are kept until metrics and the log read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that are not part of KubeSchedulerConfiguration. Seconds are of the service's `Clock`."""

    initial_backoff_seconds: float = 1.0  # First back-off of a pod whose attempt failed
    max_backoff_seconds: float = 10.0  # Longest back-off
    controllers: frozenset[str] | None = None  # Names of the plugins whose controllers run; None: all
    tells_topology: bool = False  # Whether the network's domains are published even if no profile places gangs by them


class AttemptReports:
    """Reports of the last attempts for metrics and the log of the process. The readers empty the lists."""

    def __init__(self) -> None:
        # Exceptions that plugins raised in attempts.
        self.plugin_faults: deque[PluginFault] = deque(maxlen=_MOST_UNTOLD)
        self.job_attempts: deque[JobAttempt] = deque(maxlen=_MOST_UNTOLD)  # Attempts to place or preempt for whole jobs


class KnownState:
    """The state of a scheduler apart from its own decisions: folded facts, queue, nominations and statuses."""

    def __init__(self, frameworks: Frameworks, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()  # Settings beside the configuration
        # Profiles, and with them the cluster's facts (`cluster`) and the node columns (`nodes`).
        self.frameworks = frameworks
        self.cluster = frameworks.cluster
        self.books = books_of(self.cluster)  # What features know of the cluster
        self.nodes = self.cluster.nodes
        self.log = LogPosition()  # Positions of the log that the state contains
        self.mirror = Mirror()  # Objects other than pods, as the API describes them
        self.pods: dict[str, PodRecord] = {}  # Uid -> record of the pod
        self.shared = SharedParts()  # What pods and nodes share, besides what equal pods share in `PodClasses`
        self.deleted = DeletedPods()  # Positions of the last events of deleted pods
        self.reports = AttemptReports()  # What attempts leave for metrics and the log of the process
        # Pods to be attempted, and pods that wait.
        self.queue = SchedulingQueue(
            self.nodes,
            initial_backoff=self.settings.initial_backoff_seconds,
            max_backoff=self.settings.max_backoff_seconds,
            gate=self._gate,
            sees_otherwise=self._sees_otherwise,
            is_nominated=lambda uid: bool(self.nominator.node_of(uid)),
        )
        writes = StatusWrites()
        self.nominator = Nominator(self.pods, self.deleted, writes)  # Nominated pods, and evictions under way
        # Changes that may make waiting pods schedulable.
        self.hints = QueueingHints(frameworks, self.books, self.queue, self.nominator, self.pods)
        # Status writes, and what has been published.
        self.status = StatusWriter(
            writes,
            position=lambda: self.log.position,
            pods=self.pods,
            deleted=self.deleted,
            queue=self.queue,
            nominator=self.nominator,
            publishing=self.cluster.publishing,
        )

    def has_room(self, subject: Subject) -> bool:
        """Return whether any node is feasible for pods of this subject now."""
        return self.frameworks.engine_of(subject).has_room(subject)

    def engine_of(self, pod: PodRecord) -> Engine:
        """Return the engine that filters and scores nodes for the pod's profile."""
        return self.frameworks.framework_of(pod).engine

    def follows_object(self, pod: PodRecord) -> bool:
        """Return whether a pod counts on its node with what its object asks for, also if the log gave it other amounts:
        pods are resized where they run. A Reservation keeps what the log gave it, and so does a pod whose resources a
        plugin changes for its node.
        """
        if pod.pod is None or pod.subject is None or is_reserve_pod(pod.pod):
            return False
        return pod.framework is None or not self.frameworks.framework_of(pod).profile.plugins.at(RESIZE_POD)

    def asked(self, pod: PodRecord | None) -> Demand | None:
        """Return the amounts with which a pod counts instead of those of the log; None if it counts with these."""
        if pod is None or pod.subject is None or not self.follows_object(pod):
            return None
        return pod.subject.pod_class.demand

    def profile_of(self, uid: str) -> str:
        """Return the scheduler name of a pod; "" if it is deleted or its spec is invalid."""
        pod = self.pods.get(uid)
        return pod.subject.profile if pod is not None and pod.subject is not None else ""

    def _sees_otherwise(self, subject: Subject) -> bool:
        profile, pod_class = self.frameworks.profile_of(subject).profile, subject.pod_class
        may_use = self.books.reservations.restored(pod_class) is not None  # what they hold is no free amount
        return may_use or profile.concerning(pod_class.concerned).sees_otherwise

    def _gate(self, uid: str) -> str | None:
        pod = self.pods[uid]
        return self.frameworks.framework_of(pod).pre_enqueue(pod)
