"""What a scheduler knows: the log folded into facts, ledgers and queue, and our own decisions until the log answers.

    folding/     one event of the log, or one report, folded into it
    settling     what follows for a pod from all that is known of it: queue it, release it, forget it
    deciding     decisions on top, assumed at once
    appending    what of them is appended, and what the log answers
    retracting   assumptions that are taken back
    waking       who may have better luck now
    telling      facts that are no placements, and what the log answers
    nominees     who is nominated where

One task owns an instance. Every aggregate remembers its last sequence, so an event that comes again (our own appends
take effect when they are acknowledged, the follower brings them later) changes nothing: an expectation that was
accepted proves that no other event lay between.

source    event-bus spec, 3.2, 4.2; scheduler-core spec, 1 (step 11), 2
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from koordcore.events.envelope import AggregateRef
from koordcore.events.objects.custom import CustomObjectObserved
from koordcore.events.objects.mirror import NamespaceObserved, WorkloadObserved
from koordcore.protocol.objects import Node

from koord_scheduler.domain.commit.outbox import Outbox
from koord_scheduler.domain.commit.own_appends import OwnAppends
from koord_scheduler.domain.commit.status_writes import StatusWrites
from koord_scheduler.domain.evaluate.engine import Engine
from koord_scheduler.domain.framework.plugin_faults import PluginFault
from koord_scheduler.domain.gang.round import JobAttempt
from koord_scheduler.domain.nodes.ledger import Ledgers
from koord_scheduler.domain.nodes.policies import NodePolicy
from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.pods.record import Phase, PodRecord
from koord_scheduler.domain.queue.nominations import Nominations
from koord_scheduler.domain.queue.permit import WaitingPods
from koord_scheduler.domain.queue.scheduling_queue import SchedulingQueue
from koord_scheduler.domain.quota.tree.changes import QuotaChanges
from koord_scheduler.domain.runtime.frameworks import Framework, Frameworks
from koord_scheduler.domain.status.published_status import PublishedStatus
from koord_scheduler.domain.status.schedule_explanations import ScheduleExplanations

_MOST_UNTOLD: Final = 1000
"""Of what is kept for metrics and the log until they take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the scheduler is told beside its configuration. Seconds are of the run's clock.

    controllers    plugins whose controllers run (`domain.controllers`)
    tells_topology the network's domains are stated also when no profile places gangs by it
    """

    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0
    controllers: frozenset[str] = frozenset({"Coscheduling", "ElasticQuota"})
    tells_topology: bool = False


class SchedulerState:
    """Everything a scheduler knows.

    position     last folded sequence of the facts stream
    observed     last folded sequence of the observations stream
    decisions    decisions taken in this process
    retracted    how many of them were taken back
    acknowledged last position of an append of this process that is known
    read_ahead   last position that was read ahead of the fold
    to_release   uid -> (why its pod has to give its place back, id of the event that says so)
    forgotten    uid -> last sequence of its aggregate, for pods that are gone before the fold has come so far
    node_gone_by name -> id of the event by which the node went
    evictions    uid -> reason, of evictions that are asked for and not over
    plugin_faults the last attempts that plugins broke off, for the log, which empties it
    job_attempts the last attempts about whole jobs, for metrics, which empty it
    helped       rows of nodes on which something may help a waiting pod (`waking` empties it)
    help_trigger id of the last event that did so
    quota_moves_seen, population_moves_seen   how far `waking` has followed the cluster's
    """

    def __init__(self, frameworks: Frameworks, settings: Settings | None = None) -> None:
        self.position = 0
        self.observed = 0
        self.decisions = 0
        self.retracted = 0
        self.acknowledged = 0
        self.read_ahead = 0
        self.settings = settings or Settings()
        self.frameworks = frameworks
        self.cluster = frameworks.cluster
        self.nodes = self.cluster.nodes
        self.queue = SchedulingQueue(
            self.nodes,
            initial_backoff=self.settings.initial_backoff_seconds,
            max_backoff=self.settings.max_backoff_seconds,
            gate=self._gate,
            sees_otherwise=self._sees_otherwise,
        )
        self.outbox = Outbox()
        self.own = OwnAppends()
        self.status_writes = StatusWrites()
        self.waiting = WaitingPods()
        self.nominations = Nominations()
        self.ledgers = Ledgers(self.cluster.accounting)
        self.pods: dict[str, PodRecord] = {}
        self.to_release: dict[str, tuple[str, str]] = {}
        self.forgotten: dict[str, int] = {}
        self.node_objects: dict[str, Node] = {}
        self.policies: dict[str, NodePolicy] = {}
        self.node_gone_by: dict[str, str] = {}
        self.objects: dict[str, CustomObjectObserved] = {}
        self.namespaces: dict[str, NamespaceObserved] = {}
        self.workloads: dict[str, WorkloadObserved] = {}
        self.evictions: dict[str, str] = {}
        self.said = PublishedStatus()
        self.explanations = ScheduleExplanations()
        self.plugin_faults: deque[PluginFault] = deque(maxlen=_MOST_UNTOLD)
        self.job_attempts: deque[JobAttempt] = deque(maxlen=_MOST_UNTOLD)
        self.quota_changes = QuotaChanges(self.cluster.quotas)
        self.helped: dict[int, None] = {}
        self.help_trigger = ""
        self.quota_moves_seen = 0
        self.population_moves_seen = -1

    def last_seq(self, ref: AggregateRef) -> int | None:
        """Expectation of the next status write about an aggregate; None: something is in flight for it."""
        if ref.kind != "pod":
            return self.status_writes.seqs.get(ref, 0)
        pod = self.pods.get(ref.id)
        if pod is None:
            return self.forgotten.get(ref.id, 0)
        return None if pod.work_node or pod.phase is Phase.RELEASING else pod.seq

    def next_due(self) -> float | None:
        """When time alone will change something; None: only an event can."""
        return min((due for due in (self.queue.next_due(), self.waiting.next_due()) if due is not None), default=None)

    def has_room(self, subject: Subject) -> bool:
        """Whether any node is feasible for pods of this kind at present."""
        return self.frameworks.engine_of(subject).has_room(subject)

    def engine_of(self, pod: PodRecord) -> Engine:
        """The engine of the pod's profile."""
        return self.framework_of(pod).engine

    def framework_of(self, pod: PodRecord) -> Framework:
        """The plugins of the pod's profile."""
        framework = pod.framework
        assert isinstance(framework, Framework), f"pod {pod.uid} is not ours, or has no spec"
        return framework

    def profile_of(self, uid: str) -> str:
        """Scheduler name of a pod; "" for one that is gone, or not readable."""
        pod = self.pods.get(uid)
        return pod.subject.profile if pod is not None and pod.subject is not None else ""

    def _sees_otherwise(self, subject: Subject) -> bool:
        return self.frameworks.engine_of(subject).profile.sees_otherwise

    def _gate(self, uid: str) -> str | None:
        pod = self.pods[uid]
        return self.framework_of(pod).pre_enqueue(pod)
