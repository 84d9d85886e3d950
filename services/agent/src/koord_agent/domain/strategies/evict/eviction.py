"""Choose the pods to evict so that the requested amounts are released: one pass over all tasks of a strategy.

A *task* is a demand of one eviction feature: amounts to release, and the pods that may be evicted for it, in order.
`strategies` makes the tasks and carries them out.

Source: agent spec, 4.2, 12.1. Vectors: evict_release.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key

from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import is_eviction_enabled, parse_eviction_priority
from koordcore.protocol.lenient_json import parse_json
from koordcore.protocol.qos import QosClass
from koordcore.values.integers import parse_literal
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts

from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.strategy import EvictionTask, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionVictim:
    uid: str
    feature: str  # Eviction feature of the task that evicted it
    reason: str  # Reason of the task
    releases: Amounts  # Amounts that its end releases


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Result of one pass over the eviction tasks of a strategy."""

    victims: tuple[EvictionVictim, ...] = ()  # Pods that were evicted
    pending: tuple[str, ...] = ()  # UIDs of pods that were evicted earlier and have not ended yet
    failed: tuple[str, ...] = ()  # UIDs of pods that could not be evicted
    # Kind of target -> released amounts. Each pod counts once.
    released: Mapping[Target, Amounts] = field(default_factory=dict[Target, Amounts])
    # Eviction feature -> amounts that are still missing after the pass.
    unmet: Mapping[str, Amounts] = field(default_factory=dict[str, Amounts])


def release(
    tasks: Sequence[EvictionTask], *, already_evicted: Collection[str], evict: Callable[[EvictionTask, str], bool]
) -> Release:
    """Evict the candidates of each task in order until the task has its amounts.

    The release of a victim counts for every task of the pass, as the maximum over tasks with the same target. A
    candidate that releases none of the missing amounts is skipped (D-19).

    Args:
        tasks: Tasks of one strategy, in order.
        already_evicted: UIDs of pods that were evicted within the last two minutes. They count as released and are
            not evicted again.
        evict: Evicts one pod. If it returns False, the next candidate is tried.
    """
    wanting = [task for task in tasks if any(amount > 0 for amount in task.to_release.values())]
    released: dict[Target, Amounts] = {}
    counted: set[str] = set()
    victims: list[EvictionVictim] = []
    pending: list[str] = []
    failed: list[str] = []
    for task in wanting:
        for uid in task.order:
            missing = _missing(task, released)
            if not missing:
                break
            gives = task.releases.get(uid, {})
            if uid in counted or not any(name in gives for name in missing):
                continue
            if uid in already_evicted:
                pending.append(uid)
            elif evict(task, uid):
                victims.append(EvictionVictim(uid=uid, feature=task.feature, reason=task.reason, releases=dict(gives)))
            else:
                failed.append(uid)
                continue
            counted.add(uid)
            _count(uid, wanting, released)
    unmet = {task.feature: missing for task in wanting if (missing := _missing(task, released))}
    return Release(victims=tuple(victims), pending=tuple(pending), failed=tuple(failed), released=released, unmet=unmet)


def _missing(task: EvictionTask, released: Mapping[Target, Amounts]) -> Amounts:
    so_far = released.get(task.target, {})
    left = {name: amount - so_far.get(name, 0) for name, amount in task.to_release.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _count(uid: str, tasks: Sequence[EvictionTask], released: dict[Target, Amounts]) -> None:
    gives: dict[Target, Amounts] = {}
    for task in tasks:
        most = gives.setdefault(task.target, {})
        for name, amount in task.releases.get(uid, {}).items():
            most[name] = max(amount, most.get(name, amount))
    for target, amounts in gives.items():
        total = released.setdefault(target, {})
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount


def is_allowed(pod: AgentPod, feature: str) -> bool:
    """The eviction policy in a pod's annotation decides.

    Without one every feature is allowed; with an invalid one none is.
    """
    text = pod.annotations.get(keys.EVICTION_POLICY)
    if text is None:
        return True
    try:
        features = parse_json(text)
    except InvalidInput:
        return False
    return isinstance(features, list) and feature in features


def by_priority(
    pods: Iterable[AgentPod], *, feature: str, priority_threshold: int, amount: Mapping[str, int], known: Iterable[str]
) -> tuple[AgentPod, ...]:
    """Return the pods that a feature may evict, of any QoS class, in the order of eviction.

    A candidate is Pending or Running, is in `known` (has a usage sample), has a priority of at most the threshold, and
    its labels and policy allow the eviction. Candidates are sorted by eviction priority, priority value and label
    priority ascending, then by amount (usage or request) descending, then by name.
    """
    seen = set(known)
    able = [
        pod
        for pod in pods
        if pod.is_active
        and pod.uid in seen
        and pod.priority_value <= priority_threshold
        and is_eviction_enabled(pod.labels)
        and is_allowed(pod, feature)
    ]
    return tuple(
        sorted(
            able,
            key=lambda pod: (
                _eviction_priority(pod),
                pod.priority_value,
                _label_priority(pod),
                -amount.get(pod.uid, 0),
                pod.namespace,
                pod.name,
            ),
        )
    )


def best_effort_by_priority(
    pods: Iterable[AgentPod], *, feature: str, then: Callable[[AgentPod, AgentPod], int]
) -> tuple[AgentPod, ...]:
    """Return the pods that a feature for best-effort pods may evict, in the order of eviction.

    Candidates are pods with label BE that are not finished and whose policy allows the feature. The lowest
    spec.priority comes first. If one has no priority or both are equal, `then` decides; negative if the first is
    evicted first.
    """

    def compare(one: AgentPod, other: AgentPod) -> int:
        mine, theirs = one.spec_priority, other.spec_priority
        if mine is not None and theirs is not None and mine != theirs:
            return mine - theirs
        return then(one, other)

    able = [pod for pod in pods if pod.qos_label == QosClass.BE and not pod.is_finished and is_allowed(pod, feature)]
    return tuple(sorted(sorted(able, key=lambda pod: (pod.namespace, pod.name)), key=cmp_to_key(compare)))


def _eviction_priority(pod: AgentPod) -> int:
    try:
        return parse_eviction_priority(pod.annotations)
    except InvalidInput:
        return 0


def _label_priority(pod: AgentPod) -> int:
    text = pod.labels.get(keys.SUB_PRIORITY)
    if not text:
        return pod.priority_value
    try:
        return parse_literal(text, 32)
    except InvalidInput:
        return pod.priority_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    is_valid: bool  # Whether the settings of the feature are valid
    task: EvictionTask | None = None  # Demand to evict pods; None if nothing is evicted
    reason: str = ""  # Reason why there is no task, or the numbers behind the task


def evicting(
    feature: str,
    target: Target,
    to_release: Amounts,
    candidates: Iterable[AgentPod],
    releases: Mapping[str, Amounts],
    reason: str,
) -> Judgement:
    """Candidates are in the order of eviction. `releases` is by UID."""
    order = tuple(pod.uid for pod in candidates)
    task = EvictionTask(
        feature=feature, target=target, to_release=to_release, order=order, releases=releases, reason=reason
    )
    return Judgement(is_valid=True, task=task, reason=reason)


def bounds(threshold: int | None, lower: int | None, *, default_gap: int | None = None) -> tuple[int, int] | None:
    """Return the threshold of a feature, and the lower bound down to which it evicts pods, both in percent.

    A lower bound that is not set is `default_gap` points below the threshold; None: it is required. None if one is
    missing or negative, or the lower bound is not below the threshold.
    """
    if lower is None and threshold is not None and default_gap is not None:
        lower = threshold - default_gap
    if threshold is None or lower is None or threshold < 0 or lower >= threshold:
        return None
    return threshold, lower
