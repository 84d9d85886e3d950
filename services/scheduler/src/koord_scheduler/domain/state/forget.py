"""Assumptions taken back: everything is as if it had not been decided, and whoever lost a node with it is told.

source    scheduler-core spec, 1 (step 13), 8.8; event-bus spec, 4.3
"""

from collections.abc import Iterable
from typing import Final

from koord_scheduler.domain.commit.work import Placement, Work
from koord_scheduler.domain.nodes.ledger import Source
from koord_scheduler.domain.pods.record import Phase, PodRecord
from koord_scheduler.domain.queue.scheduling_queue import Block
from koord_scheduler.domain.state.queueing_hints import room_appeared
from koord_scheduler.domain.state.reconcile import settle
from koord_scheduler.domain.state.state import SchedulerState

_GANGS: Final = "Coscheduling"


def take_back(state: SchedulerState, works: Iterable[Work]) -> None:
    """Undo the assumptions behind work that will not be appended, and draw the consequences anew."""
    for work in works:
        pod = state.pods.get(work.uid)
        if pod is None:
            continue
        if isinstance(work, Placement):
            _unassume(state, pod, work)
        pod.work_node = ""
        pod.phase = Phase.OTHERS
        settle(state, pod, work.trigger)
        if isinstance(work, Placement) and state.queue.is_in_flight(pod.uid):
            state.queue.retry_now(pod.uid)


def recheck_node(state: SchedulerState, node: str, *, is_changed: bool = False) -> None:
    """Take back the placements waiting for a node that has become too full or different for them.

    Their expectations are only written down when they are taken from the outbox, so the log would not refuse them.
    """
    row = state.nodes.row(node)
    if row is None or is_changed or bool((state.nodes.free[:, row] < 0).any()):
        take_back(state, state.outbox.withdraw(node))


def facts_changed(state: SchedulerState, pod: PodRecord, trigger: str) -> None:
    """Settle the pod, or leave that to the log's answer when an append about it is in flight.

    Work that still waits in the outbox is withdrawn: it was decided on older facts, and its expectations are only
    written down when it is taken.
    """
    if not pod.work_node:
        settle(state, pod, trigger)
    else:
        take_back(state, state.outbox.withdraw_pod(pod.work_node, pod.uid))


def give_up(state: SchedulerState, pod: PodRecord, trigger: str) -> None:
    """A pod that waits with a node loses it through no fault of its own; one that does not wait is no matter."""
    if pod.uid in state.waiting:
        _lose(state, pod, trigger)
        if state.queue.is_in_flight(pod.uid):
            state.queue.retry_now(pod.uid)


def give_up_late(state: SchedulerState, pod: PodRecord, now: float) -> None:
    """A pod has waited in vain: it loses its node and backs off."""
    _lose(state, pod, pod.trigger)
    if state.queue.is_in_flight(pod.uid):
        state.queue.retry_later(pod.uid, now)


def reject(state: SchedulerState, uids: Iterable[str]) -> None:
    """These waiting pods lose their nodes with their gang, which has counted that already and will call them.

    source    scheduler-core spec, 8.8
    """
    for uid in uids:
        if uid in state.waiting:
            pod = state.pods[uid]
            _lose(state, pod, pod.trigger, _GANGS)
            if state.queue.is_in_flight(uid):
                gang = state.cluster.gangs.roster.gang_of(uid)
                state.queue.unschedulable(uid, state.queue.now, Block(_GANGS, "" if gang is None else gang.id))


def _lose(state: SchedulerState, pod: PodRecord, trigger: str, said_by: str = "") -> None:
    work = state.waiting.let_go(pod.uid)
    pod.work_node = ""
    pod.phase = Phase.OTHERS
    _unassume(state, pod, work, said_by)
    settle(state, pod, trigger)


def _unassume(state: SchedulerState, pod: PodRecord, work: Placement, said_by: str = "") -> None:
    """The pod does not count on its node any more, for nobody; who loses a node with it does, too."""
    state.retracted += 1
    state.ledgers.drop(work.node, pod.uid, Source.ASSUMED)
    room_appeared(state, work.node, work.trigger)
    framework = state.frameworks.first if pod.framework is None else state.framework_of(pod)
    reject(state, framework.unreserve(pod, work.node, said_by=said_by))
