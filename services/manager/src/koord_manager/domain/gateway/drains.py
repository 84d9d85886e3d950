"""DrainNodes and DrainNodeGroups at an API server: their status, and an event for each new phase and true condition.

Source:
    descheduler spec, 11.1, 13
"""

from collections import Counter
from typing import Any, Final, NamedTuple, TypeAlias

from koordcore.events.drain import DrainedPod
from koordcore.events.envelope import AggregateRef, name_from_token, name_token
from koordcore.state import ClusterState
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.stories.pending import MOST_MESSAGE

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.pod_status_writes import (
    DESCHEDULER,
    KOORDINATOR,
    Involved,
    KubernetesEvent,
)

Json: TypeAlias = dict[str, Any]

DRAINS: Final = "drainnodes"
GROUPS: Final = "drainnodegroups"
DRAIN_KINDS: Final = {DRAINS: "drain", GROUPS: "draingroup"}
"""Plural of a kind -> kind of the aggregate with its facts."""
_UID_PART: Final = 8
_WITH_RESERVATION: Final = frozenset({"Ready", "Available", "Unavailable", "Migrating", "Succeed", "Failed"})
_WITH_JOB: Final = frozenset({"Migrating", "Succeed", "Failed"})


def drain_ref(plural: str, name: str) -> AggregateRef:
    return AggregateRef(DRAIN_KINDS[plural], name_token(name))


def drain_status(name: str, state: DrainState) -> Json:
    return {
        "phase": state.phase,
        "message": state.message,
        "podMigrations": [_pod(name, pod) for pod in state.pods.values()],
        "podMigrationSummary": dict(sorted(Counter(pod.phase for pod in state.pods.values()).items())),
        "conditions": [
            {"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": since}
            for type_, since in state.conditions.items()
        ],
    }


def group_status(state: DrainGroupState) -> Json:
    return {
        "phase": state.phase,
        "message": state.message,
        "totalCount": len(state.nodes),
        "unavailableCount": len(state.unavailable),
        "availableCount": len(state.available),
        "runningCount": state.running,
        "succeededCount": state.succeeded,
        "failedCount": state.failed,
    }


def with_drain_status(folded: ClusterState, plural: str, document: Json) -> Json:
    meta: Json = document["metadata"]
    status = status_of_drain(folded, plural, str(meta.get("name", "")), str(meta.get("uid", "")))
    return document if status is None else {**document, "status": status}


def status_of_drain(folded: ClusterState, plural: str, name: str, uid: str) -> Json | None:
    state = folded.get(drain_ref(plural, name))
    if isinstance(state, DrainState) and state.object_uid == uid:
        return drain_status(name, state)
    if isinstance(state, DrainGroupState) and state.object_uid == uid:
        return group_status(state)
    return None


def _pod(drain: str, pod: DrainedPod) -> Json:
    part = f"{drain}-{pod.uid[:_UID_PART]}"
    found: Json = {
        "uid": pod.uid,
        "namespace": pod.namespace,
        "podName": pod.name,
        "phase": pod.phase,
        "startTimestamp": pod.since,
        "chartedAfterDrainNodeConfirmed": pod.after_confirmed,
    }
    if pod.phase in _WITH_RESERVATION:
        found["reservationName"] = part
    if pod.target:
        found["targetNode"] = pod.target
    if pod.phase in _WITH_JOB:
        found["podMigrationJobName"] = part
    return found


_KINDS: Final = {"drain": "DrainNode", "draingroup": "DrainNodeGroup"}
_GOOD: Final = "OnceAvailable"
"""The only condition of a DrainNode that is not bad."""


class _Known(NamedTuple):
    uid: str = ""
    phase: str = ""
    bad: frozenset[str] = frozenset()


class DrainEvents:
    """Knows which phase and conditions of each drain and each group of drains already have a Kubernetes event.

    Args:
        view: The folded cluster. An earlier leader has recorded the events about its drains.
    """

    def __init__(self, view: ManagerView | None = None) -> None:
        self._known: dict[AggregateRef, _Known] = {}
        if view is not None:
            for kind, state_type in (("drain", DrainState), ("draingroup", DrainGroupState)):
                for id_, state in view.state.of_kind(state_type).items():
                    self._known[AggregateRef(kind, id_)] = _known_of(state)

    def changed(self, view: ManagerView, ref: AggregateRef) -> list[KubernetesEvent]:
        """Return the Kubernetes events about what changed in a drain or group since the last call for it.

        They are a warning for each bad condition that became true, and a normal event for a new phase.
        """
        state = view.state.get(ref)
        if not isinstance(state, DrainState | DrainGroupState) or not state.object_uid:
            self._known.pop(ref, None)
            return []
        now, before = _known_of(state), self._known.get(ref, _Known())
        self._known[ref] = now
        if before.uid != now.uid:
            before = _Known()
        # events about objects without a namespace are in the namespace "default"
        about = Involved(_KINDS[ref.kind], KOORDINATOR, "default", name_from_token(ref.id), now.uid)
        events = [
            KubernetesEvent(about, type_, f"the condition {type_} became true", "Warning", DESCHEDULER)
            for type_ in sorted(now.bad - before.bad)
        ]
        if now.phase != before.phase:
            message = state.message or f"the phase is {now.phase}"
            events.append(KubernetesEvent(about, now.phase, message[:MOST_MESSAGE], "Normal", DESCHEDULER))
        return events


def _known_of(state: DrainState | DrainGroupState) -> _Known:
    conditions = state.conditions if isinstance(state, DrainState) else ()
    return _Known(state.object_uid, state.phase, frozenset(conditions) - {_GOOD})
