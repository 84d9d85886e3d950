"""Render the status of DrainNodes and DrainNodeGroups, and write it to the API server.

Source:
    descheduler spec, 11.1
"""

from collections import Counter
from typing import Final

from koordcore.events.descheduling.drain import DrainedPod
from koordcore.events.envelope import AggregateRef, name_from_token, name_token
from koordcore.state.drains import DrainGroupState, DrainState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.requests import MERGE_PATCH, Json, Request

DRAINS: Final = "drainnodes"
GROUPS: Final = "drainnodegroups"
DRAIN_KINDS: Final = {DRAINS: "drain", GROUPS: "draingroup"}
"""Plural of a kind -> kind of the aggregate with its facts."""
_ROOT: Final = "/apis/scheduling.koordinator.sh/v1alpha1"
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


def with_drain_status(view: ManagerView, plural: str, document: Json) -> Json:
    """Return a DrainNode or DrainNodeGroup with the status of its facts; unchanged if it has none."""
    meta: Json = document["metadata"]
    status = _status(view, plural, str(meta.get("name", "")), str(meta.get("uid", "")))
    return document if status is None else {**document, "status": status}


def pending_drain(view: ManagerView, ref: AggregateRef) -> list[Request]:
    """Return the request that writes the status of a drain or a group to its object; empty if it is up to date.

    Args:
        view: The folded state of the cluster.
        ref: Aggregate of the drain or of the group.
    """
    plural = next(plural for plural, kind in DRAIN_KINDS.items() if kind == ref.kind)
    name = name_from_token(ref.id)
    stored = view.custom(plural, "", name)
    if stored is None or stored.object is None:
        return []
    uid = str(stored.object["metadata"].get("uid", ""))
    status = _status(view, plural, name, uid)
    present: Json = stored.object.get("status") or {}
    if status is None or all((present.get(key) or type(value)()) == value for key, value in status.items()):
        return []
    if "podMigrationSummary" in status:  # null removes a phase that no pod is in any more
        counts: Json = present.get("podMigrationSummary") or {}
        status = {**status, "podMigrationSummary": {**dict.fromkeys(counts), **status["podMigrationSummary"]}}
    body: Json = {"metadata": {"uid": uid}, "status": status}
    return [Request("drain-status", "PATCH", f"{_ROOT}/{plural}/{name}/status", body, MERGE_PATCH)]


def _status(view: ManagerView, plural: str, name: str, uid: str) -> Json | None:
    state = view.state.get(drain_ref(plural, name))
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
