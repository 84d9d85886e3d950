"""Typical pods, learned from the pods that were created in a window of time.

The counts and the result are folds of the log, so a replay gives the same scores.

Source: gpu-fragmentation spec, 3 and 6.
"""

from collections import Counter
from datetime import datetime
from typing import Final

import msgspec
from koordcore.events.cluster import TypicalPod as LearnedPod
from koordcore.events.cluster import TypicalPodsLearned
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.objects import PodSpecAdded
from koordcore.fragmentation.pods import GpuPod, TypicalPod, requests_of, typical_pods
from koordcore.values import codec

from koord_scheduler.domain.config.koordinator_args import GpuFragmentation

KINDS: Final = frozenset({"podspec", "gpuworkload"})
REF: Final = AggregateRef("gpuworkload", "default")


class _Facts(msgspec.Struct, frozen=True):
    """A snapshot."""

    counts: list[tuple[int, list[tuple[GpuPod, int]]]]
    learned: TypicalPodsLearned | None
    due: float


class LearnedPods:
    """Counts the requests of created pods by time, and keeps the typical pods that were published last.

    Args:
        window_seconds: Pods older than this do not count. It is a multiple of the interval, or rounded up to one.
        interval_seconds: Seconds between two calculations of the typical pods. Pods are counted per interval.
        threshold_percent: The typical pods are the most frequent requests that together cover this percentage of the
            pods.
    """

    def __init__(self, window_seconds: float, interval_seconds: float, threshold_percent: float) -> None:
        self._window = window_seconds
        self._interval = interval_seconds
        self._threshold = threshold_percent
        self._counts: dict[int, Counter[GpuPod]] = {}
        self._learned: TypicalPodsLearned | None = None
        self._due = 0.0

    @property
    def typical(self) -> list[TypicalPod]:
        """The typical pods that were published last; empty if none were published."""
        listed = self._learned.typical_pods if self._learned is not None else []
        return [
            TypicalPod(GpuPod(each.milli_cpu, each.gpu_milli, each.num_gpu, each.gpu_models), each.frequency)
            for each in listed
        ]

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Count the pod of a `PodSpecAdded` event, or store the typical pods of a `TypicalPodsLearned` event.

        Returns:
            Whether the typical pods have changed.
        """
        match event:
            case PodSpecAdded(object=pod):
                requests = requests_of(pod)
                if requests is not None:
                    interval = int(_seconds(stored.occurred_at) // self._interval)
                    self._counts.setdefault(interval, Counter())[requests] += 1
            case TypicalPodsLearned():
                changed = self._learned is None or self._learned.typical_pods != event.typical_pods
                self._learned = event
                self._due = _seconds(stored.occurred_at) + self._interval
                return changed
            case _:
                pass
        return False

    def due(self) -> float | None:
        """Return when typical pods are to be learned again, in Unix seconds.

        None if no pod is counted.
        """
        return self._due if self._counts else None

    def learn(self, now: float) -> TypicalPodsLearned | None:
        """Return an event with the typical pods of the window that ends at `now`; None if they have not changed.

        Older counts are dropped. `typical` changes only when `apply` gets the event.

        Args:
            now: Present time in Unix seconds.
        """
        self._due = now + self._interval
        first = int((now - self._window) // self._interval)
        for interval in [interval for interval in self._counts if interval < first]:
            del self._counts[interval]
        counts: Counter[GpuPod] = Counter()
        for each in self._counts.values():
            counts.update(each)
        found = [
            LearnedPod(
                milli_cpu=each.pod.milli_cpu,
                gpu_milli=each.pod.gpu_milli,
                num_gpu=each.pod.num_gpu,
                gpu_models=each.pod.gpu_spec,
                frequency=each.frequency,
            )
            for each in typical_pods(counts.elements(), self._threshold)
        ]
        if self._learned is not None and self._learned.typical_pods == found:
            return None
        return TypicalPodsLearned(pods=counts.total(), window_seconds=int(self._window), typical_pods=found)

    def facts(self) -> bytes:
        """Return the counts and the published typical pods as bytes, for a snapshot."""
        counts = [(interval, sorted(counter.items())) for interval, counter in sorted(self._counts.items())]
        return codec.encode(_Facts(counts, self._learned, self._due))

    def restore(self, facts: bytes) -> None:
        """Replace the learned state by the one in `facts`, the bytes that the method `facts` returned earlier."""
        found = codec.decode(facts, _Facts)
        self._counts = {interval: Counter(dict(counts)) for interval, counts in found.counts}
        self._learned = found.learned
        self._due = found.due


def _seconds(occurred_at: str) -> float:
    return datetime.fromisoformat(occurred_at).timestamp()


def learned_from(args: GpuFragmentation) -> LearnedPods | None:
    """Return a new learner of typical pods; None if scores by fragmentation are off or typical pods are configured.

    Args:
        args: The part `gpuFragmentation` of DeviceShare's arguments.
    """
    if not args.enabled or args.typical_pods:
        return None
    learning = args.learning
    return LearnedPods(learning.window, learning.refresh_interval, learning.popularity_threshold_percent)
