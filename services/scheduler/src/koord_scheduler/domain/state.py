"""The log folded into columns, ledgers and queue; `deciding` adds our own decisions on top until the log answers.

    apply(stored)    one event of the log, in order
    ahead(stored)    an event of one aggregate, read before the follower brings it (after a conflict)
    settle(pod)      what follows for a pod from all that is known of it: queue it, release it, forget it

One task owns an instance. Every aggregate remembers its last sequence, so an event that comes again (our own appends
take effect when they are acknowledged, the follower brings them later) changes nothing: an expectation that was
accepted proves that no other event lay between.

source    event-bus spec, 3.2, 4.2; scheduler-core spec, 1 (step 11), 2
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from koordcore.events import CATALOGUE
from koordcore.events.envelope import StoredEvent, name_from_token
from koordcore.events.mirror import (
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
)
from koordcore.events.node import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.pod import PodPlaced, PodReleased
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import DEFAULT_CPU_MILLI, DEFAULT_MEMORY_BYTES
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster import Cluster, ProfileMaker
from koord_scheduler.domain.columns import Demand, NodeShape, Rows, node_shape
from koord_scheduler.domain.engine import Engine
from koord_scheduler.domain.ledger import Ledgers, Source
from koord_scheduler.domain.occupancy import Occupant
from koord_scheduler.domain.on_node import PodsOnNodes
from koord_scheduler.domain.pods import Phase, PodRecord
from koord_scheduler.domain.queue import SchedulingQueue
from koord_scheduler.domain.templates import Subject
from koord_scheduler.domain.work import Outbox, Place, Work

KINDS: Final = ("podspec", "nodespec", "pod", "node", "nodepolicy")
"""Aggregates that a scheduler folds."""

DEFAULT_SCHEDULER_NAMES: Final = frozenset({"", "koord-scheduler", "default-scheduler"})

_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the fold and the queue are told. Seconds are of the run's clock."""

    scheduler_names: frozenset[str] = DEFAULT_SCHEDULER_NAMES
    initial_backoff_seconds: float = 1.0
    max_backoff_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class BatchResources:
    """Overcommitted resources of a node; None: withdrawn."""

    cpu_milli: int | None
    memory_bytes: int | None


class SchedulerState:
    """Everything a scheduler knows.

    position    last folded sequence of the facts stream
    """

    def __init__(self, profile: ProfileMaker, settings: Settings | None = None) -> None:
        self.position = 0
        self.settings = settings or Settings()
        self.cluster = Cluster()
        self.nodes = self.cluster.nodes
        self.templates = self.cluster.templates
        self.engine = Engine(self.nodes, profile(self.cluster))
        self.queue = SchedulingQueue(
            self.nodes,
            initial_backoff=self.settings.initial_backoff_seconds,
            max_backoff=self.settings.max_backoff_seconds,
        )
        self.outbox = Outbox()
        self.ledgers = Ledgers(self.cluster.occupancy)
        self.on_nodes = PodsOnNodes()
        self.pods: dict[str, PodRecord] = {}
        self.to_release: dict[str, tuple[str, str]] = {}
        self.forgotten: dict[str, int] = {}
        self.shapes: dict[str, NodeShape] = {}
        self.batch: dict[str, BatchResources] = {}
        self.node_gone_by: dict[str, str] = {}
        self._helped: dict[int, None] = {}
        self._help_trigger = ""

    def apply(self, stored: StoredEvent) -> None:
        """Fold the next event of the log; one at or before `position` changes nothing.

        raises    UnreadableEvent: nothing has changed, the fold has to halt before this event
        """
        if stored.seq > self.position:
            self.ahead(stored)
            self.position = stored.seq

    def skip(self, seq: int) -> None:
        """Pass over an event, because an operator said so or because its kind is of no interest."""
        self.position = max(self.position, seq)

    def ahead(self, stored: StoredEvent) -> None:
        """Fold an event of one aggregate, all earlier ones of which are folded; raises UnreadableEvent."""
        if stored.ref.kind not in KINDS or self._is_known(stored):
            return
        match CATALOGUE.read(stored):
            case PodSpecAdded() | PodSpecChanged() as event:
                self._pod_submitted(stored, event.object)
            case PodSpecDeleted():
                self._pod_gone(stored)
            case NodeSpecAdded() | NodeSpecChanged() as event:
                self.put_node(event.object.metadata.name, node_shape(event.object), stored.event_id)
            case NodeSpecDeleted(name=name):
                self._node_gone(name, stored.event_id)
            case PodPlaced() as event:
                self._pod_placed(stored, event)
            case PodReleased():
                self._pod_released(stored)
            case NodeResourcesTaken() as event:
                self._resources_taken(stored, event)
            case NodeResourcesReturned() as event:
                self._resources_returned(stored, event)
            case NodeOvercommitComputed() as event:
                node = name_from_token(stored.ref.id)
                self.batch[node] = BatchResources(event.batch_cpu_milli, event.batch_memory_bytes)
                if node in self.shapes:
                    self.put_node(node, self.shapes[node], stored.event_id)
            case _:
                pass

    def _is_known(self, stored: StoredEvent) -> bool:
        """Whether it is one of our own appends (or an event read ahead), so that it need not even be decoded."""
        match stored.ref.kind:
            case "pod":
                pod = self.pods.get(stored.ref.id)
                return pod is not None and stored.seq <= pod.seq
            case "node":
                return stored.seq <= self.ledgers.seq(name_from_token(stored.ref.id))
            case _:
                return False

    def wake(self) -> int:
        """Wake the waiting pods that the events folded since the last call may help; returns how many."""
        if not self._helped:
            return 0
        rows = np.array(sorted(self._helped), np.intp)
        self._helped.clear()
        return self.queue.wake(rows, self._any_fits, self._help_trigger)

    def room_appeared(self, node: str, trigger: str) -> None:
        """Something on the node may help a waiting pod."""
        row = self.nodes.row(node)
        if row is not None:
            self._helped[row] = None
            self._help_trigger = trigger

    def has_room(self, subject: Subject) -> bool:
        """Whether any node is feasible for pods of this kind at present."""
        return len(self.engine.feasible(subject)) > 0

    def _any_fits(self, subject: Subject, rows: Rows) -> bool:
        return len(self.engine.passing(subject, rows)) > 0

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
            self._forget(pod)
        elif pod.bound_node:
            self.queue.remove(pod.uid)
            pod.phase = Phase.BOUND
        elif pod.subject is None or not self._is_ours(pod.pod):
            self.queue.remove(pod.uid)
            pod.phase = Phase.OTHERS
        else:
            pod.phase = Phase.QUEUED
            pod.trigger = trigger
            self._enqueue(pod, pod.pod, trigger)

    def _enqueue(self, pod: PodRecord, spec: Pod, trigger: str) -> None:
        assert pod.subject is not None
        priority, gated = spec.spec.priority or 0, bool(spec.spec.scheduling_gates)
        queued = self.queue.get(pod.uid)
        if queued is None or not queued.is_same(pod.subject, priority, gated=gated):
            self.queue.add(pod.uid, pod.subject, priority, trigger, gated=gated)

    def _release_reason(self, pod: PodRecord) -> str | None:
        if pod.pod is None:
            return "deleted"
        if pod.pod.status.phase in _FINISHED:
            return "finished"
        if self.nodes.row(pod.node) is None:
            return "node-gone"
        return None

    def _is_ours(self, pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in _FINISHED:
            return False
        name = pod.metadata.labels.get(keys.SCHEDULER_NAME, pod.spec.scheduler_name)
        return name in self.settings.scheduler_names

    def _pod_submitted(self, stored: StoredEvent, spec: Pod) -> None:
        uid = stored.ref.id
        pod = self.pods.get(uid)
        if pod is None:
            pod = self.pods[uid] = PodRecord(uid=uid)
        if pod.pod is None:
            pod.submitted_at = stored.occurred_at
            pod.traceparent, pod.tracestate = stored.traceparent, stored.headers.get("tracestate", "")
        try:
            pod.subject, spec = self.templates.read(spec)
        except InvalidInput:
            # Admission lets no such pod through; one that came by another way is not placed and harms nobody.
            pod.subject = None
        pod.pod = spec
        pod.namespace, pod.name = spec.metadata.namespace, spec.metadata.name
        pod.spec_event = stored.event_id
        self._count_bound(pod, spec.spec.node_name if spec.status.phase not in _FINISHED else "", stored.event_id)
        if pod.subject is not None:
            for node in {pod.node, pod.work_node} - {""}:
                self.ledgers.describe(node, pod.occupant())
        if not pod.work_node:
            self.settle(pod, stored.event_id)

    def _pod_gone(self, stored: StoredEvent) -> None:
        pod = self.pods.get(stored.ref.id)
        if pod is None:
            return
        self._count_bound(pod, "", stored.event_id)
        pod.pod = None
        pod.subject = None
        pod.spec_event = stored.event_id
        self.queue.remove(pod.uid)
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

    def put_node(self, name: str, shape: NodeShape, trigger: str = "") -> None:
        """A node is, or has become, this; its batch resources are those that the manager computed, if it has."""
        self.shapes[name] = shape
        batch = self.batch.get(name)
        if batch is not None:
            allocatable = dict(shape.allocatable)
            for resource, amount in ((BATCH_CPU, batch.cpu_milli), (BATCH_MEMORY, batch.memory_bytes)):
                if amount is None:
                    allocatable.pop(resource, None)
                else:
                    allocatable[resource] = amount
            shape = replace(shape, allocatable=allocatable)
        is_new = self.nodes.row(name) is None
        before = self.nodes.shape.position
        row, may_help = self.nodes.put(name, shape)
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
            for work in self.outbox.withdraw(node):
                self.taken_back(work)

    def _node_gone(self, name: str, trigger: str) -> None:
        self.shapes.pop(name, None)
        if self.nodes.row(name) is None:
            return
        self.ledgers.node_disappears(name)
        self.nodes.remove(name)
        self.node_gone_by[name] = trigger
        self._recheck(name)
        self._settle_placed_on(name, trigger)

    def _settle_placed_on(self, node: str, trigger: str) -> None:
        for uid in self.ledgers.logged(node):
            pod = self.pods.get(uid)
            if pod is not None and pod.phase is Phase.PLACED and pod.node == node:
                self.settle(pod, trigger)

    def taken_back(self, work: Work) -> None:
        """Undo the assumption behind work that will not be appended, and draw the consequences anew."""
        pod = self.pods.get(work.uid)
        if pod is None:
            return
        if isinstance(work, Place):
            self.ledgers.drop(work.node, work.uid, Source.ASSUMED)
        pod.work_node = ""
        pod.phase = Phase.OTHERS
        self.settle(pod, work.trigger)
        if isinstance(work, Place) and self.queue.is_in_flight(pod.uid):
            self.queue.retry_now(pod.uid)

    def _pod_placed(self, stored: StoredEvent, event: PodPlaced) -> None:
        pod = self._record_of(stored)
        if pod is None:
            return
        if not pod.name:
            pod.namespace, pod.name = event.namespace, event.name
        pod.node = event.node
        self._facts_changed(pod, stored.event_id)

    def _pod_released(self, stored: StoredEvent) -> None:
        pod = self._record_of(stored)
        if pod is None:
            return
        pod.node = ""
        self._facts_changed(pod, stored.event_id)

    def _facts_changed(self, pod: PodRecord, trigger: str) -> None:
        """Settle the pod, or leave that to the log's answer when an append about it is in flight.

        Work that still waits in the outbox is withdrawn: it was decided on older facts, and its expectations are only
        written down when it is taken.
        """
        if not pod.work_node:
            self.settle(pod, trigger)
        elif (work := self.outbox.withdraw_pod(pod.work_node, pod.uid)) is not None:
            self.taken_back(work)

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
        return Occupant(item.uid, self._demand_of(item), pod.subject.template, pod.subject.kind)

    def _demand_of(self, item: PodOnNode) -> Demand:
        defaults = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}
        return self.nodes.demand(item.requests, {**defaults, **item.requests})

    def _forget(self, pod: PodRecord) -> None:
        self.queue.remove(pod.uid)
        del self.pods[pod.uid]
        if pod.seq > self.position:
            self.forgotten[pod.uid] = pod.seq
        if len(self.forgotten) > 1024:
            self.forgotten = {uid: seq for uid, seq in self.forgotten.items() if seq > self.position}
