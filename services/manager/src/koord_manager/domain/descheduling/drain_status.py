"""Render the status of DrainNodes and DrainNodeGroups.

Source:
    descheduler spec, 11.1
"""

from collections import Counter
from typing import Any, Final, TypeAlias

from koordcore.events.drain import DrainedPod
from koordcore.events.envelope import AggregateRef, name_token
from koordcore.state import ClusterState
from koordcore.state.drains import DrainGroupState, DrainState

Json: TypeAlias = dict[str, Any]

DRAINS: Final = "drainnodes"
GROUPS: Final = "drainnodegroups"
DRAIN_KINDS: Final = {DRAINS: "drain", GROUPS: "draingroup"}
"""Plural of a kind -> kind of the aggregate with its facts."""
_UID_PART: Final = 8
_WITH_RESERVATION: Final = frozenset({"Ready", "Available", "Unavailable", "Migrating", "Succeed", "Failed"})
_WITH_JOB: Final = frozenset({"Migrating", "Succeed", "Failed"})


def drain_ref(plural: str, name: str) -> AggregateRef:
    """Return the aggregate with the facts of a DrainNode or a DrainNodeGroup."""
    return AggregateRef(DRAIN_KINDS[plural], name_token(name))


def drain_status(name: str, state: DrainState) -> Json:
    """Return `status` of a DrainNode.

    Args:
        name: Name of the DrainNode.
        state: Its folded facts.
    """
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
    """Return `status` of a DrainNodeGroup from its folded facts."""
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
    """Return a DrainNode or DrainNodeGroup with the status that follows from its facts; unchanged without facts."""
    meta: Json = document["metadata"]
    status = status_of_drain(folded, plural, str(meta.get("name", "")), str(meta.get("uid", "")))
    return document if status is None else {**document, "status": status}


def status_of_drain(folded: ClusterState, plural: str, name: str, uid: str) -> Json | None:
    """Return the status of a DrainNode or DrainNodeGroup; None if there are no facts about the object with this uid."""
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
