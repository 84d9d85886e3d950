"""Decisions that the log has not confirmed yet. They are assumed in one place and forgotten in one place.

    assumed -> waits at Permit -> outbox -> in flight -> confirmed (`Commits`)
    forget: the state is as if the decision had never been made

`reconcile` brings a pod without work in progress into the right phase: queued, to be released, dropped, or not ours.

Source: scheduler-core spec, 1 (steps 11 and 13), 2, 8.8; event-bus spec, 4.3
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from koordcore.events.envelope import AggregateRef
from koordcore.events.pod import RESIZED
from koordcore.protocol.objects import Pod
from koordcore.protocol.reservations import is_reserve_pod
from koordcore.state.allocation_rules import objections, violations
from koordcore.values.allocation import Allocation

from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.ledger import Ledgers, Source
from koord_scheduler.domain.cluster.record import Phase, PodRecord, is_alive, is_finished, on_node, pod_info_with
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.loop.commit.outbox import Outbox
from koord_scheduler.domain.loop.commit.work import Placement, Reallocation, Release, Work
from koord_scheduler.domain.loop.queue.permit import WaitingPods
from koord_scheduler.domain.loop.queue.queued_pod import Block
from koord_scheduler.domain.loop.state.known_state import KnownState
from koord_scheduler.domain.plugins.gang.checks import bound_gang
from koord_scheduler.domain.plugins.reservation.pre_allocation import Adopted, is_within

PRE_ALLOCATED: Final = "pre-allocated"
RESERVATION_DELETED: Final = "reservation-deleted"
NODE_LEDGER: Final = "NodeLedger"
"""Replaces a plugin's name if the rules that all allocations of a node obey refuse the pod."""


class Assumptions:
    """Decisions that are counted as if the log had stored them (assumed), until the log answers."""

    def __init__(self, known: KnownState) -> None:
        self.decisions = 0  # Number of decisions made by this process
        self.forgotten = 0  # Number of decisions that were undone
        self.ledgers = Ledgers(known.cluster.accounting)  # Pods on each node, by source
        self.waiting = WaitingPods()  # Pods that wait at Permit with a node
        self.outbox = Outbox()  # Placements and releases that are not appended yet
        # Uid of a pod that must give its node back -> (reason, id of the causing event).
        self.to_release: dict[str, tuple[str, str]] = {}
        self.to_resize: dict[str, None] = {}  # Uids of pods to which the log may have given other amounts
        self._known = known
        self._adoptions: dict[str, list[Reallocation]] = {}
        known.books.reservations.pre_allocations.pods_on = self.ledgers.pod_infos

    # --- apply -------------------------------------------------------------------------------------------------------

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Let plugins reserve resources for a pod on a node. After a rejection, no resources stay reserved. An
        allocation that breaks a rule of the node's ledger is rejected. The reason is a defect of a plugin, or a pod
        that another scheduler bound and that the plugin did not count. Returns the allocation, or the reason why the
        pod cannot have the node.
        """
        framework = self._known.frameworks.framework_of(pod)
        allocation = framework.reserve(pod, node)
        if isinstance(allocation, Allocation) and allocation.is_exclusive:
            adopted = self._known.books.reservations.pre_allocations.adopted(pod.uid)
            holders = self.ledgers.holders(node)
            for each in adopted:
                holders[each.pod_info.uid] = each.as_owner()
            broken = "; ".join([each.sentence() for each in objections(holders, pod.uid, pod.pod_info(allocation))])
            broken = broken or self._problem_of(adopted, allocation)
            if broken:
                lost = tuple(framework.unreserve(pod, node))
                allocation = Rejection(plugin=NODE_LEDGER, message=f"node {node}: {broken}", lost=lost)
        if isinstance(allocation, Rejection):
            for plugin, uids in allocation.lost:
                self.reject(plugin, uids, f"pod {pod.namespace}/{pod.name} did not get node {node}")
        return allocation

    def _problem_of(self, adopted: Sequence[Adopted], allocation: Allocation) -> str:
        """Return why running pods cannot become owners of a Reservation with this allocation now; "" if they can."""
        for each in adopted:
            other = self._known.pods[each.pod_info.uid]
            if other.work_node or other.phase not in (Phase.PLACED, Phase.BOUND):
                return f"pod {other.namespace}/{other.name} is being changed by another decision"
            if not is_within(each.pod_info.allocation, allocation):
                return f"the CPUs and devices of pod {other.namespace}/{other.name} are not among those reserved"
        return ""

    def assume(
        self, pod: PodRecord, node: str, requests: Mapping[str, int], allocation: Allocation, now: float
    ) -> None:
        """Count a pod, for which plugins have reserved, on its node as if the log had stored its placement. `requests`:
        milli-cores for cpu, whole units otherwise.
        """
        pod.placed_at = now
        pod.phase = Phase.ASSUMED
        pod.work_node = node
        info = pod_info_with(self._known.nodes, pod, requests, allocation)
        self.ledgers.hold(node, info, Source.ASSUMED, self._known.asked(pod))
        for each in self._known.books.reservations.pre_allocations.take_adopted(pod.uid):
            self._adoptions.setdefault(pod.uid, []).append(
                self._reallocated(each.as_owner(), node, PRE_ALLOCATED, pod.trigger)
            )

    def leave_reservation(self, uid: str, reservation: str) -> None:
        """Put the decision into the outbox that a pod uses its deleted Reservation no longer. No-op if another decision
        about the pod is under way, or if it does not use this Reservation.
        """
        pod = self._known.pods.get(uid)
        if pod is None or pod.pod is None or pod.phase is not Phase.PLACED or uid in self.to_release:
            return
        info = self.ledgers.holders(pod.node).get(uid)
        used = info.allocation.reservation if info is not None else None
        if info is None or used is None or used.uid != reservation:
            return
        allocation = msgspec.structs.replace(info.allocation, reservation=None)
        left = msgspec.structs.replace(info, allocation=allocation)
        trigger = f"{AggregateRef('reservation', reservation)}/{self._known.log.position}"
        self.outbox.put(self._reallocated(left, pod.node, RESERVATION_DELETED, trigger))

    def _reallocated(self, pod_info: PodInfo, node: str, reason: str, trigger: str) -> Reallocation:
        """Count a pod on its node with another allocation, and return the decision to be appended. `pod_info`: the pod
        with the amounts with which it counts, and the new allocation.
        """
        pod = self._known.pods[pod_info.uid]
        assert pod.pod is not None and pod.sort is not None, f"pod {pod.uid} has no spec"  # noqa: PT018
        pod.phase, pod.work_node = Phase.ASSUMED, node
        self.ledgers.assume_other(node, pod.uid, pod_info.allocation)
        entry = on_node(pod.uid, pod.pod, pod.sort, pod_info.allocation)
        return Reallocation(
            uid=pod.uid,
            node=node,
            namespace=pod.namespace,
            name=pod.name,
            on_node=msgspec.structs.replace(entry, requests=dict(pod_info.requests)),
            reason=reason,
            trigger=trigger,
            traceparent=pod.traceparent,
            tracestate=pod.tracestate,
        )

    def allow(self, works: Sequence[Placement], waiting: Sequence[str], gang: str) -> None:
        """Put placements into the outbox, together with the placements of pods that wait at Permit for them. `waiting`:
        uids of pods at Permit. Pods that do not wait any more are left out. `gang`: id of the gang whose placements are
        appended all or none, if there are several.
        """
        waited = [self.waiting.take(uid) for uid in waiting if uid in self.waiting]
        together: list[Work] = [self._annotated(work) for work in (*waited, *works)]
        for work in (*waited, *works) if self._adoptions else ():
            together += self._adoptions.pop(work.uid, ())
        if len(together) > 1:
            self.outbox.put_together(together, gang)
        elif together:
            self.outbox.put(together[0])

    def _annotated(self, work: Placement) -> Placement:
        """Return the placement with its gang group and with the annotations of PreBind plugins. Source: scheduler-core
        spec, 8.7.
        """
        known = self._known
        pod = known.pods[work.uid]
        written = known.frameworks.framework_of(pod).pre_bind(pod, work.node) if pod.framework is not None else {}
        gang = bound_gang(known.books.gangs.roster, work.uid)
        return msgspec.structs.replace(work, annotations=written, gang=gang) if written or gang is not None else work

    # --- undo --------------------------------------------------------------------------------------------------------

    def forget(self, works: Iterable[Work]) -> None:
        """Undo placements and releases that were assumed but will not be appended, and reconcile their pods."""
        for work in works:
            pod = self._known.pods.get(work.uid)
            if pod is None:
                continue
            if isinstance(work, Placement):
                self._unassume(pod, work)
            elif isinstance(work, Reallocation):
                self.ledgers.take_back(work.node, work.uid)
            pod.work_node = ""
            pod.phase = Phase.OTHERS
            self.reconcile(pod, work.trigger)
            if isinstance(work, Placement) and self._known.queue.is_in_flight(pod.uid):
                self._known.queue.retry_now(pod.uid)

    def recheck_node(self, node: str, *, is_changed: bool = False, is_given: bool = False) -> None:
        """Undo the placements in the outbox for a node that has no longer room for them or has changed. The log would
        not refuse these placements, because the expected positions are set only when they leave the outbox. For the
        same reason, pods at Permit lose the node if it has no longer room for them. `is_given`: whether a pod got an
        allocation on the node, which may conflict with the allocation of a placement in the outbox.
        """
        if not self.outbox.has(node) and not len(self.waiting):
            return  # nothing to undo, as for each pod of a first import
        row = self._known.nodes.row(node)
        is_overfull = row is not None and self._is_overfull(node, row, is_given=is_given)
        if row is None or is_changed or is_overfull:
            self.forget(self.outbox.withdraw(node))
        if row is not None and is_overfull:
            for uid in reversed(self.waiting.on(node)):
                holder = self.ledgers.holders(node).get(uid)  # None: it has just lost the node with its gang
                if holder is None:
                    continue
                is_short = bool((self._known.nodes.free[holder.demand.columns, row] < 0).any()) or bool(
                    holder.demand.unoffered
                )
                if is_short or (is_given and violations(self.ledgers.holders(node))):
                    pod = self._known.pods[uid]
                    self.give_up(pod, pod.trigger, f"node {node} has no room for it any more")

    def _is_overfull(self, node: str, row: int, *, is_given: bool) -> bool:
        """Return whether the pods of a node take more than it has, or allocations conflict if one was just given."""
        is_broken = is_given and bool(violations(self.ledgers.holders(node)))
        return is_broken or self._known.nodes.is_overfull(row)

    def facts_changed(self, pod: PodRecord, trigger: str) -> None:
        """Reconcile the pod after an event about it. A placement of the pod in the outbox is undone, because it was
        decided on older facts. If an append about the pod is in flight, the log's answer reconciles it later.
        """
        if not pod.work_node:
            self.reconcile(pod, trigger)
        else:
            self.forget(self.outbox.withdraw_pod(pod.work_node, pod.uid))

    def give_up(self, pod: PodRecord, trigger: str, why: str) -> None:
        """Release the node of a pod that waits at Permit, and retry the pod at once. No-op for other pods. `why`: a
        clause for the user.
        """
        if pod.uid in self.waiting:
            self._lose(pod, trigger, why)
            if self._known.queue.is_in_flight(pod.uid):
                self._known.queue.retry_now(pod.uid)

    def give_up_late(self, pod: PodRecord, now: float) -> None:
        """Release the node of a pod whose time at Permit is over, and retry the pod after a back-off. `pod`: the pod,
        which must wait at Permit. `now`: Unix seconds, from which the back-off counts.
        """
        self._lose(pod, pod.trigger, "")
        if self._known.queue.is_in_flight(pod.uid):
            self._known.queue.retry_later(pod.uid, now)

    def reject(self, plugin: str, uids: Iterable[str], why: str) -> None:
        """Release the nodes of pods at Permit that are rejected with their gang. The gang activates them again.
        `plugin`: name of the plugin that rejects them. `why`: a clause for the user.
        """
        for uid in uids:
            if uid in self.waiting:
                pod = self._known.pods[uid]
                self._lose(pod, pod.trigger, why, plugin)
                if self._known.queue.is_in_flight(uid):
                    gang = self._known.books.gangs.roster.gang_of(uid)
                    self._known.queue.unschedulable(
                        uid, self._known.queue.now, Block(plugin, "" if gang is None else gang.id)
                    )

    def _lose(self, pod: PodRecord, trigger: str, why: str, caused_by: str = "") -> None:
        work = self.waiting.lose(pod.uid, why)
        pod.work_node = ""
        pod.phase = Phase.OTHERS
        self._unassume(pod, work, caused_by, why or "its time at Permit was over")
        self.reconcile(pod, trigger)

    def _unassume(
        self, pod: PodRecord, work: Placement, caused_by: str = "", why: str = "its placement was withdrawn"
    ) -> None:
        """Remove the pod from its node for every plugin, and reject the pods that lose their nodes with it."""
        self.forgotten += 1
        self.forget(self._adoptions.pop(pod.uid, ()))
        self.ledgers.drop(work.node, pod.uid, Source.ASSUMED)
        self._known.hints.room_appeared(work.node, work.trigger)
        framework = self._known.frameworks.first if pod.framework is None else self._known.frameworks.framework_of(pod)
        for plugin, uids in framework.unreserve(pod, work.node, caused_by=caused_by):
            self.reject(plugin, uids, f"pod {pod.namespace}/{pod.name} lost node {work.node}, because {why}")
        quotas = self._known.books.quotas
        if (pod.node or pod.bound_node) and pod.uid in quotas.pods:  # another scheduler has placed it meanwhile
            quotas.reserve(pod.uid)

    # --- consequences ------------------------------------------------------------------------------------------------

    def reconcile(self, pod: PodRecord, trigger: str) -> None:
        """Queue, release or drop a pod without work in progress, as its object and the log require. `trigger`: id of
        the event that changed something.
        """
        if pod.node:
            self._known.queue.remove(pod.uid)
            pod.phase = Phase.PLACED
            reason = self._release_reason(pod)
            if reason is None and self.ledgers.resized(pod.node, pod.uid) is not None:
                self.to_resize[pod.uid] = None
            else:
                self.to_resize.pop(pod.uid, None)
            if reason is None:
                self.to_release.pop(pod.uid, None)
            else:
                self.to_release[pod.uid] = (reason, self._known.mirror.node_gone_by.get(pod.node, pod.spec_event))
            return
        self.to_release.pop(pod.uid, None)
        if pod.pod is None:
            self._known.nominator.pod_deleted(pod, trigger)
            self._drop(pod)
        elif pod.bound_node:
            self._known.queue.remove(pod.uid)
            pod.phase = Phase.BOUND
        elif pod.subject is None or pod.framework is None or not is_alive(pod.pod):
            self._known.queue.remove(pod.uid)
            pod.phase = Phase.OTHERS
            self._known.cluster.activated(self._known.books.gangs.left_queue(pod.uid).activate)
        else:
            pod.phase = Phase.QUEUED
            pod.trigger = trigger
            self._enqueue(pod, pod.pod, trigger)

    def _release_reason(self, pod: PodRecord) -> str | None:
        if pod.pod is None:
            return "deleted"
        if is_finished(pod.pod):
            return "finished"
        if self._known.nodes.row(pod.node) is None:
            # A Reservation fails with its node. It is released when the log says so.
            return None if is_reserve_pod(pod.pod) else "node-gone"
        return "bind-failed" if pod.bind_failed == pod.seq else None

    def _enqueue(self, pod: PodRecord, spec: Pod, trigger: str) -> None:
        assert pod.subject is not None
        priority = spec.spec.priority or 0
        queued = self._known.queue.get(pod.uid)
        if queued is None or not queued.is_same(pod.subject, priority):
            self._known.queue.add(pod.uid, pod.subject, priority, trigger, failures=pod.bind_failures)
        else:
            self._known.queue.recheck(pod.uid)

    def _drop(self, pod: PodRecord) -> None:
        self.to_resize.pop(pod.uid, None)
        self._known.queue.remove(pod.uid)
        self._known.nominator.drop(pod.uid)
        self._known.nominator.forget_evictions(pod.uid)
        self._known.status.explanations.pod_gone(pod.uid)
        self._known.status.writes.seqs.pop(AggregateRef("eviction", pod.uid), None)
        del self._known.pods[pod.uid]
        if pod.seq > self._known.log.position:
            self._known.deleted.seqs[pod.uid] = pod.seq
        self._known.deleted.prune(self._known.log.position)

    def release_due(self) -> int:
        """Put the releases of `to_release` into the outbox. They are of pods that are deleted, finished, on a deleted
        node, or could not be bound. Return the number of releases.
        """
        released = 0
        for uid, (reason, trigger) in self.to_release.items():
            pod = self._known.pods[uid]
            if pod.phase is not Phase.PLACED:
                continue
            pod.phase = Phase.RELEASING
            pod.work_node = pod.node
            self.outbox.put(
                Release(
                    uid=uid,
                    node=pod.node,
                    namespace=pod.namespace,
                    name=pod.name,
                    reason=reason,
                    trigger=trigger,
                    traceparent=pod.traceparent,
                    tracestate=pod.tracestate,
                )
            )
            released += 1
        self.to_release.clear()
        return released

    def resize_due(self) -> int:
        """Put the new amounts of the pods of `to_resize` into the outbox, so that the log tells how they count. A pod
        that uses a Reservation takes no more from it than it requests. A pod waits while the ledger of its node is
        ahead of the folded log: the log may have told amounts that its object asks for now, before this scheduler reads
        the object. Return the number of these decisions.
        """
        resized, position, due = 0, self._known.log.position, tuple(self.to_resize)
        self.to_resize.clear()
        for uid in due:
            pod = self._known.pods[uid]
            if pod.node and self.ledgers.seq(pod.node) > position:
                self.to_resize[uid] = None
                continue
            info = self.ledgers.resized(pod.node, uid) if pod.node else None
            if pod.phase is not Phase.PLACED or pod.sort is None or uid in self.to_release or info is None:
                continue  # `reconcile` looks again at the pod once a decision about it is stored or undone
            used = info.allocation.reservation
            if used is not None:
                allocation = msgspec.structs.replace(info.allocation, reservation=used.within(info.requests))
                info = msgspec.structs.replace(info, allocation=allocation)
            # The same object may be told twice, with other things that the pod holds: each time, the ids are others.
            trigger = f"{pod.spec_event}/{pod.seq}/{self.ledgers.seq(pod.node)}"
            self.outbox.put(self._reallocated(info, pod.node, RESIZED, trigger))
            resized += 1
        return resized
