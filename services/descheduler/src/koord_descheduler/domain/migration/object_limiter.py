"""Object limiter: at most so many evictions of a workload, or in a namespace, within a duration.

A token bucket exists from the first eviction on. It is full then, and each eviction takes a token.

Source:
    descheduler spec, 7.7
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.arguments.migration_controller import NAMESPACE, WORKLOAD, MigrationControllerArgs
from koord_descheduler.domain.arguments.workload_limit import workload_limit
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

_FORGOTTEN_AFTER: Final = 1.5
"""Multiple of the duration after which a bucket without evictions is forgotten."""
_ROUNDING: Final = 1e-9


@dataclass(slots=True)
class Bucket:
    """Tokens of one workload or namespace.

    Attributes:
        tokens: Tokens at the time of the last eviction.
        at: Unix seconds of the last eviction.
        most: Tokens that `duration` seconds add.
        capacity: Largest number of tokens.
    """

    tokens: float
    at: float
    most: int
    capacity: int

    def tokens_at(self, now: float, duration: float) -> float:
        """Return the tokens at a later time."""
        return min(float(self.capacity), self.tokens + (now - self.at) * self.most / duration)


@dataclass(slots=True)
class EvictionBuckets:
    """All buckets: (type, uid of the controller or namespace) -> bucket. They follow from the recorded evictions."""

    buckets: dict[tuple[str, str], Bucket] = field(default_factory=dict[tuple[str, str], Bucket])


class ObjectLimiter:
    """Decides which pods wait because others of their workload or namespace were evicted a short time ago.

    Args:
        args: Arguments of the MigrationController.
        state: The buckets.
    """

    def __init__(self, args: MigrationControllerArgs, state: EvictionBuckets) -> None:
        self._args = args
        self._buckets = state.buckets

    def is_limited(self, pod: PodView, now: float) -> bool:
        """Return whether a bucket of the pod has no whole token."""
        for kind, key in self._keys(pod):
            bucket = self._buckets.get((kind, key))
            if bucket is None:
                continue
            duration = self._args.object_limiters[kind].duration
            is_known = now - bucket.at < _FORGOTTEN_AFTER * duration
            if is_known and bucket.tokens_at(now, duration) < 1 - _ROUNDING:
                return True
        return False

    def evicted(self, pod: PodView, cluster: ClusterView) -> None:
        """Take a token from each bucket of a pod that was evicted at `cluster.now`, if there is one."""
        now = cluster.now
        for kind, key in self._keys(pod):
            limiter = self._args.object_limiters[kind]
            most = self._most(kind, pod, cluster)
            if most <= 0:
                continue
            capacity = limiter.burst or 1
            bucket = self._buckets.get((kind, key))
            is_known = bucket is not None and now - bucket.at < _FORGOTTEN_AFTER * limiter.duration
            tokens = bucket.tokens_at(now, limiter.duration) if bucket is not None and is_known else float(capacity)
            left = tokens - 1 if tokens >= 1 - _ROUNDING else tokens
            self._buckets[kind, key] = Bucket(tokens=left, at=now, most=most, capacity=capacity)

    def _keys(self, pod: PodView) -> Iterator[tuple[str, str]]:
        """Yield type and key of the buckets that a pod belongs to."""
        for kind, limiter in self._args.object_limiters.items():
            if limiter.duration <= 0:
                continue
            if kind == NAMESPACE:
                yield kind, pod.namespace
            elif kind == WORKLOAD and pod.controller is not None:
                yield kind, pod.controller.uid

    def _most(self, kind: str, pod: PodView, cluster: ClusterView) -> int:
        """Return how many evictions a duration allows; 0: the type does not track the pod."""
        value = self._args.object_limiters[kind].max_migrating
        if kind == NAMESPACE or pod.controller is None:
            return value if isinstance(value, int) else 0
        workload = cluster.workloads.get(pod.controller.uid)
        try:
            return workload_limit(
                0 if workload is None else workload.replicas,
                self._args.max_migrating_per_workload if value is None else value,
            )
        except InvalidInput:
            return 0
