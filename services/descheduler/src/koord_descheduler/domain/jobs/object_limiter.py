"""Object limiter: limits the number of evictions of a workload, or in a namespace, within a duration.

Each workload and namespace has a token bucket. It is full before its first eviction, each eviction takes a token, and
tokens come back over time.

Source:
    descheduler spec, 7.7
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koordcore.events.descheduling import Inputs, Number
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.jobs.arguments import NAMESPACE, WORKLOAD, MigrationControllerArgs, workload_limit
from koord_descheduler.domain.view.pods import PodView

OBJECT_LIMITER: Final = "object_limiter"
"""Beginning of the code of a job that waits for this limiter; the type follows."""
_FORGOTTEN_AFTER: Final = 1.5
"""Multiple of the duration after which a bucket without evictions is forgotten."""
_ROUNDING: Final = 1e-9


@dataclass(slots=True)
class Bucket:
    """Tokens of one workload or namespace."""

    tokens: float  # Tokens at the time of the last eviction
    at: float  # Unix seconds of the last eviction
    most: int  # Tokens that `duration` seconds add
    capacity: int

    def tokens_at(self, now: float, duration: float) -> float:
        """`duration`: seconds in which an empty bucket gets all tokens of the limit. `now`: Unix seconds."""
        return min(float(self.capacity), self.tokens + (now - self.at) * self.most / duration)


class Evicted(NamedTuple):
    controller: str  # Uid of the controller of the pod; "" if it has none
    namespace: str
    at: float  # Unix seconds
    replicas: int | None  # Replicas that the workload of the pod should have had then; None if it has no known workload


class Shortage(NamedTuple):
    """A bucket that has less than the one token that an eviction needs."""

    kind: str  # Type of the bucket: workload or namespace
    tokens: float

    @property
    def code(self) -> str:
        return f"{OBJECT_LIMITER}_{self.kind}"

    @property
    def number(self) -> Number:
        """The tokens, and the token that an eviction needs, for the audit."""
        return Number(value=round(self.tokens, 3), limit=1)

    @property
    def inputs(self) -> Inputs:
        return {self.code: self.number}


@dataclass(slots=True)
class EvictionBuckets:
    """All buckets: (type, uid of the controller or namespace) -> bucket. They follow from the recorded evictions.

    The bucket with the latest eviction is the last one. A bucket whose evictions count no more is forgotten.
    """

    buckets: dict[tuple[str, str], Bucket] = field(default_factory=dict[tuple[str, str], Bucket])


class ObjectLimiter:
    """Decides which pods have to wait because others of their workload or namespace were evicted a short time ago."""

    def __init__(self, args: MigrationControllerArgs, state: EvictionBuckets) -> None:
        self._args = args
        self._buckets = state.buckets

    def trial(self) -> "ObjectLimiter":
        """Evictions that the copy counts do not change this limiter."""
        return ObjectLimiter(self._args, EvictionBuckets(dict(self._buckets)))

    def is_limited(self, pod: PodView, now: float) -> bool:
        """Whether a bucket of the pod has less than one token."""
        return self.limiting(pod, now) is not None

    def limiting(self, pod: PodView, now: float) -> Shortage | None:
        """The bucket that refuses the eviction of the pod; None if none does."""
        for kind, key in self._keys(_controller(pod), pod.namespace):
            bucket = self._buckets.get((kind, key))
            if bucket is None:
                continue
            duration = self._args.object_limiters[kind].duration
            is_known = now - bucket.at < _FORGOTTEN_AFTER * duration
            tokens = bucket.tokens_at(now, duration)
            if is_known and tokens < 1 - _ROUNDING:
                return Shortage(kind, tokens)
        return None

    @property
    def memory_seconds(self) -> float:
        """Seconds for which an eviction counts."""
        durations = [limiter.duration for limiter in self._args.object_limiters.values()]
        return _FORGOTTEN_AFTER * max(durations, default=0.0)

    def evicted(self, pod: PodView, now: float, replicas: int | None) -> None:
        """Take a token from each bucket of an evicted pod, as far as such limits are configured.

        `now`: Unix seconds. `replicas`: those that its workload should have; None if it has no known workload.
        """
        self._take(Evicted(_controller(pod), pod.namespace, now, replicas))

    def rebuild(self, evictions: Iterable[Evicted]) -> None:
        """Replace all buckets by those that follow from recorded evictions, in any order, as after a restart."""
        self._buckets.clear()
        for each in sorted(evictions, key=lambda eviction: eviction.at):
            self._take(each)

    def _take(self, eviction: Evicted) -> None:
        for kind, key in self._keys(eviction.controller, eviction.namespace):
            limiter = self._args.object_limiters[kind]
            most = self._most(kind, eviction)
            if most <= 0:
                continue
            capacity = limiter.burst or 1
            bucket = self._buckets.pop((kind, key), None)
            is_known = bucket is not None and eviction.at - bucket.at < _FORGOTTEN_AFTER * limiter.duration
            known = bucket.tokens_at(eviction.at, limiter.duration) if bucket is not None and is_known else None
            tokens = float(capacity) if known is None else known
            left = tokens - 1 if tokens >= 1 - _ROUNDING else tokens
            self._buckets[kind, key] = Bucket(tokens=left, at=eviction.at, most=most, capacity=capacity)
        self._forget_before(eviction.at - self.memory_seconds)

    def _forget_before(self, at: float) -> None:
        """Forget the buckets whose last eviction was before `at`, in Unix seconds."""
        while self._buckets:
            longest_unused = next(iter(self._buckets))
            if self._buckets[longest_unused].at >= at:
                break
            del self._buckets[longest_unused]

    def _keys(self, controller: str, namespace: str) -> Iterator[tuple[str, str]]:
        """Type and key of the buckets that a pod belongs to."""
        for kind, limiter in self._args.object_limiters.items():
            if limiter.duration <= 0:
                continue
            if kind == NAMESPACE:
                yield kind, namespace
            elif kind == WORKLOAD and controller:
                yield kind, controller

    def _most(self, kind: str, eviction: Evicted) -> int:
        """The evictions that `duration` seconds allow for a bucket; 0: the pod has no such bucket."""
        value = self._args.object_limiters[kind].max_migrating
        if kind == NAMESPACE or not eviction.controller:
            return value if isinstance(value, int) else 0
        try:
            return workload_limit(
                eviction.replicas or 0, self._args.max_migrating_per_workload if value is None else value
            )
        except InvalidInput:
            return 0


def _controller(pod: PodView) -> str:
    return "" if pod.controller is None else pod.controller.uid
