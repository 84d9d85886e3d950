"""Taking back what a quota uses beyond its runtime: when, and which pods.

Source:
    scheduler-core spec, 10.8; pitfall 6
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koord_scheduler.domain.quota.tree.admission import exceeding


class RunningPod(NamedTuple):
    """An assigned pod of the quota. start_time: seconds, larger is younger; inf: not started yet."""

    uid: str
    priority: int
    start_time: float
    preemptible: bool
    requests: Mapping[str, int]


class OveruseClock:
    """Since when each quota has been over its runtime without interruption."""

    def __init__(self, delay_seconds: float, since: Mapping[str, float] | None = None) -> None:
        self._delay = delay_seconds
        self.since: dict[str, float] = dict(since or {})

    def observe(self, now: float, over: Iterable[str]) -> list[str]:
        """Quotas, sorted, that have now been over for longer than the delay; their clock starts again.

        Args:
            now: Seconds, on any clock that does not go back.
            over: Every quota that is over its runtime at present.
        """
        since = {name: self.since.get(name, now) for name in over}
        due = sorted(name for name, start in since.items() if now - start > self._delay)
        self.since = since | dict.fromkeys(due, now)
        return due


def pods_to_revoke(runtime: Mapping[str, int], used: Mapping[str, int], pods: Sequence[RunningPod]) -> list[str]:
    """Uids of the pods to evict, in order, so that what is used fits the runtime.

    Pods are taken by priority ascending, then the younger first, non-preemptible ones never, until used <= runtime. If
    that is not reached, all taken are evicted; else those that still fit are given back, the most important first.

    Args:
        used: Of the quota over all its resources; at least what `pods`, its own, use together.

    Source:
        scheduler-core spec, 10.8; vectors scheduler/elasticquota_revoke
    """
    left = dict(used)
    nothing: dict[str, int] = {}
    taken: list[RunningPod] = []
    for pod in sorted(pods, key=lambda pod: (pod.priority, -pod.start_time)):
        if not exceeding(left, nothing, runtime):
            break
        if pod.preemptible:
            taken.append(pod)
            for name, amount in pod.requests.items():
                left[name] = left.get(name, 0) - amount
    if exceeding(left, nothing, runtime):
        return [pod.uid for pod in taken]
    evicted: list[str] = []
    for pod in reversed(taken):
        if exceeding(left, pod.requests, runtime):
            evicted.append(pod.uid)
        else:
            for name, amount in pod.requests.items():
                left[name] = left.get(name, 0) + amount
    return evicted
