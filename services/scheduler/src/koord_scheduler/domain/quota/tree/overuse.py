"""Overuse: finds quotas that use more than their runtime for too long, and chooses their pods to evict.

Source:
    scheduler-core spec, 10.8; pitfall 6
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koord_scheduler.domain.quota.tree.admission import exceeding


class RunningPod(NamedTuple):
    """A pod with a node that may be evicted because its quota uses more than its runtime.

    Attributes:
        uid: Uid of the pod.
        priority: Its priority.
        start_time: Unix seconds; larger is younger, infinity if the pod has not started.
        preemptible: Whether it may be evicted.
        requests: Milli-cores for cpu, whole units otherwise.
    """

    uid: str
    priority: int
    start_time: float
    preemptible: bool
    requests: Mapping[str, int]


class OveruseClock:
    """For each quota that uses more than its runtime, the time since which it has done so without interruption.

    Args:
        delay_seconds: Argument `delayEvictTime`.
        since: Start value of the attribute, from a snapshot; None: no quota is overused.

    Attributes:
        since: Name of a quota -> that time in Unix seconds. Quotas within their runtime have no entry.
    """

    def __init__(self, delay_seconds: float, since: Mapping[str, float] | None = None) -> None:
        self._delay = delay_seconds
        self.since: dict[str, float] = dict(since or {})

    def observe(self, now: float, over: Iterable[str]) -> list[str]:
        """Return the sorted quotas that have used more than their runtime for longer than the delay.

        The time of a returned quota starts again. The delay is the argument `delayEvictTime`.

        Args:
            now: Seconds on a clock that never goes back.
            over: Every quota that uses more than its runtime now.
        """
        since = {name: self.since.get(name, now) for name in over}
        due = sorted(name for name, start in since.items() if now - start > self._delay)
        self.since = since | dict.fromkeys(due, now)
        return due


def pods_to_revoke(runtime: Mapping[str, int], used: Mapping[str, int], pods: Sequence[RunningPod]) -> list[str]:
    """Return the uids of the pods to evict, in order, so that the quota uses at most its runtime.

    Preemptible pods are chosen by ascending priority, younger pods first, until used <= runtime. If that is never
    reached, all chosen pods are evicted. Otherwise each chosen pod is tried again, the last chosen one first: if the
    quota stays within its runtime with it, it is not evicted.

    Args:
        runtime: Runtime of the quota.
        used: Usage of the quota over all its resources: at least what `pods` use together.
        pods: The quota's own pods that have a node.

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
