"""Build the writes that `kubectl describe pod` shows: conditions, the nominated node, and Kubernetes events.

The reasons and messages are those of kube-scheduler.

Source:
    kube-scheduler's own wording; issue text ("conditions and events as kubectl users expect")
"""

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from koordcore.events.pod import UnhealthyDevice
from koordcore.protocol.objects import DISRUPTION_TARGET, POD_SCHEDULED, PREEMPTION_BY_SCHEDULER, Pod
from koordcore.stories.pending import MOST_MESSAGE
from koordcore.stories.pod import device_sentence

from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.genesis import EPOCH_CONFIG_MAP
from koord_manager.domain.gateway.requests import STRATEGIC_PATCH, Json, Request

SCHEDULER: Final = "koord-scheduler"
KOORDINATOR: Final = "scheduling.koordinator.sh/v1alpha1"
"""API version of Koordinator's objects."""
MANAGER: Final = "koord-manager"
DESCHEDULER: Final = "koord-descheduler"


class Involved(NamedTuple):
    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str


class KubernetesEvent(NamedTuple):
    involved: Involved
    reason: str  # Reason in one word, such as `FailedScheduling`
    message: str  # Sentence for the user
    type: str = "Normal"  # "Normal" or "Warning"
    component: str = SCHEDULER  # Name of the component that reports it
    recalled: bool = False  # Whether another leader may have recorded it already. Then it is not counted again.
    action: str = ""  # What the component does with the object, in one word; "" if nothing
    same_as: str = ""  # Text that equal events share, if it is not the whole message

    @property
    def name(self) -> str:
        """Name of the event object.

        Equal events have the same name, so a repeated event increases a count instead of creating an object.
        """
        identity = "\n".join((self.involved.uid, self.reason, self.same_as or self.message, self.component))
        return f"{self.involved.name[:220]}.{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}"


def about_pod(uid: str, namespace: str, name: str) -> Involved:
    return Involved("Pod", "v1", namespace, name, uid)


def scheduled(uid: str, namespace: str, name: str, node: str) -> KubernetesEvent:
    return KubernetesEvent(
        about_pod(uid, namespace, name), "Scheduled", f"Successfully assigned {namespace}/{name} to {node}"
    )


def failed_scheduling(uid: str, namespace: str, name: str, message: str, same_as: str = "") -> KubernetesEvent:
    """Return the Kubernetes event that no node was feasible, or that the API server refused the chosen node.

    `same_as`: as in `KubernetesEvent`.
    """
    about, reason = about_pod(uid, namespace, name), "FailedScheduling"
    return KubernetesEvent(about, reason, message[:MOST_MESSAGE], "Warning", same_as=same_as)


def preempted(uid: str, namespace: str, name: str, message: str) -> KubernetesEvent:
    return KubernetesEvent(about_pod(uid, namespace, name), "Preempted", message[:MOST_MESSAGE])


def device_health(
    uid: str, namespace: str, name: str, devices: Sequence[UnhealthyDevice], node: str
) -> KubernetesEvent:
    """Return the Kubernetes event that devices of the pod became unhealthy, or (no `devices`) are healthy again."""
    reason, type_ = ("DeviceUnhealthy", "Warning") if devices else ("DevicesHealthy", "Normal")
    message = device_sentence(devices, node)
    return KubernetesEvent(about_pod(uid, namespace, name), reason, message[:MOST_MESSAGE], type_)


def left_out(about: Involved, problem: str) -> KubernetesEvent:
    message = f"Koordstream leaves this object out: {problem}"
    return KubernetesEvent(about, "NotMirrored", message[:MOST_MESSAGE], "Warning", MANAGER)


def event_collection(namespace: str) -> str:
    """Return the path of the Kubernetes events of a namespace; an empty namespace stands for `default`."""
    return f"/api/v1/namespaces/{namespace or 'default'}/events"


def log_outdated(namespace: str, problem: str) -> KubernetesEvent:
    """Return the Kubernetes event that a manager gives up the lease, because the cluster has a newer log than its own.

    `namespace` is that of the ConfigMap with the cluster's epoch, `problem` names the two epochs.
    """
    involved = Involved("ConfigMap", "v1", namespace, EPOCH_CONFIG_MAP, "")
    return KubernetesEvent(involved, "LogOutdated", problem, "Warning", MANAGER)


def event_creation(event: KubernetesEvent, now: str, instance: str) -> Request:
    """Return the request that creates a Kubernetes event. `now`: RFC 3339 in whole seconds."""
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
        **({"action": event.action} if event.action else {}),
        "source": {"component": event.component},
        "reportingComponent": event.component,
        "reportingInstance": instance,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    return Request("event", "POST", event_collection(namespace), body)


def event_repetition(event: KubernetesEvent, now: str, count: int) -> Request:
    """Return the request that updates count and time (RFC 3339 in whole seconds) of a Kubernetes event that exists."""
    body: Json = {"count": count, "lastTimestamp": now}
    path = f"{event_collection(event.involved.namespace)}/{event.name}"
    return Request("event", "PATCH", path, body, STRATEGIC_PATCH)


def unschedulable_condition(uid: str, pod: Pod, reason: str, message: str, now: str, nominated: str) -> Request:
    """Return the request that sets the pod's condition PodScheduled to False.

    `nominated` is written as the nominated node as well, unless it is empty.
    """
    was_false = any(item.type == POD_SCHEDULED and item.status == "False" for item in pod.status.conditions)
    condition: Json = {"type": POD_SCHEDULED, "status": "False", "reason": reason, "message": message}
    if not was_false:
        condition["lastTransitionTime"] = now
    status: Json = {"conditions": [condition]}
    if nominated:
        status["nominatedNodeName"] = nominated
    meta = pod.metadata
    body: Json = {"metadata": {"uid": uid}, "status": status}
    return Request("pod-condition", "PATCH", f"{pod_path(meta.namespace, meta.name)}/status", body, STRATEGIC_PATCH)


def nominated_node(uid: str, pod: Pod, node: str) -> Request:
    """Return the request that sets the nominated node in the pod's status; an empty node clears it."""
    meta = pod.metadata
    body: Json = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}
    return Request("pod-nominated", "PATCH", f"{pod_path(meta.namespace, meta.name)}/status", body, STRATEGIC_PATCH)


def disruption_target(uid: str, namespace: str, name: str, message: str, now: str) -> Request:
    """Return the request that sets the condition DisruptionTarget of a pod before it is preempted."""
    condition: Json = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "message": message,
        "lastTransitionTime": now,
    }
    body: Json = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
    return Request("pod-condition", "PATCH", f"{pod_path(namespace, name)}/status", body, STRATEGIC_PATCH)
