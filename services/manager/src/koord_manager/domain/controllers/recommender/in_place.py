"""Resize running pods in place, as far as the API server and the kubelet can.

The request is a fact (`PodResizeRequested`), which the gateway carries out. The API server answers it, and conditions
of the pod say what the kubelet makes of it. What cannot be resized in place has to be replaced.

Source: reality, 5.8; https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/; the times
are those of the Vertical Pod Autoscaler (mode InPlaceOrRecreate).
"""

from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import PodResizeRequested, ResizedContainer
from koordcore.protocol.objects import Pod, PodCondition
from koordcore.protocol.qos import QosClass, kube_qos, qos
from koordcore.state.aggregates import PodSpecState
from koordcore.values.allocation import Allocation
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_amounts

INITIATOR: Final = "recommender"
RESIZE_PENDING: Final = "PodResizePending"
RESIZE_IN_PROGRESS: Final = "PodResizeInProgress"
INFEASIBLE: Final = "Infeasible"
DEFERRED_SECONDS: Final = 300
"""Time for which a kubelet may defer a resize before the pod is replaced. Also the time for which a pod may not show an
accepted resize before another one may be requested.
"""
IN_PROGRESS_SECONDS: Final = 3600
AGAIN_SECONDS: Final = 12 * 3600
"""Time after which a resize that the API server refused may be requested again, if the pod cannot be replaced."""
EXCLUSIVE: Final = (QosClass.LSE, QosClass.LSR)


class Progress(NamedTuple):
    """How far the last resize of a pod is. Neither: there is none, or it is done."""

    is_waiting: bool = False
    failure: str = ""  # Why the pod has to be replaced instead; "" if it need not


def progress_of(spec: PodSpecState, now: datetime) -> Progress:
    resize = spec.resize
    if resize is None:
        return Progress()
    if not resize.answered_at:
        return Progress(is_waiting=True)
    age = (now - datetime.fromisoformat(resize.answered_at)).total_seconds()
    if resize.failure:
        return Progress() if age >= AGAIN_SECONDS else Progress(failure=f"the API server refused it: {resize.failure}")
    is_seen = all(_has(spec.object, wanted) for wanted in resize.containers)
    if not is_seen and age < DEFERRED_SECONDS:
        return Progress(is_waiting=True)  # the conditions are those of an earlier resize
    conditions = {condition.type: condition for condition in spec.object.status.conditions}
    pending, running = conditions.get(RESIZE_PENDING), conditions.get(RESIZE_IN_PROGRESS)
    if pending is not None and pending.status == str(True):
        if pending.reason == INFEASIBLE:
            return Progress(failure="it does not fit on the node")
        return _within(DEFERRED_SECONDS, pending, age, now, f"the kubelet has deferred it for {DEFERRED_SECONDS} s")
    if running is not None and running.status == str(True):
        return _within(IN_PROGRESS_SECONDS, running, age, now, f"it has taken more than {IN_PROGRESS_SECONDS} s")
    return Progress()


def _within(seconds: float, condition: PodCondition, age: float, now: datetime, failure: str) -> Progress:
    since = condition.last_transition_time
    lasted = (now - datetime.fromisoformat(since)).total_seconds() if since else age
    return Progress(is_waiting=True) if lasted < seconds else Progress(failure=failure)


def _has(pod: Pod, wanted: ResizedContainer) -> bool:
    """Whether the spec of the pod has the requested resources."""
    for container in pod.spec.containers:
        if container.name == wanted.name:
            try:
                present, asked = parse_amounts(container.resources.requests), parse_amounts(wanted.requests)
            except InvalidInput:
                return False
            return all(present.get(name) == amount for name, amount in asked.items())
    return False


def is_another_resize(spec: PodSpecState, containers: list[ResizedContainer]) -> bool:
    """Whether the API server accepted the last resize, and the pod does not ask for these requests yet.

    So the kubelet may carry out this one even if it did not carry out the last.
    """
    is_accepted = spec.resize is not None and not spec.resize.failure
    return is_accepted and not all(_has(spec.object, wanted) for wanted in containers)


def why_not_in_place(pod: Pod, allocation: Allocation, containers: list[ResizedContainer]) -> str:
    """Return why a pod cannot be resized; "" if it can.

    CPUs and NUMA zones that the pod owns do not follow a resize, and its Kubernetes QoS class must stay.
    """
    if pod.status.phase != "Running":
        return "the pod does not run"
    if qos(pod) in EXCLUSIVE or allocation.cpuset or allocation.zones:
        return "the pod owns CPUs or has its resources in NUMA zones"
    try:
        before, after = kube_qos(pod), kube_qos(_resized(pod, containers))
    except InvalidInput as error:
        return str(error)
    return "" if before == after else f"its QoS class would change from {before} to {after}"


def _resized(pod: Pod, containers: list[ResizedContainer]) -> Pod:
    """The pod with other resources, and without its QoS class in the status."""
    replace, wanted = msgspec.structs.replace, {each.name: each for each in containers}
    changed = [
        container
        if (new := wanted.get(container.name)) is None
        else replace(
            container,
            resources=replace(
                container.resources,
                requests={**container.resources.requests, **new.requests},
                limits={**container.resources.limits, **new.limits},
            ),
        )
        for container in pod.spec.containers
    ]
    return replace(pod, spec=replace(pod.spec, containers=changed), status=replace(pod.status, qos_class=""))


def resize_draft(uid: str, spec: PodSpecState, containers: list[ResizedContainer], why: str) -> Draft:
    event = PodResizeRequested(initiator=INITIATOR, containers=containers, message=why)
    return Draft(AggregateRef("podspec", uid), event, spec.seq)
