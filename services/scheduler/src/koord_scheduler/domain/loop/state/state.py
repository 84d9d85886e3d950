"""The state of a scheduler: the folded log, and its own decisions until the log confirms them.

    folding/                one event of the log, or one report, folded into the state
    cycle/                  attempts and decisions on top, assumed at once
    state/assumptions       decisions that are assumed or forgotten, and the effects on their pods
    Commits                 events of these decisions to append, and the effects of the log's answer
    state/queueing_hints    waiting pods that an event may help
    status/status_writer    facts other than placements, and the effects of the log's answer

One task owns an instance. For every aggregate, the last sequence is known, so that a repeated event has no effect. Own
appends take effect when the log acknowledges them; the follower delivers them later, without effect. The
acknowledgement proves that no other event of the aggregate came in between.

Source: event-bus spec, 3.2, 4.2, 4.3; scheduler-core spec, 1 (step 11), 2
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.events.envelope import Draft
from koordcore.events.gang import MOST_NAMED, GangPlaced, PlacedMember, gang_ref
from koordcore.events.node_ledger import PodOnNode
from koordcore.values.allocation import Allocation, is_reservation

from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.ledger import Source
from koord_scheduler.domain.cluster.record import Phase, PodRecord, demand_of, is_finished, pod_info_with
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.loop.commit.outbox import Batch
from koord_scheduler.domain.loop.commit.work import NodeWork, Placement, Reallocation, node_draft, pod_draft
from koord_scheduler.domain.loop.state.assumptions import Assumptions
from koord_scheduler.domain.loop.state.known_state import KnownState, Settings
from koord_scheduler.domain.loop.state.node_refusals import NodeRefusals

MOST_REFOLDS: Final = 8
"""Consecutive refusals of one pod's decisions after which the pod waits for a back-off (event-bus spec, 4.3)."""


class NodeDrafts(NamedTuple):
    """The unsealed events of one append about one node: the ledger event, and one event per pod."""

    work: NodeWork
    node: Draft
    pods: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class BatchDrafts:
    """The unsealed events of one append."""

    nodes: list[NodeDrafts]  # Events by node
    gang: Draft | None = None  # The event of the gang that is placed as a whole. None: the nodes are independent.


class Abandoned(NamedTuple):
    """A placement that is given up, because the log refused it too often or for good. The pod is retried after a
    back-off.
    """

    work: Placement
    reason: str


class Commits:
    """Turns placements and releases into events to append, and applies the log's answer to the state."""

    def __init__(self, known: KnownState, assumed: Assumptions) -> None:
        self._known = known
        self._assumed = assumed
        self._ledgers = assumed.ledgers
        self._outbox = assumed.outbox

    def drafts_of(self, batch: Batch) -> BatchDrafts:
        """Return the events that a batch appends. Each expects the last known position of its aggregate."""
        nodes = [
            NodeDrafts(
                work=work,
                node=node_draft(work, self._ledgers.seq(work.node)),
                pods=tuple(pod_draft(item, self._known.pods[item.uid].seq) for item in work.items),
            )
            for work in batch.works
        ]
        return BatchDrafts(nodes, self._gang_draft(batch) if batch.gang else None)

    def _gang_draft(self, batch: Batch) -> Draft:
        namespace, _, name = batch.gang.partition("/")
        ref = gang_ref(namespace, name)
        gang = self._known.books.gangs.roster.gang(batch.gang)
        placed = [item for item in batch.items if isinstance(item, Placement)]
        members = [
            PlacedMember(uid=item.uid, namespace=item.namespace, name=item.name, node=item.node)
            for item in placed[:MOST_NAMED]
        ]
        group = ",".join(gang.group.gang_ids) if gang is not None and gang.group is not None else batch.gang
        count = len(placed) if len(placed) > MOST_NAMED else 0
        event = GangPlaced(namespace=namespace, name=name, group=group, members=members, count=count)
        return Draft(ref, event, self._known.status.writes.seqs.get(ref, 0))

    def confirmed(self, work: NodeWork, node_seq: int, pod_seqs: Sequence[int], event_id: str) -> None:
        """Turn assumed placements and releases into facts after the log has stored them. `pod_seqs`: positions of the
        pods' events in the order of the items.
        """
        log = self._known.log
        log.acknowledged = max(log.acknowledged, node_seq)
        is_news = self._ledgers.advance(work.node, node_seq)
        self._outbox.landed(work.node)
        for item, seq in zip(work.items, pod_seqs, strict=True):
            pod = self._known.pods[item.uid]
            if isinstance(item, Placement):
                if is_news:
                    self.hold(item.node, item.on_node)
                if item.on_node.allocation.reservation is not None:
                    self.used_reservation(item.uid, item.on_node.allocation)
                self._ledgers.drop(item.node, item.uid, Source.ASSUMED)
            elif isinstance(item, Reallocation):
                if is_news:
                    self.hold(item.node, item.on_node)
                self.used_reservation(item.uid, item.on_node.allocation)
            elif is_news:
                self._ledgers.drop(item.node, item.uid, Source.LOGGED)
                self._known.hints.room_appeared(item.node, event_id)
            if seq > pod.seq:
                pod.seq = seq
                if isinstance(item, Placement):
                    pod.node = item.node
                    self.bound(pod, item.node)
                elif isinstance(item, Reallocation):
                    pod.node = item.node
                else:
                    self.left_node(pod)
            pod.refolds = 0
            pod.work_node = ""
            pod.phase = Phase.OTHERS
            self._assumed.reconcile(pod, event_id)

    def refused(
        self,
        work: NodeWork,
        now: float,
        *,
        blame: bool = True,
        hopeless: str = "",
        at_fault: Container[str] | None = None,
    ) -> list[Abandoned]:
        """Undo placements and releases that the log has not stored, and all work in the outbox for their node, which
        was decided on the same outdated state. Returns placements that are given up; their pods are retried after a
        back-off.

        Args:
            blame: Whether this counts as a refusal of these decisions (a conflict) or not (the log was full).
            hopeless: Why the log will never store the work; "" if it may store it later.
            at_fault: Uids of the pods to which the refusal counts. None: all of them.
        """
        abandoned: list[Abandoned] = []
        later = self._outbox.withdraw(work.node)
        self._outbox.landed(work.node)
        for item in work.items:
            pod = self._known.pods[item.uid]
            self._assumed.forget([item])
            is_blamed = blame and (at_fault is None or item.uid in at_fault)
            if not is_blamed or not isinstance(item, Placement) or pod.phase is not Phase.QUEUED:
                continue
            pod.refolds += 1
            if hopeless or pod.refolds >= MOST_REFOLDS:
                times = f"the log refused {pod.refolds} decisions in a row because others changed the pod or its node"
                abandoned.append(Abandoned(item, hopeless or times))
                pod.refolds = 0
                self._known.queue.retry_later(item.uid, now)
        self._assumed.forget(later)
        return abandoned

    def withdraw_all(self) -> None:
        """Undo all placements and releases that are not in flight, because another scheduler leads from now on."""
        for uid in self._assumed.waiting.uids():
            self._assumed.give_up(self._known.pods[uid], self._known.pods[uid].trigger, "another scheduler leads")
        self._assumed.waiting.lost()  # the next leader attempts these pods, and explains what it finds
        for node in self._outbox.nodes():
            self._assumed.forget(self._outbox.withdraw(node))
        self._known.status.withdraw_all()

    def bound(self, pod: PodRecord, node: str) -> None:
        """Notify nominations, ScheduleExplanations and plugins that the log has placed the pod on the node."""
        self._known.nominator.drop(pod.uid)
        self._known.status.explanations.placed(pod, node, self._known.books.gangs.roster)
        framework = self._known.frameworks.first if pod.framework is None else self._known.frameworks.framework_of(pod)
        self._known.cluster.activated(framework.post_bind(pod, node))
        if pod.uid in self._known.books.reservations.entries:
            self._known.books.reservations.placed(pod.uid, node, pod.placed_at)
            self._known.hints.room_appeared(node, pod.trigger)
        elif self._known.books.reservations.pre_allocations.is_awaited():
            self._known.hints.room_appeared(node, pod.trigger)

    def used_reservation(self, uid: str, allocation: Allocation) -> None:
        """Record that a pod in the log uses a Reservation. If it may be used only once, no other pod gets it.
        `allocation`: its allocation, which names the Reservation.
        """
        used = allocation.reservation
        if used is not None and not is_reservation(uid, allocation):
            self._known.books.reservations.consumed(used.uid)

    def left_node(self, pod: PodRecord) -> None:
        """Record that the log has released the pod from its node, and notify quotas, gangs and Reservations. A pod that
        is bound at the API server, such as one of a deleted node, stays bound for quotas and gangs.
        """
        pod.node, pod.unhealthy, pod.unstorable = "", (), None
        self._known.books.reservations.left(pod.uid)
        if not pod.bound_node:
            self._known.books.quotas.unreserve(pod.uid)
            if pod.pod is None or not is_finished(pod.pod):  # a finished member stays bound (scheduler-core spec, 8.2)
                self._known.cluster.activated(self._known.books.gangs.unbound(pod.uid).activate)

    def hold(self, node: str, item: PodOnNode) -> None:
        """Count a pod of a ledger event on the node, with the requests and the allocation of the event. If its object
        asks for other amounts, it counts with these.
        """
        pod = self._known.pods.get(item.uid)
        if pod is None:
            info = PodInfo(item.uid, demand_of(self._known.nodes, item.requests), allocation=item.allocation)
        elif pod.subject is None:
            info = pod.pod_info_without_object(demand_of(self._known.nodes, item.requests), item.allocation)
        else:
            info = pod_info_with(self._known.nodes, pod, item.requests, item.allocation)
        self._ledgers.hold(node, info, Source.LOGGED, self._known.asked(pod))
        if self._ledgers.resized(node, item.uid) is None:
            self._assumed.to_resize.pop(item.uid, None)
        else:
            self._assumed.to_resize[item.uid] = None


class SchedulerState(KnownState):
    """The whole state of a scheduler: the folded log, and own decisions that the log has not confirmed yet."""

    def __init__(self, frameworks: Frameworks, settings: Settings | None = None) -> None:
        super().__init__(frameworks, settings)
        self.assumed = Assumptions(self)  # Decisions that the log has not confirmed, and the ledgers that count them
        self.refusals = NodeRefusals(self, self.assumed.ledgers)  # Nodes that refused a pod at Reserve
        self.commits = Commits(self, self.assumed)  # Makes the events to append, and applies the log's answers

    def next_due(self) -> float | None:
        """Return the time at which a back-off or a wait at Permit ends, in seconds of the service's `Clock`; 0.0 if a
        decision may have ended the wait of another gang. None: only an event can change something.
        """
        if self.books.gangs.may_be_ready:
            return 0.0
        dues = (self.queue.next_due(), self.assumed.waiting.next_due())
        return min((due for due in dues if due is not None), default=None)
