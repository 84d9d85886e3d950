"""How far the descheduler has emptied a node or a group of nodes. The events are in `koordcore.events.drain`."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from koordcore.events import drain as drain_events
from koordcore.events.drain import DrainedPod
from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.fold import AggregateState, Evolve, dropped


class DrainState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of the drain of one node, which moves its pods to other nodes. Times are RFC 3339; "" means never."""

    object_uid: str = ""  # Uid of the DrainNode
    node: str = ""
    phase: str = "Pending"  # Pending, Running, Complete or Aborted
    message: str = ""  # Why the drain is in this phase; "" for no reason
    mode: str = ""  # How the node was closed: "Taint", "Label", or "" while it is open
    labels: dict[str, str] = {}  # Labels that mode "Label" set on the node
    pods: dict[str, DrainedPod] = {}  # Uid of a pod to migrate -> its progress
    conditions: dict[str, str] = {}  # Type of a condition of the DrainNode that is true -> time at which it became true
    started_at: str = ""  # When the node was closed
    confirmed_at: str = ""  # When the drain was confirmed, so that pods may be evicted
    ended_at: str = ""  # When the phase became Complete or Aborted


class DrainGroupState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a DrainNodeGroup, whose nodes are planned and drained one after the other."""

    object_uid: str = ""  # Uid of the DrainNodeGroup
    phase: str = "Pending"  # Pending, Planning, Waiting, Running, Succeeded, Failed or Aborted
    message: str = ""  # Why the group is in this phase; "" for no reason
    nodes: list[str] = []
    planning: str = ""  # Node for whose pods places on other nodes are being searched; "" if there is none
    available: list[str] = []  # Nodes whose pods all have a place elsewhere, in the order in which they were planned
    # Node that cannot be drained, such as one with a pod that has no place elsewhere -> reason.
    unavailable: dict[str, str] = {}
    confirmed: list[str] = []  # Nodes whose drains are confirmed
    running: int = 0  # Number of confirmed drains that have not ended
    succeeded: int = 0  # Number of drains that ended without a failed pod
    failed: int = 0  # Number of drains that ended with a failed pod, or that were aborted
    results: dict[str, str] = {}  # Confirmed node whose drain ended -> why the drain failed; "" if it succeeded
    changed_at: str = ""  # RFC 3339 time of the last change of the phase


def _waiting(_: DrainState | None, event: drain_events.DrainWaiting, at: StoredEvent) -> DrainState:
    return DrainState(seq=at.seq, object_uid=event.object_uid, node=event.node, message=event.message)


def _started(_: DrainState | None, event: drain_events.DrainStarted, at: StoredEvent) -> DrainState:
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
    state: DrainState | None, event: drain_events.DrainPodsChanged | drain_events.DrainCompleted, at: StoredEvent
) -> DrainState | None:
    if state is None:
        return None
    return replace(
        state,
        seq=at.seq,
        pods=_with(state.pods, event.pods),
        conditions={type_: state.conditions.get(type_, at.occurred_at) for type_ in event.conditions},
    )


def _completed(state: DrainState | None, event: drain_events.DrainCompleted, at: StoredEvent) -> DrainState | None:
    changed = _pods_changed(state, event, at)
    return changed and replace(changed, phase="Complete", message="", ended_at=at.occurred_at)


def _confirmed(state: DrainState | None, _: drain_events.DrainConfirmed, at: StoredEvent) -> DrainState | None:
    return state and replace(state, seq=at.seq, confirmed_at=at.occurred_at)


def _aborted(state: DrainState | None, event: drain_events.DrainAborted, at: StoredEvent) -> DrainState:
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


def _with(
    pods: dict[str, drain_events.DrainedPod], changed: Iterable[drain_events.DrainedPod]
) -> dict[str, drain_events.DrainedPod]:
    return {**pods, **{pod.uid: pod for pod in changed}}


def _group_started(
    _: DrainGroupState | None, event: drain_events.DrainGroupStarted, at: StoredEvent
) -> DrainGroupState:
    return DrainGroupState(
        seq=at.seq, object_uid=event.object_uid, phase="Planning", nodes=event.nodes, changed_at=at.occurred_at
    )


def _group_planned(
    state: DrainGroupState | None, event: drain_events.DrainGroupNodePlanned, at: StoredEvent
) -> DrainGroupState | None:
    return state and replace(state, seq=at.seq, planning=event.node)


def _group_judged(
    state: DrainGroupState | None, event: drain_events.DrainGroupNodeJudged, at: StoredEvent
) -> DrainGroupState | None:
    if state is None:
        return None
    if event.available:
        return replace(state, seq=at.seq, planning="", available=[*state.available, event.node])
    return replace(
        state,
        seq=at.seq,
        planning="",
        available=[node for node in state.available if node != event.node],
        unavailable={**state.unavailable, event.node: event.reason},
    )


def _group_changed(
    state: DrainGroupState | None, event: drain_events.DrainGroupChanged, at: StoredEvent
) -> DrainGroupState:
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
        results=event.results,
        changed_at=before.changed_at if before.phase == event.phase else at.occurred_at,
    )


OF_DRAINS: Final[dict[type[Event], Evolve]] = {
    drain_events.DrainWaiting: _waiting,
    drain_events.DrainStarted: _started,
    drain_events.DrainPodsChanged: _pods_changed,
    drain_events.DrainConfirmed: _confirmed,
    drain_events.DrainCompleted: _completed,
    drain_events.DrainAborted: _aborted,
    drain_events.DrainForgotten: dropped,
    drain_events.DrainGroupStarted: _group_started,
    drain_events.DrainGroupNodePlanned: _group_planned,
    drain_events.DrainGroupNodeJudged: _group_judged,
    drain_events.DrainGroupChanged: _group_changed,
    drain_events.DrainGroupForgotten: dropped,
}
