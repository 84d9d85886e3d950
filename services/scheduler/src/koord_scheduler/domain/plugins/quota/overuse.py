"""Which pods of a quota are evicted: for a pod that preempts in it, or because it exceeds its runtime for too long.

Source: scheduler-core spec, 6, 10.8; pitfall 6
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koord_scheduler.domain.plugins.quota.admission import exceeding
from koord_scheduler.domain.plugins.quota.node import QuotaNode, QuotaPod


class QuotaRoom:
    """A copy of the usage of a quota, to try whether a pod fits without some victims (see `Room`). The quota does not
    change. `node`: the quota of the preemptor; None: it has none and always fits. `requests`: resource -> amount that
    the preemptor requests, for resources that the quota limits. `limit`: resource -> most that the pods of the quota
    may use; others are unlimited. `pods`: all recorded pods by uid.
    """

    def __init__(
        self,
        node: QuotaNode | None,
        requests: Mapping[str, int],
        limit: Mapping[str, int],
        pods: Mapping[str, QuotaPod],
    ) -> None:
        self._name = node.name if node is not None else ""
        self._used = dict(node.used) if node is not None else {}
        self._requests = requests
        self._limit = limit
        self._pods = pods

    def take(self, uid: str) -> None:
        """No-op for a pod that is unknown, has no node, or belongs to another quota."""
        self._move(uid, -1)

    def put_back(self, uid: str) -> None:
        self._move(uid, 1)

    def fits(self) -> bool:
        return not exceeding(self._used, self._requests, self._limit)

    def _move(self, uid: str, sign: int) -> None:
        victim = self._pods.get(uid)
        if victim is None or victim.quota is None or victim.quota.name != self._name or not victim.assigned:
            return
        for name, amount in victim.counted.items():
            self._used[name] = self._used.get(name, 0) + sign * amount


class RunningPod(NamedTuple):
    """A pod with a node that may be evicted because its quota uses more than its runtime."""

    uid: str
    priority: int
    start_time: float  # Unix seconds; larger is younger, infinity if the pod has not started
    preemptible: bool  # Whether it may be evicted
    requests: Mapping[str, int]  # Milli-cores for cpu, whole units otherwise


class OveruseClock:
    """For each quota that uses more than its runtime, the time since which it has done so without interruption.
    `delay_seconds`: argument `delayEvictTime`. `since`: start value of the attribute, from a snapshot; None: no quota
    is overused.
    """

    def __init__(self, delay_seconds: float) -> None:
        self._delay = delay_seconds
        # Name of a quota -> that time in Unix seconds. Quotas within their runtime have no entry.
        self.since: dict[str, float] = {}

    def observe(self, now: float, over: Iterable[str]) -> list[str]:
        """Return the sorted quotas that have used more than their runtime for longer than the delay. The time of a
        returned quota starts again. The delay is the argument `delayEvictTime`. `now`: seconds on a clock that never
        goes back. `over`: every quota that uses more than its runtime now.
        """
        since = {name: self.since.get(name, now) for name in over}
        due = sorted(name for name, start in since.items() if now - start > self._delay)
        self.since = since | dict.fromkeys(due, now)
        return due


def pods_to_revoke(runtime: Mapping[str, int], used: Mapping[str, int], pods: Sequence[RunningPod]) -> list[str]:
    """Return the uids of the pods to evict, in order, so that the quota uses at most its runtime. Preemptible pods are
    chosen by ascending priority, younger pods first, until used <= runtime. If that is never reached, all chosen pods
    are evicted. Otherwise each chosen pod is tried again, the last chosen one first: if the quota stays within its
    runtime with it, it is not evicted. `used`: usage of the quota over all its resources: at least what `pods` use
    together. `pods`: the quota's own pods that have a node.
    Source: scheduler-core spec, 10.8; vectors scheduler/elasticquota_revoke
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
