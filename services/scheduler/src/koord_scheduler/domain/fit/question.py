"""Checks a capacity question, and makes its pods."""

from collections.abc import Iterator
from itertools import count
from typing import Any, Final, cast

import msgspec
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.crd import accepted_kinds
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.requests.fit import FitRequest, PodSet
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT

from koord_scheduler.domain.loop.state.state import SchedulerState

MOST_PODS: Final = 10_000
"""Maximum number of pods in one question, and of replicas that a search tries."""


def check_question(state: SchedulerState, request: FitRequest) -> None:
    """Check that a capacity question can be answered on this state.

    Raises:
        InvalidInput: The question cannot be answered. The error names the field.
    """
    if not request.pods and not request.objects:
        raise InvalidInput("a list of at least one set of pods, unless objects are placed", [], "pods")
    total = 0
    for index, pod_set in enumerate(request.pods):
        _check_set(state, pod_set, f"pods[{index}]")
        total += pod_set.replicas
    if total > MOST_PODS:
        raise InvalidInput(f"at most {MOST_PODS} replicas together", total, "pods")
    if request.finds_most and len(request.pods) != 1:
        raise InvalidInput("a list of exactly one set of pods with finds_most", len(request.pods), "pods")
    for index, uid in enumerate(request.leaving):
        pod = state.pods.get(uid)
        if pod is None or pod.pod is None:
            raise InvalidInput("the uid of a pod", uid, f"leaving[{index}]")


def _check_set(state: SchedulerState, pod_set: PodSet, path: str) -> None:
    if not 1 <= pod_set.replicas <= MOST_PODS:
        raise InvalidInput(f"a number from 1 to {MOST_PODS}", pod_set.replicas, f"{path}.replicas")
    pod, path = pod_set.pod, f"{path}.pod"
    if not pod.metadata.name:
        raise InvalidInput("a name", "", f"{path}.metadata.name")
    if not pod.metadata.namespace:
        raise InvalidInput("a namespace", "", f"{path}.metadata.namespace")
    if pod.metadata.uid in state.pods:
        raise InvalidInput("a uid that no pod has", pod.metadata.uid, f"{path}.metadata.uid")
    if not pod.spec.containers:
        raise InvalidInput("a list of at least one container", [], f"{path}.spec.containers")
    if pod.spec.node_name:
        raise InvalidInput(
            "absent, because the scheduler chooses the node", pod.spec.node_name, f"{path}.spec.nodeName"
        )
    if state.frameworks.of(pod) is None:
        raise InvalidInput("a name that a profile serves", pod.spec.scheduler_name, f"{path}.spec.schedulerName")
    try:
        requests = pod_requests(state.cluster.pod_classes.read(pod).pod)
    except InvalidInput as error:
        raise error.at(path) from None
    for resource, amount in requests.items():
        if amount > MAX_AMOUNT:
            raise InvalidInput(f"at most {MAX_AMOUNT}", amount, f"{path}.resources[{resource}]")


def replicas_of(pod_set: PodSet) -> Iterator[Pod]:
    """Yield the pods of a set, which differ only in name and uid. The caller takes as many as it needs.

    The iterator has no end. A number is appended to name and uid: `web-0`, `web-1`, ... A set with one replica yields
    the pod with its own name and uid first, then the numbered ones. If the pod has no uid, `namespace/name` is its uid.
    """
    pod = pod_set.pod
    meta = pod.metadata
    uid = meta.uid or f"{meta.namespace}/{meta.name}"
    if pod_set.replicas == 1:
        yield msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, uid=uid))
    for number in count():
        numbered = msgspec.structs.replace(meta, name=f"{meta.name}-{number}", uid=f"{uid}-{number}")
        yield msgspec.structs.replace(pod, metadata=numbered)


def custom_object(document: dict[str, Any], path: str) -> tuple[AggregateRef, CustomObjectObserved]:
    """Return the aggregate and the event of a custom resource in a question, as if the log had stored it.

    Args:
        path: Its path in the question, for errors.

    Raises:
        InvalidInput: The kind is unknown, or the object has no name.
    """
    kind, metadata = document.get("kind"), document.get("metadata")
    resource = next((each for each in accepted_kinds() if each.stored and each.kind == kind), None)
    if resource is None:
        raise InvalidInput("the kind of a custom resource", kind, f"{path}.kind")
    names = cast("dict[str, object]", metadata) if isinstance(metadata, dict) else {}
    name = _text(names, "name", path)
    namespace = _text(names, "namespace", path) if resource.scope == "Namespaced" else ""
    return custom_ref(resource.plural, namespace, name), CustomObjectObserved(object=document)


def _text(metadata: dict[str, object], field: str, path: str) -> str:
    value = metadata.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"a {field}", value, f"{path}.metadata.{field}")
    return value
