"""Carry out recommendations: set the requests of new pods, and replace running pods with other requests.

Only prod pods with at least a day of history are changed. One pod at a time is resized in place (`in_place`), or
evicted; its successor is created with the recommended requests.

Source:
    manager spec, 15.7
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import PodEvictionRequested, ResizedContainer
from koordcore.events.recommendation import ContainerRecommendation
from koordcore.protocol import keys
from koordcore.protocol.objects import Container, Pod, pod_from_json
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.qos import kube_qos, qos
from koordcore.protocol.recommendations import ContainerPolicy, ControlledValues, UpdateMode, policy_of
from koordcore.state.aggregates import EvictionState, PodSpecState, PodState, RecommendationState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli, parse_value
from koordcore.values.resources import parse_amounts

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.decide import is_confident
from koord_manager.domain.controllers.recommender.in_place import (
    EXCLUSIVE,
    INITIATOR,
    Progress,
    is_another_resize,
    progress_of,
    resize_draft,
    why_not_in_place,
)
from koord_manager.domain.controllers.recommender.startup_boost import (
    Boosted,
    boost,
    boost_annotation,
    boost_is_over,
    boosted_containers,
    without_boost,
)
from koord_manager.domain.controllers.recommender.targets import Targets, Wanted, changing

_CPU: Final = "cpu"
_MEMORY: Final = "memory"
_RESIZABLE: Final = (_CPU, _MEMORY)
_CORE_MILLI: Final = 1000
REPLACING: Final = (UpdateMode.RECREATE, UpdateMode.AUTO, UpdateMode.IN_PLACE_OR_RECREATE)
LEAST_LIVE: Final = 2
SETTLED_SECONDS: Final = 12 * 3600
DRIFT: Final = 0.1
NOT_IN_PLACE: Final = "; not in place: "
BOOST_OVER: Final = "the pod has started"
RESIZED: Final = "the kubelet does not carry out its resize"


def apply_to_new_pod(
    view: ManagerView,
    targets: Targets,
    document: dict[str, Any],
    namespace: str,
    *,
    tells_usage: bool = False,
    boosts: bool = False,
) -> str | None:
    """Set the requests of a new pod to the recommended ones, in place, if the mode of its Recommendation permits it.

    Of several Recommendations that select the pod, the oldest whose mode is not Off applies. Only a prod pod is
    changed, and only by a Recommendation with at least a day of history. A request stays within its limit, unless the
    policy of the container also controls limits. Pods of the QoS classes LSE and LSR get whole cores. `tells_usage`
    adds the annotation `recommended-usage` for the scheduler, in every mode. `boosts` raises the CPU of containers
    whose policy has a start-up boost, unless that would change the Kubernetes QoS class: the API server would refuse to
    change it back.

    Return the name of the Recommendation that changed the pod, or None if nothing changed.
    """
    targets.refresh(view)
    try:
        pod = pod_from_json(document)
        pod.metadata.namespace = pod.metadata.namespace or namespace
        if priority_class(pod) is not PriorityBand.PROD:
            return None
        matching = targets.of(view, pod)
    except (codec.DecodeError, InvalidInput):
        return None  # what is wrong with the pod is for the validators to say
    told = _tell_usage(view, matching, document) if tells_usage else None
    return _set_requests(view, changing(matching), pod, document, boosts=boosts) or told


def _tell_usage(view: ManagerView, matching: Sequence[Wanted], document: dict[str, Any]) -> str | None:
    """Write the sum of the recommended requests to the annotation `recommended-usage`, if every container has one.

    A target of one resource only does not count. An existing annotation stays. Return the name of the Recommendation
    that was used, or None if nothing changed.
    """
    metadata: dict[str, Any] = document.setdefault("metadata", {})
    if keys.RECOMMENDED_USAGE in (metadata.get("annotations") or {}):
        return None
    containers: list[dict[str, Any]] = document["spec"].get("containers") or []
    names = [str(container.get("name", "")) for container in containers]
    for wanted in matching:
        state = view.state.of_kind(RecommendationState).get(wanted.id)
        if state is None or not is_confident(state):
            continue
        targets = {container.name: container.target for container in state.containers}
        if names and all(name in targets and targets[name].cpu_milli and targets[name].memory_bytes for name in names):
            cpu = sum(targets[name].cpu_milli for name in names)
            memory = sum(targets[name].memory_bytes for name in names)
            usage = codec.encode({_CPU: _text(_CPU, cpu), _MEMORY: _text(_MEMORY, memory)}).decode()
            metadata["annotations"] = {**(metadata.get("annotations") or {}), keys.RECOMMENDED_USAGE: usage}
            return wanted.name
    return None


def _set_requests(
    view: ManagerView, wanted: Wanted | None, pod: Pod, document: dict[str, Any], *, boosts: bool
) -> str | None:
    state = view.state.of_kind(RecommendationState).get(wanted.id) if wanted else None
    if wanted is None or state is None or not is_confident(state):
        return None
    recommended = {container.name: container for container in state.containers}
    containers: list[dict[str, Any]] = document["spec"].get("containers") or []
    changed, is_exclusive = False, qos(pod) in EXCLUSIVE
    boosted: dict[str, Boosted] = {}
    for container in containers:
        recommendation = recommended.get(container.get("name", ""))
        policy = policy_of(wanted.policies, container.get("name", ""))
        if recommendation is not None and not policy.is_off:
            changed |= _set_resources(container, recommendation, policy, whole_cores=is_exclusive)
    for container in containers if boosts and not is_exclusive else ():
        policy = policy_of(wanted.policies, container.get("name", ""))
        if container.get("name", "") in recommended and not policy.is_off:
            before, resources = _kube_qos(document), container.get("resources")
            raised = boost(container, policy)
            if raised is None:
                continue
            if _kube_qos(document) == before:
                boosted[container["name"]] = raised
            else:
                container["resources"] = resources
    if boosted:
        metadata: dict[str, Any] = document.setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **boost_annotation(boosted)}
    return wanted.name if changed or boosted else None


def _kube_qos(document: dict[str, Any]) -> str | None:
    """The Kubernetes QoS class of a new pod; None if a quantity is invalid."""
    try:
        return kube_qos(pod_from_json({"spec": document["spec"]}))
    except (codec.DecodeError, InvalidInput):
        return None


def _set_resources(
    container: dict[str, Any], recommendation: ContainerRecommendation, policy: ContainerPolicy, *, whole_cores: bool
) -> bool:
    resources: dict[str, Any] = container.get("resources") or {}
    requests: dict[str, Any] = dict(resources.get("requests") or {})
    limits: dict[str, Any] = dict(resources.get("limits") or {})
    is_changed = False
    for name, recommended in ((_CPU, recommendation.target.cpu_milli), (_MEMORY, recommendation.target.memory_bytes)):
        if not recommended:
            continue  # without samples, what the user requests stays
        amount = _requestable(name, recommended, limits, policy, whole_cores=whole_cores)
        old, limit = _amount(requests, name), _amount(limits, name)
        if limit is not None and policy.controlled_values == ControlledValues.REQUESTS_AND_LIMITS:
            divisor = old or limit  # without a request the limit is the request
            is_changed |= _set(limits, name, int(amount * limit / divisor) if divisor else limit)
        is_changed |= _set(requests, name, amount)
    if is_changed:
        container["resources"] = {**resources, "requests": requests, **({"limits": limits} if limits else {})}
    return is_changed


def _requestable(
    name: str, recommended: int, limits: Mapping[str, Any], policy: ContainerPolicy, *, whole_cores: bool
) -> int:
    """The request that a container gets for a recommended amount: in whole cores, and at most the limit that stays."""
    if whole_cores and name == _CPU:
        recommended = -(-recommended // _CORE_MILLI) * _CORE_MILLI
    limit = None if policy.controlled_values == ControlledValues.REQUESTS_AND_LIMITS else _amount(limits, name)
    return recommended if limit is None else min(recommended, limit)


def _set(resources: dict[str, Any], name: str, amount: int) -> bool:
    """Return whether the amount changes; the same amount in another notation, such as 0.5 and 500m, does not."""
    is_changed = _amount(resources, name) != amount
    resources[name] = _text(name, amount)
    return is_changed


def _amount(resources: Mapping[str, Any], name: str) -> int | None:
    if name not in resources:
        return None
    try:
        return parse_milli(resources[name]) if name == _CPU else parse_value(resources[name])
    except InvalidInput:
        return None


def _text(name: str, amount: int) -> str:
    return f"{amount}m" if name == _CPU else str(amount)


def replacement_drafts(
    view: ManagerView,
    wanted: Wanted,
    pods: Sequence[tuple[str, PodSpecState]],
    now: datetime,
    state: RecommendationState | None,
    *,
    can_resize: bool = False,
) -> list[Draft]:
    """Return the fact that requests to resize or to evict one pod whose requests are outdated; empty if none may be
    changed now.

    The mode of the Recommendation must be Recreate, Auto or InPlaceOrRecreate, and its status needs a day of history.
    One pod is changed at a time, but the boosts of all pods that have started end at once. To evict one, there must be
    at least two live pods, and all of them must have a node.
    The eviction respects disruption budgets.

    Args:
        pods: Uid and state of the pods that this Recommendation changes (`changing`), oldest first.
        can_resize: Whether a gateway asks an API server to resize pods. Otherwise InPlaceOrRecreate is Recreate.
    """
    boosted = {uid: found for uid, spec in pods if (found := boosted_containers(spec.object))}
    if boosted and can_resize and wanted.mode is not UpdateMode.OFF:
        over = [
            resize_draft(uid, spec, without_boost(boosted[uid]), BOOST_OVER)
            for uid, spec in pods
            if uid in boosted
            and boost_is_over(spec.object, boosted[uid], wanted.policies, now)
            and progress_of(spec, now) == Progress()
        ]
        if over:
            return over
    if wanted.mode not in REPLACING or state is None or not is_confident(state):
        return []
    evictions, places = view.state.of_kind(EvictionState), view.state.of_kind(PodState)
    if any(uid in evictions for uid, _ in pods):
        return []
    in_place = can_resize and wanted.mode is UpdateMode.IN_PLACE_OR_RECREATE
    progress = {uid: progress_of(spec, now) for uid, spec in pods if uid not in boosted} if in_place else {}
    if any(each.is_waiting for each in progress.values()):
        return []
    live = [(uid, spec, place) for uid, spec in pods if (place := places.get(uid)) is not None and place.node]
    may_evict = len(live) == len(pods) and len(live) >= LEAST_LIVE
    # else the last successor is not placed yet, or there is nobody to take over
    for uid, spec, place in live:
        if uid in boosted:
            continue  # its requests are those of its start
        reason, obstacle = why_replace(spec, wanted, state, now), ""
        if in_place:
            obstacle = progress[uid].failure
            changed = [] if reason is None else resized_containers(spec.object, wanted, state)
            if reason is not None and (not obstacle or is_another_resize(spec, changed)):
                refused = why_not_in_place(spec.object, place.allocation, changed)
                if changed and not refused:
                    return [resize_draft(uid, spec, changed, reason)]
                obstacle = obstacle or refused
            reason = reason or (RESIZED if obstacle and spec.resize and not spec.resize.failure else None)
        if reason is not None and may_evict:
            message = f"{reason}{NOT_IN_PLACE}{obstacle}" if obstacle else reason
            return [_eviction(view, uid, spec.object, place.node, message)]
    return []


def _eviction(view: ManagerView, uid: str, pod: Pod, node: str, message: str) -> Draft:
    event = PodEvictionRequested(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=node,
        initiator=INITIATOR,
        reason="ResourcesOutdated",
        message=message,
        give_up_after_seconds=SETTLED_SECONDS,
    )
    ref = AggregateRef("eviction", uid)
    return Draft(ref, event, view.state.last_seq(ref))


def resized_containers(pod: Pod, wanted: Wanted, state: RecommendationState) -> list[ResizedContainer]:
    """The containers of a running pod whose resources differ from the recommended ones, with those they shall have."""
    recommended = {container.name: container for container in state.containers}
    found: list[ResizedContainer] = []
    for container in pod.spec.containers:
        recommendation, policy = recommended.get(container.name), policy_of(wanted.policies, container.name)
        if recommendation is None or policy.is_off:
            continue
        resources = {"requests": container.resources.requests, "limits": container.resources.limits}
        document: dict[str, Any] = {"resources": resources}
        if _set_resources(document, recommendation, policy, whole_cores=False):
            new: dict[str, dict[str, str]] = document["resources"]
            amounts = ({n: str(v) for n, v in new.get(of, {}).items() if n in _RESIZABLE} for of in resources)
            requests, limits = amounts
            found.append(ResizedContainer(name=container.name, requests=requests, limits=limits))
    return found


def why_replace(spec: PodSpecState, wanted: Wanted, state: RecommendationState, now: datetime) -> str | None:
    """Return the reason to replace a pod, or None if its requests are good enough.

    A pod is replaced if a request is outside of the bounds. It is also replaced if it is older than 12 hours and its
    requests differ from the targets by more than 10 % in sum over containers and resources. Bounds and targets are what
    a new pod would request for them, so that the successor is not replaced for the same reason. Other pods than prod
    pods are never replaced.
    """
    pod = spec.object
    if priority_class(pod) is not PriorityBand.PROD:
        return None
    recommended = {container.name: container for container in state.containers}
    is_exclusive, drift = qos(pod) in EXCLUSIVE, 0.0
    for container in pod.spec.containers:
        name, requests = container.name, _requests(container)
        found, policy = recommended.get(name), policy_of(wanted.policies, name)
        if found is None or requests is None or policy.is_off:
            continue
        for resource, *amounts in (
            (_CPU, found.lower_bound.cpu_milli, found.target.cpu_milli, found.upper_bound.cpu_milli),
            (_MEMORY, found.lower_bound.memory_bytes, found.target.memory_bytes, found.upper_bound.memory_bytes),
        ):
            low, target, high = (
                _requestable(resource, amount, container.resources.limits, policy, whole_cores=is_exclusive)
                for amount in amounts
            )
            request = requests.get(resource, 0)
            if not target:
                continue  # no samples
            if not low <= request <= high:
                unit = "m" if resource == _CPU else " bytes"
                return f"container {name} requests {request}{unit} of {resource}, recommended are {low} to {high}{unit}"
            drift += abs(request - target) / target
    age = (now - datetime.fromisoformat(spec.added_at)).total_seconds()
    if drift > DRIFT and age > SETTLED_SECONDS:
        return f"requests differ from what is recommended by {100 * drift:.0f} % in sum"
    return None


def _requests(container: Container) -> dict[str, int] | None:
    """None if a quantity is invalid."""
    try:
        return parse_amounts(container.resources.requests)
    except InvalidInput:
        return None
