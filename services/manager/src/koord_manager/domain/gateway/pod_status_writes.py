"""Writes for `kubectl describe pod`: the PodScheduled condition, the nominated node, and Kubernetes events.

Source:
    kube-scheduler's own wording; issue text ("conditions and events as kubectl users expect")
"""

import hashlib
from typing import Final, NamedTuple

from koordcore.protocol.objects import Pod

from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.requests import STRATEGIC_PATCH, Json, Request

SCHEDULER: Final = "koord-scheduler"
MANAGER: Final = "koord-manager"
MOST_MESSAGE: Final = 1024
"""Maximum length of an event's message in its API."""


class Involved(NamedTuple):
    """The object that an event is about."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str


class KubernetesEvent(NamedTuple):
    """A Kubernetes event to record; its type is "Normal" or "Warning"."""

    involved: Involved
    reason: str
    message: str
    type: str = "Normal"
    component: str = SCHEDULER

    @property
    def name(self) -> str:
        """Name of the object: equal for equal events, so that they are counted and not repeated."""
        identity = "\n".join((self.involved.uid, self.reason, self.message, self.component))
        return f"{self.involved.name[:220]}.{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}"


def about_pod(uid: str, namespace: str, name: str) -> Involved:
    """Return the reference of an event to a pod."""
    return Involved("Pod", "v1", namespace, name, uid)


def scheduled(uid: str, namespace: str, name: str, node: str) -> KubernetesEvent:
    """Return the event that the pod was bound."""
    return KubernetesEvent(
        about_pod(uid, namespace, name), "Scheduled", f"Successfully assigned {namespace}/{name} to {node}"
    )


def failed_scheduling(uid: str, namespace: str, name: str, message: str) -> KubernetesEvent:
    """Return the event that no node was feasible, or that the API server refused the chosen node."""
    return KubernetesEvent(about_pod(uid, namespace, name), "FailedScheduling", message[:MOST_MESSAGE], "Warning")


def preempted(uid: str, namespace: str, name: str, message: str) -> KubernetesEvent:
    """Return the event that the pod is preempted."""
    return KubernetesEvent(about_pod(uid, namespace, name), "Preempted", message[:MOST_MESSAGE])


def event_collection(namespace: str) -> str:
    """Return the collection of events of a namespace; `default` for cluster-scoped objects."""
    return f"/api/v1/namespaces/{namespace or 'default'}/events"


def event_creation(event: KubernetesEvent, now: str, instance: str) -> Request:
    """Return the request that creates an event; `now` is RFC 3339 in whole seconds."""
    involved = event.involved
    namespace = involved.namespace or "default"
    body: Json = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event.name, "namespace": namespace},
        "involvedObject": {
            "kind": involved.kind,
            "apiVersion": involved.api_version,
            "namespace": involved.namespace,
            "name": involved.name,
            "uid": involved.uid,
        },
        "reason": event.reason,
        "message": event.message,
        "type": event.type,
        "source": {"component": event.component},
        "reportingComponent": event.component,
        "reportingInstance": instance,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    return Request("event", "POST", event_collection(namespace), body)


def event_repetition(event: KubernetesEvent, now: str, count: int) -> Request:
    """Return the request that counts a repeated event."""
    body: Json = {"count": count, "lastTimestamp": now}
    path = f"{event_collection(event.involved.namespace)}/{event.name}"
    return Request("event", "PATCH", path, body, STRATEGIC_PATCH)


def unschedulable_condition(uid: str, pod: Pod, message: str, now: str, nominated: str) -> Request:
    """Return the status write that the pod cannot be scheduled, with the reason and the nominated node."""
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
    """Return the status write of the nominated node; empty to clear it."""
    meta = pod.metadata
    body: Json = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}
    return Request("pod-nominated", "PATCH", f"{pod_path(meta.namespace, meta.name)}/status", body, STRATEGIC_PATCH)


def disruption_target(uid: str, namespace: str, name: str, message: str, now: str) -> Request:
    """Return the status write that the pod is about to be deleted for another pod."""
    condition: Json = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": message,
        "lastTransitionTime": now,
    }
    body: Json = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    return Request("pod-condition", "PATCH", f"{pod_path(namespace, name)}/status", body, STRATEGIC_PATCH)
