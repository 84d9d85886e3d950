"""Choose the pods to evict so that the requested amounts are released: one pass over all tasks of a strategy.

A *task* is a demand of one eviction feature: amounts to release, and the pods that may be evicted for it.
`domain.qos.strategies.eviction_strategies` makes the tasks, `evictor` carries them out.

Source: agent spec, 12.1. Vectors: evict_release.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from koordcore.values.resources import Amounts


class Target(StrEnum):
    """Amount that counts as released when a pod is evicted: the request or the usage of the pod."""

    USED = "podUsed"
    REQUESTED = "podResourceRequest"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionTask:
    """A demand to release amounts of resources by evicting pods, and the candidates.

    Attributes:
        feature: Name of the eviction feature that demands it.
        target: What counts as released: the requests of pods or their usage.
        to_release: Resource -> amount: milli-cores for CPU kinds, bytes for memory kinds.
        order: UIDs of the candidates; the first is evicted first.
        releases: UID -> amounts that the end of the pod would release. It also contains pods that are not candidates
            of this task but may be victims of another one.
        reason: One sentence with the numbers behind it.
    """

    feature: str
    target: Target
    to_release: Amounts
    order: tuple[str, ...]
    releases: Mapping[str, Amounts]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionVictim:
    """A pod that was evicted.

    Attributes:
        uid: UID of the pod.
        feature: Eviction feature of the task that evicted it.
        reason: Reason of the task.
        releases: Amounts that its end releases.
    """

    uid: str
    feature: str
    reason: str
    releases: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Result of one pass over the eviction tasks of a strategy.

    Attributes:
        victims: Pods that were evicted.
        pending: UIDs of pods that were evicted earlier and have not ended yet.
        failed: UIDs of pods that could not be evicted.
        released: Kind of target -> released amounts. Each pod counts once.
        unmet: Eviction feature -> amounts that are still missing after the pass.
    """

    victims: tuple[EvictionVictim, ...] = ()
    pending: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    released: Mapping[Target, Amounts] = field(default_factory=dict[Target, Amounts])
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
