"""Who may have better luck now: waiting pods that the events since the last look may help.

source    scheduler-core spec, 2
"""

from typing import Final

import numpy as np

from koord_scheduler.domain.columns.node_columns import Rows, row_list
from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.state.state import SchedulerState

_WOKEN_OTHERWISE: Final = frozenset({"ElasticQuota", "Coscheduling", "DynamicResources", "SchedulingHint"})
"""Built-in plugins whose refusals nothing on a node changes: quotas and gangs call their pods, the others' stand."""


def room_appeared(state: SchedulerState, node: str, trigger: str) -> None:
    """Something on the node may help a waiting pod. trigger: id of the event behind it"""
    row = state.nodes.row(node)
    if row is not None:
        state.helped[row] = None
        state.help_trigger = trigger


def room_appeared_anywhere(state: SchedulerState, trigger: str) -> None:
    """Something may help a waiting pod, on whichever node. trigger: id of the event behind it"""
    state.helped.update(dict.fromkeys(row_list(np.flatnonzero(state.nodes.alive))))
    state.help_trigger = trigger


def wake_activated(state: SchedulerState, trigger: str) -> None:
    """Attempt the pods that facts have made worth it (`Cluster.activate`)."""
    state.queue.activate(state.cluster.take_activated(), trigger)


def wake(state: SchedulerState) -> int:
    """Wake the waiting pods that the events folded since the last call may help; returns how many."""
    state.cluster.images.settle()
    wake_activated(state, state.help_trigger)
    woken = _wake_blocked(state)
    woken += _wake_coupled(state)
    if not state.helped:
        return woken
    rows = np.array(sorted(state.helped), np.intp)
    state.helped.clear()
    names = state.nodes.names
    nominated = [uid for row in row_list(rows) for uid in state.nominations.on(names[row])]
    for uid in nominated:
        if state.queue.get(uid) is not None:
            state.queue.wake_pod(uid, state.help_trigger)

    refused = state.queue.refused_by_others(_WOKEN_OTHERWISE) if state.frameworks.packages else []
    for uid in refused:
        state.queue.wake_pod(uid, state.help_trigger)

    def fits(subject: Subject, rows: Rows) -> bool:
        return state.frameworks.engine_of(subject).may_suit(subject, rows)

    return woken + len(refused) + state.queue.wake(rows, fits, state.help_trigger)


def _wake_blocked(state: SchedulerState) -> int:
    """The first pod of each quota that would be admitted now."""
    if state.quota_moves_seen == state.cluster.quota_moves:
        return 0
    state.quota_moves_seen = state.cluster.quota_moves
    woken = 0
    for _, uid in state.queue.blocked("ElasticQuota"):
        known = state.cluster.quotas.pods.get(uid)
        if known is None or state.cluster.quotas.admit(known.facts).admitted:
            state.queue.wake_pod(uid, state.help_trigger or state.pods[uid].trigger)
            woken += 1
    return woken


def _wake_coupled(state: SchedulerState) -> int:
    """Pods whose constraints look at pods elsewhere: any pod that came or went may have helped them."""
    moves = state.cluster.population.moves + state.cluster.volumes.changes
    if state.population_moves_seen == moves:
        return 0
    state.population_moves_seen = moves
    woken = 0
    for subject in state.queue.waiting_subjects():
        engine = state.frameworks.engine_of(subject)
        if engine.judges(subject).filters and engine.has_room(subject):
            state.queue.wake_first(subject, state.help_trigger)
            woken += 1
    return woken
