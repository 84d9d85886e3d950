"""The log folded into facts, ledgers and queue; `deciding` adds our own decisions on top until the log answers.

    apply(stored)    one event of the log, in order
    ahead(stored)    an event of one aggregate, read before the follower brings it (after a conflict)
    observe(stored)  one observation: a node's report
    settle(pod)      what follows for a pod from all that is known of it: queue it, release it, forget it

One task owns an instance. Every aggregate remembers its last sequence, so an event that comes again (our own appends
take effect when they are acknowledged, the follower brings them later) changes nothing: an expectation that was
accepted proves that no other event lay between.

source    event-bus spec, 3.2, 4.2; scheduler-core spec, 1 (step 11), 2
"""

from collections import deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec
import numpy as np
from koordcore.events import CATALOGUE
from koordcore.events.adjustment import NodeHealthAssessed
from koordcore.events.cluster_topology import ClusterTopologyComputed
from koordcore.events.custom import CustomObjectDeleted, CustomObjectObserved, plural_of
from koordcore.events.envelope import AggregateRef, Event, StoredEvent, name_from_token, namespaced_token
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.gateway import PodBindFailed, PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.mirror import (
    NamespaceDeleted,
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
    WorkloadDeleted,
    WorkloadObserved,
)
from koordcore.events.node import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.nodepolicy import NodeDevicesComputed, NodeOvercommitComputed
from koordcore.events.observation import NodeUsageReported
from koordcore.events.pod import PodNominated, PodNominationCleared, PodPlaced, PodReleased
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.pod_resources import DEFAULT_CPU_MILLI, DEFAULT_MEMORY_BYTES
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain import explained
from koord_scheduler.domain.cluster import DEFAULT_TOPOLOGY, PLURALS
from koord_scheduler.domain.columns import Demand, Rows, node_shape, row_list
from koord_scheduler.domain.engine import Engine
from koord_scheduler.domain.explained import Explanations
from koord_scheduler.domain.frameworks import Framework, Frameworks
from koord_scheduler.domain.gang.round import JobAttempt
from koord_scheduler.domain.ledger import Ledgers, Source
from koord_scheduler.domain.node_policies import NO_POLICY, NodePolicy
from koord_scheduler.domain.nominations import Nominations
from koord_scheduler.domain.notices import Notice, Notices, TakenNotice
from koord_scheduler.domain.occupancy import Occupant
from koord_scheduler.domain.own_appends import OwnAppends
from koord_scheduler.domain.permit import WaitingPods
from koord_scheduler.domain.pods import Phase, PodRecord
from koord_scheduler.domain.queue import Block, SchedulingQueue
from koord_scheduler.domain.quota.changes import QuotaChanges
from koord_scheduler.domain.said import Said
from koord_scheduler.domain.templates import Subject
from koord_scheduler.domain.work import Outbox, Place, Work

KINDS: Final = (
    "podspec",
    "nodespec",
    "pod",
    "node",
    "nodepolicy",
    "namespace",
    "workloadspec",
    "customspec",
    "eviction",
    "gang",
    "quota",
    "scheduleexplanation",
    "clustertopology",
)
"""Aggregates that a scheduler folds."""

_MOST_JOB_ATTEMPTS: Final = 1000
_FINISHED: Final = ("Succeeded", "Failed")
_GANGS: Final = "Coscheduling"


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
    job_attempts the last attempts about whole jobs, for metrics, which empty it
    read_ahead   last position that was read ahead of the fold
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
        )
        self.outbox = Outbox()
        self.own = OwnAppends()
        self.notices = Notices()
        self.waiting = WaitingPods()
        self.nominations = Nominations()
        self.ledgers = Ledgers(self.cluster.occupancy)
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
        self.said = Said()
        self.explanations = Explanations()
        self.job_attempts: deque[JobAttempt] = deque(maxlen=_MOST_JOB_ATTEMPTS)
        self.quota_changes = QuotaChanges(self.cluster.quotas)
        self._helped: dict[int, None] = {}
        self._help_trigger = ""
        self._quota_moves = 0
        self._population_moves = -1

    # --- folding -----------------------------------------------------------------------------------------------------

    def apply(self, stored: StoredEvent) -> None:
        """Fold the next event of the log; one at or before `position` changes nothing.

        raises    UnreadableEvent: nothing has changed, the fold has to halt before this event
        """
        if stored.seq > self.position:
            event = CATALOGUE.read(stored) if stored.ref.kind in self.frameworks.folded_kinds else None
            self._fold(stored)
            self.position = stored.seq
            if event is not None and self.frameworks.fold(event, stored):
                self._helped.update(dict.fromkeys(row_list(np.flatnonzero(self.nodes.alive))))
                self._help_trigger = stored.event_id

    def skip(self, seq: int) -> None:
        """Pass over an event, because an operator said so or because its kind is of no interest."""
        self.position = max(self.position, seq)

    def ahead(self, stored: StoredEvent) -> None:
        """Fold an event of one aggregate, all earlier ones of which are folded; raises UnreadableEvent."""
        self.read_ahead = max(self.read_ahead, stored.seq)
        self._fold(stored)

    def _fold(self, stored: StoredEvent) -> None:
        if stored.ref.kind not in KINDS or self._is_known(stored) or self.own.is_early(stored):
            return
        overtaken = self.own.overtaken(stored.ref)
        if overtaken is not None:
            self._fold(overtaken)
        match CATALOGUE.read(stored):
            case PodSpecAdded() | PodSpecChanged() as event:
                self._pod_submitted(stored, event.object)
            case PodSpecDeleted():
                self._pod_gone(stored)
            case PodBindFailed() as event:
                self._bind_failed(stored, event)
            case NodeSpecAdded() | NodeSpecChanged() as event:
                self.put_node(event.object, stored.event_id)
            case NodeSpecDeleted(name=name):
                self._node_gone(name, stored.event_id)
            case PodPlaced() as event:
                self._pod_placed(stored, event)
            case PodReleased():
                self._pod_released(stored)
            case PodNominated() as event:
                self._pod_nominated(stored, event)
            case PodNominationCleared():
                self._nomination_cleared(stored)
            case NodeResourcesTaken() as event:
                self._resources_taken(stored, event)
            case NodeResourcesReturned() as event:
                self._resources_returned(stored, event)
            case NodeOvercommitComputed() | NodeDevicesComputed() | NodeHealthAssessed() as event:
                name = name_from_token(stored.ref.id)
                self.policies[name] = self.policies.get(name, NO_POLICY).evolve(event)
                if name in self.node_objects:
                    self.put_node(self.node_objects[name], stored.event_id)
            case NamespaceObserved() as event:
                self.put_namespace(event)
            case NamespaceDeleted(name=name):
                self.namespaces.pop(name, None)
                self.cluster.drop_namespace(name)
            case WorkloadObserved() as event:
                self.put_workload(stored.ref.id, event)
            case WorkloadDeleted():
                gone = self.workloads.pop(stored.ref.id, None)
                if gone is not None:
                    self.cluster.drop_workload(gone.object)
            case CustomObjectObserved() as event if plural_of(stored.ref.id) in PLURALS:
                self.put_object(stored.ref.id, event)
                self._follow_cluster(stored.event_id)
            case CustomObjectDeleted() as event if stored.ref.id in self.objects:
                del self.objects[stored.ref.id]
                self.cluster.drop_object(plural_of(stored.ref.id), event.namespace, event.name)
                self._unsay(plural_of(stored.ref.id), event)
            case PodEvictionRequested() | PodEvicted() | PodEvictionFailed() if stored.ref.id not in self.pods:
                pass  # it is gone, and what was known of its eviction with it
            case PodEvictionRequested() as event:
                self.notices.seqs[stored.ref] = stored.seq
                self.evictions[stored.ref.id] = event.reason
            case PodEvicted() | PodEvictionFailed():
                self.notices.seqs[stored.ref] = stored.seq
                self.evictions.pop(stored.ref.id, None)
            case GangPhaseChanged() as event:
                self.notices.seqs[stored.ref] = stored.seq
                self.said.gang_is(event, self.cluster.gangs.roster)
            case QuotaStatusComputed() as event:
                self.notices.seqs[stored.ref] = stored.seq
                self.said.quotas[event.name] = event
            case ScheduleExplanationComputed() as event:
                self.notices.seqs[stored.ref] = stored.seq
                if stored.ref.id in self.explanations.questions:
                    self.explanations.said[stored.ref.id] = event
            case ClusterTopologyComputed() as event:
                self.notices.seqs[stored.ref] = stored.seq
                self.said.topology = event
            case _:
                if stored.ref.kind == "gang":
                    self.notices.seqs[stored.ref] = stored.seq

    def _unsay(self, plural: str, gone: CustomObjectDeleted) -> None:
        """What was said of an object that is gone is not known of the next one of its name."""
        if plural == "podgroups":
            self.said.gangs.pop(f"{gone.namespace}/{gone.name}", None)
        elif plural == "elasticquotas":
            self.said.quotas.pop(gone.name, None)
            self.quota_changes.again(gone.name)
        elif plural == explained.PLURAL:
            self.explanations.drop(namespaced_token(gone.namespace, gone.name))
        elif plural == "clusternetworktopologies" and gone.name == DEFAULT_TOPOLOGY:
            self.said.topology = None

    def fold_early(self) -> None:
        """Fold what came before its answer: afterwards the state holds every event up to `position`."""
        for stored in self.own.take_early():
            self.ahead(stored)

    def observe(self, stored: StoredEvent) -> None:
        """Fold one observation; raises UnreadableEvent."""
        if stored.seq <= self.observed:
            return
        self.observed = stored.seq
        event = CATALOGUE.read(stored)
        if isinstance(event, NodeUsageReported):
            name = name_from_token(stored.ref.id)
            self.frameworks.reported(name, event)
            if self.frameworks.load_may_refuse():
                self.room_appeared(name, stored.event_id)

    def _is_known(self, stored: StoredEvent) -> bool:
        """Whether it is one of our own appends (or an event read ahead), so that it need not even be decoded."""
        match stored.ref.kind:
            case "pod":
                pod = self.pods.get(stored.ref.id)
                return pod is not None and stored.seq <= pod.seq
            case "node":
                return stored.seq <= self.ledgers.seq(name_from_token(stored.ref.id))
            case "eviction" | "gang" | "quota" | "scheduleexplanation" | "clustertopology":
                return stored.seq <= self.notices.seqs.get(stored.ref, 0)
            case _:
                return False

    def last_seq(self, ref: AggregateRef) -> int | None:
        """Expectation of the next notice about an aggregate; None: something is in flight for it."""
        if ref.kind != "pod":
            return self.notices.seqs.get(ref, 0)
        pod = self.pods.get(ref.id)
        if pod is None:
            return self.forgotten.get(ref.id, 0)
        return None if pod.work_node or pod.phase is Phase.RELEASING else pod.seq

    def next_notice(self) -> TakenNotice | None:
        """The next notice that may be appended; one that has become wrong meanwhile is passed over."""
        while (taken := self.notices.take(self.last_seq)) is not None:
            uid = taken.notice.uid
            if not uid or (uid in self.pods and not self.pods[uid].node and self.nominations.node_of(uid)):
                return taken
            self.notice_refused(taken)
        return None

    def notice_stored(self, taken: TakenNotice, seqs: Sequence[int]) -> None:
        """The log has the notice; seqs: in the order of its drafts."""
        self.notices.landed(taken)
        for draft, seq in zip(taken.drafts, seqs, strict=True):
            if draft.ref.kind == "pod":
                self._pod_said(draft.ref.id, draft.event, seq, taken.notice.trigger)
            else:
                self.notices.seqs[draft.ref] = max(seq, self.notices.seqs.get(draft.ref, 0))
            if isinstance(draft.event, GangPhaseChanged):
                self.said.gangs[f"{draft.event.namespace}/{draft.event.name}"] = draft.event

    def _pod_said(self, uid: str, event: Event, seq: int, trigger: str) -> None:
        """A notice about a pod is in the log; a nomination of one that is deleted by now ends at once."""
        pod = self.pods.get(uid)
        if pod is not None:
            pod.seq = max(pod.seq, seq)
        elif isinstance(event, PodNominated):
            self.forgotten[uid] = max(seq, self.forgotten.get(uid, 0))
            self._put_cleared(uid, event.namespace, event.name, event.node, trigger)

    def notice_refused(self, taken: TakenNotice) -> None:
        """The log does not have it: what was assumed with it is undone, but for pods of which news was read."""
        self.notices.landed(taken)
        known = {draft.ref: self.last_seq(draft.ref) or 0 for draft in taken.drafts if draft.ref.kind == "pod"}
        moved = {draft.ref for draft in taken.drafts if known.get(draft.ref, 0) > draft.expected_last}
        self.unsay(taken.notice, moved)

    def unsay(self, notice: Notice, moved: Container[AggregateRef] = ()) -> None:
        """A notice that the log does not have: what was assumed with it is undone.

        moved    pods whose nomination is by now what somebody else has said
        """
        for ref, event in notice.facts:
            match event:
                case PodNominated() if ref in moved:
                    pass
                case PodNominated():
                    self.nominations.drop(ref.id)
                case PodEvictionRequested() if not self.notices.seqs.get(ref):
                    self.evictions.pop(ref.id, None)
                case GangPhaseChanged():
                    self.said.gang_unsaid(event, self.cluster.gangs.roster)
                case QuotaStatusComputed(name=name):
                    if self.said.quotas.get(name) is event:
                        del self.said.quotas[name]
                    self.quota_changes.again(name)
                case ScheduleExplanationComputed():
                    self.explanations.unsaid(ref.id, event)
                case ClusterTopologyComputed():
                    if self.said.topology is event:
                        self.said.topology = None
                case _:
                    pass
        uid = notice.uid
        if uid and self.queue.get(uid) is not None:
            self.queue.wake_pod(uid, notice.trigger)

    # --- who may have better luck now --------------------------------------------------------------------------------

    def wake(self) -> int:
        """Wake the waiting pods that the events folded since the last call may help; returns how many."""
        self.cluster.images.settle()
        self._follow_cluster(self._help_trigger)
        woken = self._wake_blocked()
        woken += self._wake_coupled()
        if not self._helped:
            return woken
        rows = np.array(sorted(self._helped), np.intp)
        self._helped.clear()
        names = self.nodes.names
        nominated = [uid for row in row_list(rows) for uid in self.nominations.on(names[row])]
        for uid in nominated:
            if self.queue.get(uid) is not None:
                self.queue.wake_pod(uid, self._help_trigger)
        return woken + self.queue.wake(rows, self._any_fits, self._help_trigger)

    def next_due(self) -> float | None:
        """When time alone will change something; None: only an event can."""
        return min((due for due in (self.queue.next_due(), self.waiting.next_due()) if due is not None), default=None)

    def room_appeared(self, node: str, trigger: str) -> None:
        """Something on the node may help a waiting pod."""
        row = self.nodes.row(node)
        if row is not None:
            self._helped[row] = None
            self._help_trigger = trigger

    def has_room(self, subject: Subject) -> bool:
        """Whether any node is feasible for pods of this kind at present."""
        return self.frameworks.engine_of(subject).has_room(subject)

    def engine_of(self, pod: PodRecord) -> Engine:
        """The engine of the pod's profile."""
        return self.framework_of(pod).engine

    def framework_of(self, pod: PodRecord) -> Framework:
        """The plugins of the pod's profile."""
        assert pod.framework is not None, f"pod {pod.uid} is not ours, or has no spec"
        return pod.framework

    def profile_of(self, uid: str) -> str:
        """Scheduler name of a pod; "" for one that is gone, or not readable."""
        pod = self.pods.get(uid)
        return pod.subject.profile if pod is not None and pod.subject is not None else ""

    def _any_fits(self, subject: Subject, rows: Rows) -> bool:
        return len(self.frameworks.engine_of(subject).passing(subject, rows)) > 0

    def _wake_blocked(self) -> int:
        """The first pod of each quota that would be admitted now."""
        if self._quota_moves == self.cluster.quota_moves:
            return 0
        self._quota_moves = self.cluster.quota_moves
        woken = 0
        for _, uid in self.queue.blocked("ElasticQuota"):
            known = self.cluster.quotas.pods.get(uid)
            if known is None or self.cluster.quotas.admit(known.facts).admitted:
                self.queue.wake_pod(uid, self._help_trigger or self.pods[uid].trigger)
                woken += 1
        return woken

    def _wake_coupled(self) -> int:
        """Pods whose constraints look at pods elsewhere: any pod that came or went may have helped them."""
        moves = self.cluster.population.moves + self.cluster.volumes.changes
        if self._population_moves == moves:
            return 0
        self._population_moves = moves
        woken = 0
        for subject in self.queue.waiting_subjects():
            engine = self.frameworks.engine_of(subject)
            if engine.judges(subject).filters and engine.has_room(subject):
                self.queue.wake_first(subject, self._help_trigger)
                woken += 1
        return woken

    def _follow_cluster(self, trigger: str) -> None:
        self.queue.activate(self.cluster.take_activated(), trigger)

    def _gate(self, uid: str) -> str | None:
        pod = self.pods[uid]
        return self.framework_of(pod).pre_enqueue(pod)

    # --- what follows for a pod --------------------------------------------------------------------------------------

    def settle(self, pod: PodRecord, trigger: str) -> None:
        """Draw the consequences for a pod about which no work of ours is under way.

        trigger    id of the event that changed something
        """
        if pod.node:
            self.queue.remove(pod.uid)
            pod.phase = Phase.PLACED
            reason = self._release_reason(pod)
            if reason is None:
                self.to_release.pop(pod.uid, None)
            else:
                self.to_release[pod.uid] = (reason, self.node_gone_by.get(pod.node, pod.spec_event))
            return
        self.to_release.pop(pod.uid, None)
        if pod.pod is None:
            self._clear_nomination(pod, trigger)
            self._forget(pod)
        elif pod.bound_node:
            self.queue.remove(pod.uid)
            pod.phase = Phase.BOUND
        elif pod.subject is None or pod.framework is None or not self._is_alive(pod.pod):
            self.queue.remove(pod.uid)
            pod.phase = Phase.OTHERS
            self.cluster.activated(self.cluster.gangs.left_queue(pod.uid).activate)
        else:
            pod.phase = Phase.QUEUED
            pod.trigger = trigger
            self._enqueue(pod, pod.pod, trigger)

    def _enqueue(self, pod: PodRecord, spec: Pod, trigger: str) -> None:
        assert pod.subject is not None
        priority = spec.spec.priority or 0
        queued = self.queue.get(pod.uid)
        if queued is None or not queued.is_same(pod.subject, priority):
            self.queue.add(pod.uid, pod.subject, priority, trigger)
        else:
            self.queue.recheck(pod.uid)

    def _release_reason(self, pod: PodRecord) -> str | None:
        if pod.pod is None:
            return "deleted"
        if pod.pod.status.phase in _FINISHED:
            return "finished"
        if self.nodes.row(pod.node) is None:
            return "node-gone"
        return "bind-failed" if pod.bind_failed == pod.seq else None

    def _is_alive(self, pod: Pod) -> bool:
        return pod.metadata.deletion_timestamp is None and pod.status.phase not in _FINISHED

    def _pod_submitted(self, stored: StoredEvent, spec: Pod) -> None:
        uid = stored.ref.id
        pod = self.pods.get(uid)
        if pod is None:
            pod = self.pods[uid] = PodRecord(uid=uid)
        if pod.pod is None:
            pod.submitted_at = stored.occurred_at
            pod.traceparent, pod.tracestate = stored.traceparent, stored.headers.get("tracestate", "")
        pod.spec_event = stored.event_id
        profile = pod.subject.profile if pod.subject is not None else ""
        self.describe(pod, spec, _unix(stored.occurred_at))
        self._count_bound(pod, spec.spec.node_name if spec.status.phase not in _FINISHED else "", stored.event_id)
        if pod.framework is None and self.frameworks.gates.cross_scheduler_nomination:
            self._follow_other_scheduler(pod, spec)
        if not pod.work_node:
            self.settle(pod, stored.event_id)
        elif self.frameworks.gates.dynamic_scheduler_check and not self._may_be_bound(pod, profile):
            self.give_up(pod, stored.event_id)
            self._facts_changed(pod, stored.event_id)
        self._follow_cluster(stored.event_id)

    def _may_be_bound(self, pod: PodRecord, profile: str) -> bool:
        """Whether a pod with a node that the log has not heard of is still what was decided about.

        source    scheduler-core spec, 3 (dynamic scheduler check)
        """
        assert pod.pod is not None, f"pod {pod.uid} has no spec"
        return pod.subject is not None and pod.subject.profile == profile and self._is_alive(pod.pod)

    def describe(self, pod: PodRecord, spec: Pod, now: float) -> None:
        """The API says that the pod is this; it becomes known to the plugins."""
        try:
            pod.subject, spec, pod.sort = self.cluster.templates.read(spec)
        except InvalidInput:
            # Admission lets no such pod through; one that came by another way is not placed and harms nobody.
            pod.subject = pod.sort = None
        pod.pod = spec
        pod.framework = self.frameworks.of(spec)
        pod.namespace, pod.name = spec.metadata.namespace, spec.metadata.name
        pod.known_since = pod.known_since or now
        if pod.subject is None:
            return
        runs = bool(spec.spec.node_name or pod.node) and spec.status.phase not in _FINISHED
        self.cluster.put_pod(pod.uid, spec, dict(pod.subject.template.requests), assigned=runs)
        for node in {pod.node, pod.work_node} - {""}:
            self.ledgers.describe(node, pod.occupant())

    def _pod_gone(self, stored: StoredEvent) -> None:
        pod = self.pods.get(stored.ref.id)
        if pod is None:
            return
        self._count_bound(pod, "", stored.event_id)
        self.give_up(pod, stored.event_id)
        self.cluster.drop_pod(pod.uid)
        if pod.framework is None:
            self.nominations.drop(pod.uid)
        pod.pod = None
        pod.subject = pod.sort = pod.framework = None
        pod.spec_event = stored.event_id
        self.queue.remove(pod.uid)
        self._facts_changed(pod, stored.event_id)
        self._follow_cluster(stored.event_id)

    def _bind_failed(self, stored: StoredEvent, event: PodBindFailed) -> None:
        pod = self.pods.get(stored.ref.id)
        if pod is not None and pod.seq == event.placement:
            pod.bind_failed = pod.seq
            self._facts_changed(pod, stored.event_id)

    def _count_bound(self, pod: PodRecord, node: str, trigger: str) -> None:
        """The API's own word on where the pod runs; "" nowhere."""
        if pod.bound_node and pod.bound_node != node:
            self.ledgers.drop(pod.bound_node, pod.uid, Source.BOUND)
            self.room_appeared(pod.bound_node, trigger)
            pod.bound_node = ""
        if node and pod.subject is not None:
            self.ledgers.hold(node, pod.occupant(), Source.BOUND)
            pod.bound_node = node

    # --- other objects -----------------------------------------------------------------------------------------------

    def put_namespace(self, event: NamespaceObserved) -> None:
        """A namespace is there, or has changed."""
        self.namespaces[event.object.metadata.name] = event
        self.cluster.put_namespace(event.object)

    def put_workload(self, uid: str, event: WorkloadObserved) -> None:
        """A controller is there, or has changed."""
        self.workloads[uid] = event
        self.cluster.put_workload(event.object)

    def put_object(self, ref_id: str, event: CustomObjectObserved) -> None:
        """An object of a kind that placement reads is there, or has changed."""
        plural = plural_of(ref_id)
        self.objects[ref_id] = event
        self.cluster.put_object(plural, event.object)
        if plural == explained.PLURAL:
            id_ = ref_id.partition("=")[2]
            try:
                self.explanations.put(id_, explained.question_of(event.object))
            except InvalidInput as error:
                self.explanations.drop(id_)
                self.cluster.warnings.append(f"a ScheduleExplanation cannot be read and is passed over: {error}")

    # --- nodes -------------------------------------------------------------------------------------------------------

    def put_node(self, node: Node, trigger: str = "") -> None:
        """A node is, or has become, this; what the manager has decided about it stands before what it says."""
        name = node.metadata.name
        self.node_objects[name] = node
        policy, shape = self.policies.get(name), node_shape(node)
        if policy is not None:
            shape = replace(shape, allocatable=policy.allocatable(shape.allocatable), weight=policy.weight)
        is_new = self.nodes.row(name) is None
        before = self.nodes.shape.position
        row, may_help = self.nodes.put(name, shape)
        self.cluster.put_node(row, node, shape)
        self._recheck(name, is_changed=self.nodes.shape.position != before)
        if is_new:
            self.ledgers.node_appeared(name)
            self.node_gone_by.pop(name, None)
            self._settle_placed_on(name, trigger)
        if may_help:
            self._helped[row] = None
            self._help_trigger = trigger

    def _recheck(self, node: str, *, is_changed: bool = False) -> None:
        """Take back the placements waiting for a node that has become too full or different for them.

        Their expectations are only written down when they are taken from the outbox, so the log would not refuse them.
        """
        row = self.nodes.row(node)
        if row is None or is_changed or bool((self.nodes.free[:, row] < 0).any()):
            self.take_back(self.outbox.withdraw(node))

    def _node_gone(self, name: str, trigger: str) -> None:
        self.node_objects.pop(name, None)
        self.policies.pop(name, None)
        row = self.nodes.row(name)
        if row is None:
            return
        for uid in self.waiting.on(name):
            self.give_up(self.pods[uid], trigger)
        self.ledgers.node_disappears(name)
        self.cluster.drop_node(row, name)
        self.nodes.remove(name)
        self.node_gone_by[name] = trigger
        self._recheck(name)
        self._settle_placed_on(name, trigger)

    def _settle_placed_on(self, node: str, trigger: str) -> None:
        for uid in self.ledgers.logged(node):
            pod = self.pods.get(uid)
            if pod is not None and pod.phase is Phase.PLACED and pod.node == node:
                self.settle(pod, trigger)

    # --- assumptions taken back --------------------------------------------------------------------------------------

    def take_back(self, works: Iterable[Work]) -> None:
        """Undo the assumptions behind work that will not be appended, and draw the consequences anew."""
        for work in works:
            pod = self.pods.get(work.uid)
            if pod is None:
                continue
            if isinstance(work, Place):
                self.unassume(pod, work)
            pod.work_node = ""
            pod.phase = Phase.OTHERS
            self.settle(pod, work.trigger)
            if isinstance(work, Place) and self.queue.is_in_flight(pod.uid):
                self.queue.retry_now(pod.uid)

    def unassume(self, pod: PodRecord, work: Place, said_by: str = "") -> None:
        """The pod does not count on its node any more, for nobody; who loses a node with it does, too."""
        self.retracted += 1
        self.ledgers.drop(work.node, pod.uid, Source.ASSUMED)
        self.room_appeared(work.node, work.trigger)
        framework = pod.framework or self.frameworks.first
        self.reject(framework.unreserve(pod, work.node, said_by=said_by))

    def give_up(self, pod: PodRecord, trigger: str) -> None:
        """A pod that waits with a node loses it through no fault of its own; one that does not wait is no matter."""
        if pod.uid in self.waiting:
            self._lose(pod, trigger)
            if self.queue.is_in_flight(pod.uid):
                self.queue.retry_now(pod.uid)

    def give_up_late(self, pod: PodRecord, now: float) -> None:
        """A pod has waited in vain: it loses its node and backs off."""
        self._lose(pod, pod.trigger)
        if self.queue.is_in_flight(pod.uid):
            self.queue.retry_later(pod.uid, now)

    def reject(self, uids: Iterable[str]) -> None:
        """These waiting pods lose their nodes with their gang, which has counted that already and will call them.

        source    scheduler-core spec, 8.8
        """
        for uid in uids:
            if uid in self.waiting:
                pod = self.pods[uid]
                self._lose(pod, pod.trigger, _GANGS)
                if self.queue.is_in_flight(uid):
                    gang = self.cluster.gangs.roster.gang_of(uid)
                    self.queue.unschedulable(uid, self.queue.now, Block(_GANGS, "" if gang is None else gang.id))

    def _lose(self, pod: PodRecord, trigger: str, said_by: str = "") -> None:
        work = self.waiting.let_go(pod.uid)
        pod.work_node = ""
        pod.phase = Phase.OTHERS
        self.unassume(pod, work, said_by)
        self.settle(pod, trigger)

    # --- what the log says of placements -----------------------------------------------------------------------------

    def _pod_placed(self, stored: StoredEvent, event: PodPlaced) -> None:
        pod = self._record_of(stored)
        if pod is None:
            return
        if not pod.name:
            pod.namespace, pod.name = event.namespace, event.name
        pod.node = event.node
        pod.placed_at = _unix(stored.occurred_at) if event.standing is None else event.standing.decided_at
        self.give_up(pod, stored.event_id)
        if pod.uid in self.cluster.quotas.pods:
            self.cluster.quotas.reserve(pod.uid)
        if pod.subject is not None:  # the node's ledger may have been read ahead, when nothing was known of the pod
            self.ledgers.describe(event.node, pod.occupant())
        self.bound(pod, event.node)
        self._facts_changed(pod, stored.event_id)

    def bound(self, pod: PodRecord, node: str) -> None:
        """The log has the pod on the node."""
        self.nominations.drop(pod.uid)
        self.explanations.placed(pod, node, self.cluster.gangs.roster)
        framework = pod.framework
        self.cluster.activated((framework or self.frameworks.first).post_bind(pod, node))

    def _pod_released(self, stored: StoredEvent) -> None:
        pod = self._record_of(stored)
        if pod is None:
            return
        self.left_node(pod)
        self._facts_changed(pod, stored.event_id)

    def left_node(self, pod: PodRecord) -> None:
        """The log says that the pod has no node any more."""
        pod.node = ""
        self.cluster.quotas.unreserve(pod.uid)
        self.cluster.quota_moves += 1
        self.cluster.activated(self.cluster.gangs.unbound(pod.uid).activate)

    def rivals_on(self, node: str, pod: PodRecord) -> list[Occupant]:
        """The pods nominated to a node that this pod may not push aside, as they would count there.

        One that has been decided about meanwhile counts where it is assumed.
        source    scheduler-core spec, 1.3
        """
        return [
            other.occupant()
            for uid in self.nominations.rivals(node, pod.uid, pod.priority)
            if (other := self.pods.get(uid)) is not None and other.subject is not None and not other.work_node
        ]

    def clear_nomination(self, pod: PodRecord, reason: str) -> None:
        """A pod that is still waiting is nominated no more; one that was not is no matter."""
        node = self.nominations.node_of(pod.uid)
        if node:
            self.nominations.drop(pod.uid)
            cleared = PodNominationCleared(namespace=pod.namespace, name=pod.name, node=node, reason=reason)
            self.notices.put(Notice(facts=((AggregateRef("pod", pod.uid), cleared),), trigger=pod.trigger))

    def _pod_nominated(self, stored: StoredEvent, event: PodNominated) -> None:
        pod = self._record_of(stored)
        if pod is None:
            return
        if not pod.name:
            pod.namespace, pod.name = event.namespace, event.name
        self.nominate(pod, event.node)
        if pod.pod is None:
            self._facts_changed(pod, stored.event_id)

    def nominate(self, pod: PodRecord, node: str) -> None:
        """The pod is nominated to the node."""
        # Another scheduler's counts for pods of lower priority only: two that wait for each other would wait for ever.
        self.nominations.put(pod.uid, node, pod.priority - (pod.pod is not None and pod.framework is None))

    def _follow_other_scheduler(self, pod: PodRecord, spec: Pod) -> None:
        """What another scheduler has promised its pod. source    scheduler-core spec, 1.3"""
        node = spec.status.nominated_node_name
        if node and not spec.spec.node_name and self._is_alive(spec):
            self.nominate(pod, node)
        else:
            self.nominations.drop(pod.uid)

    def _nomination_cleared(self, stored: StoredEvent) -> None:
        pod = self._record_of(stored)
        if pod is not None:
            self.nominations.drop(pod.uid)
            self._facts_changed(pod, stored.event_id)

    def _facts_changed(self, pod: PodRecord, trigger: str) -> None:
        """Settle the pod, or leave that to the log's answer when an append about it is in flight.

        Work that still waits in the outbox is withdrawn: it was decided on older facts, and its expectations are only
        written down when it is taken.
        """
        if not pod.work_node:
            self.settle(pod, trigger)
        else:
            self.take_back(self.outbox.withdraw_pod(pod.work_node, pod.uid))

    def _record_of(self, stored: StoredEvent) -> PodRecord | None:
        """The pod of a new event of `pod.<uid>`; None when its effect is known already."""
        uid = stored.ref.id
        pod = self.pods.get(uid)
        if pod is None:
            if stored.seq <= self.forgotten.get(uid, 0):
                return None
            pod = self.pods[uid] = PodRecord(uid=uid, spec_event=stored.event_id)
        if stored.seq <= pod.seq:
            return None
        pod.seq = stored.seq
        return pod

    def _resources_taken(self, stored: StoredEvent, event: NodeResourcesTaken) -> None:
        node = name_from_token(stored.ref.id)
        if self.ledgers.advance(node, stored.seq):
            for item in event.pods:
                self.ledgers.hold(node, self.occupant_of(item), Source.LOGGED)
            self._recheck(node)

    def _resources_returned(self, stored: StoredEvent, event: NodeResourcesReturned) -> None:
        node = name_from_token(stored.ref.id)
        if self.ledgers.advance(node, stored.seq):
            for uid in event.pods:
                self.ledgers.drop(node, uid, Source.LOGGED)
            self.room_appeared(node, stored.event_id)

    def occupant_of(self, item: PodOnNode) -> Occupant:
        """The pod of a ledger event as it counts on the node; with the event's requests if they are others."""
        pod = self.pods.get(item.uid)
        if pod is None or pod.subject is None:
            return Occupant(item.uid, self._demand_of(item))
        if pod.subject.template.requests == item.requests:
            return pod.occupant()
        return msgspec.structs.replace(pod.occupant(), demand=self._demand_of(item))

    def _demand_of(self, item: PodOnNode) -> Demand:
        defaults = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}
        return self.nodes.demand(item.requests, {**defaults, **item.requests})

    def _clear_nomination(self, pod: PodRecord, trigger: str) -> None:
        node = self.nominations.node_of(pod.uid)
        if node:
            self.forgotten[pod.uid] = max(pod.seq, self.forgotten.get(pod.uid, 0))
            self._put_cleared(pod.uid, pod.namespace, pod.name, node, trigger)

    def _put_cleared(self, uid: str, namespace: str, name: str, node: str, trigger: str) -> None:
        cleared = PodNominationCleared(namespace=namespace, name=name, node=node, reason="deleted")
        self.notices.put(Notice(facts=((AggregateRef("pod", uid), cleared),), trigger=trigger))

    def _forget(self, pod: PodRecord) -> None:
        self.queue.remove(pod.uid)
        self.nominations.drop(pod.uid)
        self.evictions.pop(pod.uid, None)
        self.notices.seqs.pop(AggregateRef("eviction", pod.uid), None)
        del self.pods[pod.uid]
        if pod.seq > self.position:
            self.forgotten[pod.uid] = pod.seq
        if len(self.forgotten) > 1024:
            self.forgotten = {uid: seq for uid, seq in self.forgotten.items() if seq > self.position}


def _unix(occurred_at: str) -> float:
    try:
        return datetime.fromisoformat(occurred_at).timestamp()
    except ValueError:
        return 0.0
