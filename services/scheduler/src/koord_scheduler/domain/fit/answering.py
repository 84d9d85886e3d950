"""Checks a capacity question, and answers it on a private copy of the scheduler's state.

The members of a gang depend on each other: too few never start, and one that does not fit may keep all others from
their nodes. So each number of members is tried on a copy of the state of its own. Read next: `trial`, which decides,
and `room`, which computes the remaining amounts.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Any, Final, NamedTuple, cast

import msgspec
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import CustomObjectObserved, WorkloadObserved, custom_ref
from koordcore.protocol.crd import accepted_kinds
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.requests.fit import FitAnswer, FitRequest, NodeFit, PodSet, PreemptingPod, SetFit, Shortage
from koordcore.values.allocation import NOTHING, Allocation
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import MAX_AMOUNT

from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.fit.room import headroom_of, shortage_of
from koord_scheduler.domain.fit.trial import Trial
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.gang.parameters import gang_id_of

MOST_PODS: Final = 10_000
"""Maximum number of pods in one question, and of replicas that a search tries."""


def check_question(state: SchedulerState, request: FitRequest) -> None:
    """Raises InvalidInput: the question cannot be answered on this state. The error names the field."""
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
    """Yield the pods of a set, which differ only in name and uid. The caller takes as many as it needs. The iterator
    has no end. A number is appended to name and uid: `web-0`, `web-1`, ... A set with one replica yields the pod with
    its own name and uid first, then the numbered ones. If the pod has no uid, `namespace/name` is its uid.
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
    """As if the log had stored it. `path`: for errors. Raises InvalidInput: the kind is unknown, or it has no name."""
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


Probe = Callable[[FitRequest], FitAnswer]
"""Answers a question on a further copy of the state."""
NOT_TRIED = "PreEnqueue"
"""Replaces a plugin's name in the shortage of pods that may not be attempted, for example in a too small gang."""


def greatest_gang(request: FitRequest, probe: Probe) -> FitAnswer:
    """The answer for the greatest number of gang members that are all placed, found by bisection. `most` of the answer
    is this number, or 0. `request` has one set of members.
    """

    def tried(replicas: int) -> FitAnswer:
        pods = [msgspec.structs.replace(request.pods[0], replicas=replicas)]
        return probe(msgspec.structs.replace(request, pods=pods, finds_most=False))

    best: FitAnswer | None = None
    failed = tried(1)
    low, high = 1, min(MOST_PODS, _most_by_amounts(failed))
    while low <= high:
        middle = (low + high) // 2
        answer = tried(middle)
        shortage = answer.sets[0].shortage
        if answer.fits:
            best, low = answer, middle + 1
        elif shortage is not None and shortage.plugin == NOT_TRIED:
            failed, low = answer, middle + 1
        else:
            failed, high = answer, middle - 1
    if best is None:
        [none] = failed.sets
        return msgspec.structs.replace(failed, sets=[msgspec.structs.replace(none, asked=0)], most=0)
    [found] = best.sets
    shortage = failed.sets[0].shortage
    if shortage is not None:
        shortage = msgspec.structs.replace(shortage, short_in_total=0)
    sets = [msgspec.structs.replace(found, shortage=shortage)]
    return msgspec.structs.replace(best, sets=sets, most=found.asked, is_limited=found.asked == MOST_PODS)


def _most_by_amounts(answer: FitAnswer) -> int:
    """Return an upper limit of the replicas by the free amounts."""
    [one] = answer.sets
    return one.placed + min((each.replicas for each in one.headroom), default=MOST_PODS)


MOST_ALLOCATIONS: Final = 1000
"""Maximum number of pods whose allocations an answer contains, so that it fits into one message."""
_AT_A_TIME: Final = 250
"""Number of replicas that a search submits before it looks whether all of them have a node."""
_PERMIT: Final = "Permit"
_WAITS: Final = "the pod waits at Permit for the other members of its gang"


class _Submitted(NamedTuple):
    """The submitted pods of one set, or an object that is placed like a pod."""

    uids: list[str]  # Uids of the pods, at least one
    feasible: Rows  # Nodes on which a replica was feasible before, shape (K,)
    name: str = ""  # Name of the pod in the question; "" for the name of the only pod or object


def answer_question(state: SchedulerState, request: FitRequest, now: float, probe: Probe) -> FitAnswer:
    """`state` is changed, so nothing else may use it. `now`: Unix seconds. `probe` answers another question on a
    further copy of the state, before this one changes it; only the search for the greatest gang calls it. Raises
    InvalidInput: the question cannot be answered; the error names field, rule and value.
    """
    check_question(state, request)
    if request.finds_most and gang_id_of(request.pods[0].pod):
        return greatest_gang(request, probe)
    objects = [custom_object(document, f"objects[{index}]") for index, document in enumerate(request.objects)]
    trial = Trial(state, now)
    trial.leave(dict.fromkeys(request.leaving))
    uids = [trial.put_object(ref, event, f"objects[{index}]") for index, (ref, event) in enumerate(objects)]
    placed_objects = dict.fromkeys(uid for uid in uids if uid)
    for workload in request.workloads:
        meta = workload.metadata
        uid = meta.uid or f"{workload.kind}/{meta.namespace}/{meta.name}"
        trial.put(AggregateRef("workloadspec", uid), WorkloadObserved(object=workload))
    if request.finds_most:
        return _most(state, trial, request.pods[0])
    submitted = [_Submitted([uid], _feasible(state, uid)) for uid in placed_objects]
    submitted = [*(_submit(state, trial, pod_set) for pod_set in request.pods), *submitted]
    trial.decide()
    return _answer(state, trial, submitted)


def _submit(state: SchedulerState, trial: Trial, asked: PodSet) -> _Submitted:
    pods = list(islice(replicas_of(asked), asked.replicas))
    trial.submit(pods)
    uids = [pod.metadata.uid for pod in pods]
    return _Submitted(uids, _feasible(state, uids[0]), asked.pod.metadata.name)


def _feasible(state: SchedulerState, uid: str) -> Rows:
    pod = state.pods[uid]
    assert pod.subject is not None, "the question was checked"
    return state.frameworks.framework_of(pod).engine.feasible(pod.subject)


def _most(state: SchedulerState, trial: Trial, asked: PodSet) -> FitAnswer:
    """Submit replicas until one gets no node. The replicas are equal, so the first ones do not depend on later ones."""
    pods = replicas_of(PodSet(pod=asked.pod, replicas=MOST_PODS))
    uids: list[str] = []
    feasible: Rows | None = None
    while len(uids) < MOST_PODS and not trial.has_refused:
        more = list(islice(pods, _AT_A_TIME))
        trial.submit(more)
        uids += [pod.metadata.uid for pod in more]
        feasible = _feasible(state, uids[0]) if feasible is None else feasible
        trial.decide()
    assert feasible is not None, "at least one replica was submitted"
    found = _answer(state, trial, [_Submitted(uids, feasible, asked.pod.metadata.name)])
    most = found.sets[0].placed
    # The shortage is that of one more replica, not of all that the search has submitted.
    shortage = _shortage(state, trial, uids, 1)
    sets = [msgspec.structs.replace(found.sets[0], asked=most, shortage=shortage)]
    return msgspec.structs.replace(found, sets=sets, most=most, is_limited=most == MOST_PODS)


def _answer(state: SchedulerState, trial: Trial, submitted: list[_Submitted]) -> FitAnswer:
    nodes: dict[str, list[str]] = {}
    allocations: dict[str, Allocation] = {}
    preempting: list[PreemptingPod] = []
    for uid in trial.pods:
        node, name = trial.node_of(uid), _name(state, uid)
        if node:
            nodes.setdefault(node, []).append(name)
            allocation = state.assumed.ledgers.holders(node)[uid].allocation
            if allocation is not NOTHING and len(trial.pods) <= MOST_ALLOCATIONS:
                allocations[name] = allocation
        elif uid in trial.victims:
            nominated = state.nominator.node_of(uid)
            preempting.append(PreemptingPod(pod=name, node=nominated, victims=trial.victims[uid]))
    return FitAnswer(
        sets=[_set_fit(state, trial, each) for each in submitted],
        nodes=[NodeFit(node=node, pods=nodes[node]) for node in sorted(nodes)],
        preempting=preempting,
        allocations=allocations,
        ahead=trial.ahead,
        passed_over=trial.passed_over,
        position=state.log.position,
        observed=state.log.observed,
    )


def _set_fit(state: SchedulerState, trial: Trial, submitted: _Submitted) -> SetFit:
    uids = submitted.uids
    placed = sum(1 for uid in uids if trial.node_of(uid))
    preempting = sum(1 for uid in uids if uid in trial.victims and not trial.node_of(uid))
    first = state.pods[uids[0]]
    return SetFit(
        namespace=first.namespace,
        name=submitted.name or first.name,
        asked=len(uids),
        placed=placed,
        preempting=preempting,
        nodes_feasible=len(submitted.feasible),
        headroom=headroom_of(state, first, submitted.feasible),
        shortage=_shortage(state, trial, uids, len(uids) - placed),
    )


def _shortage(state: SchedulerState, trial: Trial, uids: list[str], without: int) -> Shortage | None:
    """Return why the first replica without a node has none; None if all have one."""
    for uid in uids:
        if trial.node_of(uid):
            continue
        refused = trial.explanations.get(uid)
        if refused is not None:
            return shortage_of(state, state.pods[uid], refused, without)
        gated = trial.why_gated(uid)
        message = gated or _WAITS
        return Shortage(plugin=NOT_TRIED if gated else _PERMIT, reason=message, message=message)
    return None


def _name(state: SchedulerState, uid: str) -> str:
    pod = state.pods[uid]
    return f"{pod.namespace}/{pod.name}"
