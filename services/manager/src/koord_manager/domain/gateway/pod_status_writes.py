"""What `kubectl describe pod` shows of scheduling: the PodScheduled condition, the nominated node, and events.

source    kube-scheduler's own wording; issue text ("conditions and events as kubectl users expect")
"""

import hashlib
from typing import Final, NamedTuple

from koordcore.protocol.objects import Pod

from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.requests import STRATEGIC_PATCH, Json, Request

SCHEDULER: Final = "koord-scheduler"
MANAGER: Final = "koord-manager"
MOST_MESSAGE: Final = 1024
"""An event's message is cut to this many characters by its API."""


class Involved(NamedTuple):
    """The object that an event is about."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str


class KubernetesEvent(NamedTuple):
    """A Kubernetes event to be recorded. type: "Normal" or "Warning"."""

    involved: Involved
    reason: str
    message: str
    type: str = "Normal"
    component: str = SCHEDULER

    @property
    def name(self) -> str:
        """The object's name: the same word about the same object has the same one, so it is counted, not repeated."""
        said = "\n".join((self.involved.uid, self.reason, self.message, self.component))
        return f"{self.involved.name[:220]}.{hashlib.blake2b(said.encode(), digest_size=8).hexdigest()}"


def about_pod(uid: str, namespace: str, name: str) -> Involved:
    """A pod as the subject of a word."""
    return Involved("Pod", "v1", namespace, name, uid)


def scheduled(uid: str, namespace: str, name: str, node: str) -> KubernetesEvent:
    """The pod was bound."""
    return KubernetesEvent(
        about_pod(uid, namespace, name), "Scheduled", f"Successfully assigned {namespace}/{name} to {node}"
    )


def failed_scheduling(uid: str, namespace: str, name: str, message: str) -> KubernetesEvent:
    """No node was feasible, or the API server refused the one that was chosen."""
    return KubernetesEvent(about_pod(uid, namespace, name), "FailedScheduling", message[:MOST_MESSAGE], "Warning")


def preempted(uid: str, namespace: str, name: str, message: str) -> KubernetesEvent:
    """The pod has to make room."""
    return KubernetesEvent(about_pod(uid, namespace, name), "Preempted", message[:MOST_MESSAGE])


def event_collection(namespace: str) -> str:
    """Where events of a namespace are; those about cluster-scoped objects are in `default`."""
    return f"/api/v1/namespaces/{namespace or 'default'}/events"


def event_creation(word: KubernetesEvent, now: str, instance: str) -> Request:
    """The first time a word is said. now: RFC 3339 of whole seconds."""
    involved = word.involved
    namespace = involved.namespace or "default"
    body: Json = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": word.name, "namespace": namespace},
        "involvedObject": {
            "kind": involved.kind,
            "apiVersion": involved.api_version,
            "namespace": involved.namespace,
            "name": involved.name,
            "uid": involved.uid,
        },
        "reason": word.reason,
        "message": word.message,
        "type": word.type,
        "source": {"component": word.component},
        "reportingComponent": word.component,
        "reportingInstance": instance,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    return Request("event", "POST", event_collection(namespace), body)


def event_repetition(word: KubernetesEvent, now: str, count: int) -> Request:
    """The word is said again: one object, counted."""
    body: Json = {"count": count, "lastTimestamp": now}
    path = f"{event_collection(word.involved.namespace)}/{word.name}"
    return Request("event", "PATCH", path, body, STRATEGIC_PATCH)


def unschedulable_condition(uid: str, pod: Pod, message: str, now: str, nominated: str) -> Request:
    """The pod's status says that it cannot be scheduled, why, and which node it is nominated to ("" none)."""
    was_false = any(item.type == "PodScheduled" and item.status == "False" for item in pod.status.conditions)
    condition: Json = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    if not was_false:
        condition["lastTransitionTime"] = now
    status: Json = {"conditions": [condition]}
    if nominated:
        status["nominatedNodeName"] = nominated
    meta = pod.metadata
    body: Json = {"metadata": {"uid": uid}, "status": status}
    return Request("pod-condition", "PATCH", f"{pod_path(meta.namespace, meta.name)}/status", body, STRATEGIC_PATCH)


def nominated_node(uid: str, pod: Pod, node: str) -> Request:
    """The pod's status names the node that it is nominated to; "" clears it."""
    meta = pod.metadata
    body: Json = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}
    return Request("pod-nominated", "PATCH", f"{pod_path(meta.namespace, meta.name)}/status", body, STRATEGIC_PATCH)


def disruption_target(uid: str, namespace: str, name: str, message: str, now: str) -> Request:
    """The victim's status says that it is about to be deleted for another pod."""
    condition: Json = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": message,
        "lastTransitionTime": now,
    }
    body: Json = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    return Request("pod-condition", "PATCH", f"{pod_path(namespace, name)}/status", body, STRATEGIC_PATCH)
