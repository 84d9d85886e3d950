"""Apply events of drains: how the descheduler empties nodes and groups of nodes."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from koordcore.events.descheduling.drain import (
    DrainAborted,
    DrainCompleted,
    DrainConfirmed,
    DrainedPod,
    DrainForgotten,
    DrainGroupChanged,
    DrainGroupForgotten,
    DrainGroupNodeJudged,
    DrainGroupNodePlanned,
    DrainGroupStarted,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.state.evolution.evolve import Evolve


def _waiting(_: DrainState | None, event: DrainWaiting, at: StoredEvent) -> DrainState:
    return DrainState(seq=at.seq, object_uid=event.object_uid, node=event.node, message=event.message)


def _started(_: DrainState | None, event: DrainStarted, at: StoredEvent) -> DrainState:
    return DrainState(
        seq=at.seq,
        object_uid=event.object_uid,
        node=event.node,
        phase="Running",
        mode=event.mode,
        labels=event.labels,
        pods={pod.uid: pod for pod in event.pods},
        conditions=dict.fromkeys(event.conditions, at.occurred_at),
        started_at=at.occurred_at,
    )


def _pods_changed(
    state: DrainState | None, event: DrainPodsChanged | DrainCompleted, at: StoredEvent
) -> DrainState | None:
    if state is None:
        return None
    return replace(
        state,
        seq=at.seq,
        pods=_with(state.pods, event.pods),
        conditions={type_: state.conditions.get(type_, at.occurred_at) for type_ in event.conditions},
    )


def _completed(state: DrainState | None, event: DrainCompleted, at: StoredEvent) -> DrainState | None:
    changed = _pods_changed(state, event, at)
    return changed and replace(changed, phase="Complete", message="", ended_at=at.occurred_at)


def _confirmed(state: DrainState | None, _: DrainConfirmed, at: StoredEvent) -> DrainState | None:
    return state and replace(state, seq=at.seq, confirmed_at=at.occurred_at)


def _aborted(state: DrainState | None, event: DrainAborted, at: StoredEvent) -> DrainState:
    before = state or DrainState(seq=at.seq)
    return replace(
        before,
        seq=at.seq,
        object_uid=event.object_uid or before.object_uid,
        node=event.node or before.node,
        phase="Aborted",
        message=event.reason,
        mode="",
        labels={},
        ended_at=at.occurred_at,
    )


def _with(pods: dict[str, DrainedPod], changed: Iterable[DrainedPod]) -> dict[str, DrainedPod]:
    return {**pods, **{pod.uid: pod for pod in changed}}


def _group_started(_: DrainGroupState | None, event: DrainGroupStarted, at: StoredEvent) -> DrainGroupState:
    return DrainGroupState(
        seq=at.seq, object_uid=event.object_uid, phase="Planning", nodes=event.nodes, changed_at=at.occurred_at
    )


def _group_planned(
    state: DrainGroupState | None, event: DrainGroupNodePlanned, at: StoredEvent
) -> DrainGroupState | None:
    return state and replace(state, seq=at.seq, planning=event.node)


def _group_judged(
    state: DrainGroupState | None, event: DrainGroupNodeJudged, at: StoredEvent
) -> DrainGroupState | None:
    if state is None:
        return None
    if event.available:
        return replace(state, seq=at.seq, planning="", available=[*state.available, event.node])
    return replace(state, seq=at.seq, planning="", unavailable={**state.unavailable, event.node: event.reason})


def _group_changed(state: DrainGroupState | None, event: DrainGroupChanged, at: StoredEvent) -> DrainGroupState:
    before = state if state is not None and state.object_uid == event.object_uid else DrainGroupState(seq=at.seq)
    return replace(
        before,
        seq=at.seq,
        object_uid=event.object_uid,
        phase=event.phase,
        message=event.message,
        confirmed=event.confirmed,
        running=event.running,
        succeeded=event.succeeded,
        failed=event.failed,
        changed_at=before.changed_at if before.phase == event.phase else at.occurred_at,
    )


OF_DRAINS: Final[dict[type[Event], Evolve]] = {
    DrainWaiting: _waiting,
    DrainStarted: _started,
    DrainPodsChanged: _pods_changed,
    DrainConfirmed: _confirmed,
    DrainCompleted: _completed,
    DrainAborted: _aborted,
    DrainForgotten: lambda _, __, at: DrainState(seq=at.seq),
    DrainGroupStarted: _group_started,
    DrainGroupNodePlanned: _group_planned,
    DrainGroupNodeJudged: _group_judged,
    DrainGroupChanged: _group_changed,
    DrainGroupForgotten: lambda _, __, at: DrainGroupState(seq=at.seq),
}
