"""Time series of the node: samples in time order, limited by age and size, and aggregates over them.

A series belongs to a kind of metric and to an object: the node itself, or a pod, container or another object.
`monitor` fills them, `report` and the QoS strategies read them, by `Metrics` for the time of one snapshot of the node.
`koord_agent.shell.store.series_archive` keeps them over a restart. Samples that are lost make windows cold, but never
give wrong numbers.

Source: agent spec, 5, 10.1.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heapreplace
from math import isfinite
from typing import NamedTuple, TypeAlias

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.metrics.metric_kinds import CYCLES, INSTRUCTIONS, LABELS, PSI_PRECISION, Kind

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
OUT_OF_ORDER_MS = 60_000
LOOK_EVERY = 8
"""Samples of a series after which old ones are looked for. The look touches memory that nothing else does."""
SAMPLE_BYTES = 16
DEFAULT_RETENTION_MS = 12 * 3600 * 1000
DEFAULT_MAX_BYTES = 100 * 1024 * 1024


Of: TypeAlias = str | tuple[str, ...]
"""Labels that identify one series of a kind. See `SeriesStore`."""
LAST_LOOKBACK_INTERVALS = 2


class Sample(NamedTuple):
    """One value of one time series."""

    kind: Kind
    at_ms: int
    value: float
    of: Of = ""  # Key of the measured object, such as a UID; "" for the node


def require_labels(kind: Kind, of: Of) -> None:
    """Raises InvalidInput: `of` names an object with other labels than the kind has. The message has both."""
    names = LABELS[kind]
    fits = of == "" if not names else (isinstance(of, str) and bool(of) if len(names) == 1 else len(of) == len(names))
    if not fits or (len(names) > 1 and isinstance(of, str)):
        raise InvalidInput(f"a value for each of the labels {names}", of, kind)


class NoSamples(LookupError):
    """Raised if an aggregate other than count is requested for an empty list of samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The samples of one query: times in milliseconds, and as many values."""

    times_ms: Sequence[int]
    values: Sequence[float]

    @property
    def span_ms(self) -> int:
        """Newest minus oldest time (D-6); 0 without samples."""
        return max(self.times_ms) - min(self.times_ms) if len(self.times_ms) else 0


def aggregate(points: Points, name: str) -> float:
    """Return one number for a list of samples.

        avg                  mean
        p50, p90, p95, p99   sorted value at index int(f32(n) * f32(p)) - 1, at least 0
        last                 value at the newest time, the first of equal times
        count                number of samples

    An unknown name means avg.

    Raises:
        NoSamples: The list is empty; count is 0 then.

    Source:
        agent spec, 5.
    """
    count = len(points.values)
    if name == "count":
        return float(count)
    if not count:
        raise NoSamples(f"{name} of no samples")
    if name in PERCENTILES:
        return sorted(points.values)[percentile_index(count, PERCENTILES[name])]
    if name == "last":
        newest = max(points.times_ms)
        return points.values[list(points.times_ms).index(newest)]
    return sum(points.values) / count


@lru_cache(maxsize=4096)
def percentile_index(count: int, fraction: float) -> int:
    """Return the index of a percentile in a sorted list: int(f32(count) * f32(fraction)) - 1, at least 0.

    f32 means single precision (agent spec, 5). `fraction` is for example 0.95.
    """
    product = _float32(_float32(float(count)) * _float32(fraction))
    return max(int(product) - 1, 0)


def _float32(value: float) -> float:
    """The product of two single-precision values is exact in double precision, so rounding once is enough."""
    return struct.unpack("f", struct.pack("f", value))[0]


def is_cold(points: Points, window_ms: int) -> bool:
    """Whether the samples span less than half of the window, so that there are too few (agent spec, 7.3)."""
    return points.span_ms < 0.5 * window_ms


class Series:
    """The samples of one series, in time order. Another thread may read it while one changes it.

    Each time has its value at any moment, because a value is appended before its time, and all other changes replace
    both arrays at once. So a reader that has taken the arrays sees the samples of one moment.
    """

    __slots__ = ("arrays", "retention_ms")

    def __init__(self, retention_ms: int) -> None:
        self.retention_ms = retention_ms
        self.arrays = array("q"), array("d")  # Times in milliseconds, and values

    def __len__(self) -> int:
        return len(self.arrays[0])

    def append(self, at_ms: int, value: float) -> bool:
        """Add a sample. Return False if it is dropped: it is no number, or over a minute older than the newest one.

        Samples older than the retention are deleted when they are a quarter of all, so an append costs O(1) on
        average. Queries never return them.
        """
        if not isfinite(value):
            return False
        times, values = self.arrays
        if times and at_ms < times[-1]:
            if times[-1] - at_ms > OUT_OF_ORDER_MS:
                return False
            place = bisect_right(times, at_ms)
            times, values = times[:], values[:]
            times.insert(place, at_ms)
            values.insert(place, value)
            self.arrays = times, values
        else:
            values.append(value)
            times.append(at_ms)
        count = len(times)
        if not count % LOOK_EVERY and times[count // 4] < (oldest_kept := times[-1] - self.retention_ms):
            self.drop_before(oldest_kept)
        return True

    def drop_before(self, oldest_kept_ms: int) -> int:
        """Delete the samples that are older than a time, and return their number."""
        cut = bisect_left(self.arrays[0], oldest_kept_ms)
        if cut:
            self._keep(cut, len(self))
        return cut

    def drop_after(self, newest_kept_ms: int) -> int:
        """Delete the samples that are newer than a time, and return their number."""
        cut = bisect_right(self.arrays[0], newest_kept_ms)
        released = len(self) - cut
        if released:
            self._keep(0, cut)
        return released

    def after(self, at_ms: int) -> Points:
        times, values = self.arrays
        low, high = bisect_right(times, at_ms), len(times)
        return Points(times_ms=times[low:high], values=values[low:high])

    def drop_oldest_half(self) -> int:
        """At least one sample. Return their number."""
        cut = (len(self) + 1) // 2
        self._keep(cut, len(self))
        return cut

    def between(self, start_ms: int, end_ms: int) -> Points:
        """Both times are inclusive. Samples older than `end_ms` minus the retention are left out."""
        times, values = self.arrays
        start_ms = max(start_ms, end_ms - self.retention_ms)
        low, high = bisect_left(times, start_ms), bisect_right(times, end_ms)
        return Points(times_ms=times[low:high], values=values[low:high])

    def last(self, start_ms: int, end_ms: int) -> float | None:
        """The newest value; both times are inclusive."""
        times, values = self.arrays
        high = bisect_right(times, end_ms)
        if not high or times[high - 1] < start_ms:
            return None
        return values[bisect_left(times, times[high - 1])]

    @property
    def newest_ms(self) -> int | None:
        times, _ = self.arrays
        return times[-1] if times else None

    def _keep(self, begin: int, end: int) -> None:
        times, values = self.arrays
        self.arrays = times[begin:end], values[begin:end]


class SeriesStore:
    """All time series of a node, by kind of metric and object.

    The argument `of` of its methods names the object: "" for the node itself, the value of the kind's one label, or
    the tuple of values in the order of `metric_kinds.LABELS`. A node has few series of its own and many of its
    objects (pods, containers, ...), which may be kept for a shorter time. One thread changes it. Other threads may read
    series, their number and their size meanwhile, as a scrape of metrics does.

    Args:
        object_retention_ms: Milliseconds for which samples of its objects are kept; None: as for the node.
    """

    def __init__(
        self,
        *,
        retention_ms: int = DEFAULT_RETENTION_MS,
        object_retention_ms: int | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self.retention_ms = retention_ms
        self.object_retention_ms = retention_ms if object_retention_ms is None else object_retention_ms
        self.max_bytes = max_bytes
        self._least_object_retention_ms = self.object_retention_ms
        self._series: dict[Kind, dict[Of, Series]] = {kind: {} for kind in Kind}

    def keep_objects_for(self, window_ms: int) -> None:
        """Keep samples of objects for at least `window_ms`, but never longer than the samples of the node."""
        kept_ms = min(max(self._least_object_retention_ms, window_ms), self.retention_ms)
        if kept_ms == self.object_retention_ms:
            return
        self.object_retention_ms = kept_ms
        for held in self._series.values():
            for of, series in held.items():
                if of != "":
                    series.retention_ms = kept_ms

    def append(self, kind: Kind, at_ms: int, value: float, of: Of = "") -> None:
        """A sample that is over a minute older than the newest of its series, infinite or NaN is dropped.

        Raises:
            InvalidInput: `of` does not name exactly the labels of the kind. Nothing is stored then.
        """
        series = self._series[kind].get(of)
        if series is None:
            require_labels(kind, of)
            series = self._series[kind][of] = Series(self.retention_ms if of == "" else self.object_retention_ms)
        series.append(at_ms, value)

    def append_each(self, kind: Kind, at_ms: int, values: Iterable[tuple[Of, float]]) -> None:
        """`append` for several objects of one kind and time.

        Raises:
            InvalidInput: As for `append`. The objects before it are stored then.
        """
        held = self._series[kind]
        for of, value in values:
            series = held.get(of)
            if series is None:
                self.append(kind, at_ms, value, of)
                continue
            times, stored = series.arrays
            # as `Series.append`, without a call for each of hundreds of samples
            if times and at_ms >= times[-1] and (len(times) + 1) % LOOK_EVERY and isfinite(value):
                stored.append(value)
                times.append(at_ms)
            else:
                series.append(at_ms, value)

    def append_all(self, samples: Sequence[Sample]) -> None:
        """Add all samples or none.

        Raises:
            InvalidInput: The object of a sample does not have exactly the labels of its kind. Nothing is stored then.
        """
        for sample in samples:
            if sample.of not in self._series[sample.kind]:
                require_labels(sample.kind, sample.of)
        for kind, at_ms, value, of in samples:
            self.append(kind, at_ms, value, of)

    def between(self, kind: Kind, start_ms: int, end_ms: int, of: Of = "") -> Points:
        """Both times are inclusive; empty if there is no such series."""
        series = self._series[kind].get(of)
        return series.between(start_ms, end_ms) if series is not None else Points(times_ms=(), values=())

    def last(self, kind: Kind, start_ms: int, end_ms: int, of: Of = "") -> float | None:
        """The newest value; both times are inclusive."""
        series = self._series[kind].get(of)
        return series.last(start_ms, end_ms) if series is not None else None

    def held(self, kind: Kind) -> tuple[Of, ...]:
        """The objects (`of`) of every series of a kind, in no defined order."""
        return tuple(self._series[kind])

    def objects(self, kind: Kind) -> list[str]:
        """The objects of a kind with one label, sorted."""
        return sorted(of for of in self._series[kind] if isinstance(of, str))

    def forget(self, objects: Iterable[str]) -> None:
        """The argument is the ids of objects that have ended, such as pods and containers."""
        gone = set(objects)
        for held in self._series.values():
            for of in [of for of in held if of in gone or (isinstance(of, tuple) and not gone.isdisjoint(of))]:
                del held[of]

    def collect_garbage(self, now_ms: int) -> int:
        """Delete the samples that are older than the retention, and series without samples. Return how many samples.

        If the store is still larger than its limit, delete the older half of the longest series until it fits.

        Source: agent spec, 5 (storage GC).
        """
        released = 0
        for held in self._series.values():
            for of in [of for of, one in held.items() if (one.newest_ms or 0) < now_ms - one.retention_ms]:
                released += len(held.pop(of))
            for series in held.values():
                released += series.drop_before(now_ms - series.retention_ms)
        excess = (self.size_bytes - self.max_bytes) // SAMPLE_BYTES
        if excess > 0:
            by_length = [(-len(series), index, series) for index, series in enumerate(self._all())]
            heapify(by_length)
            while excess > 0 and by_length:
                _, index, longest = by_length[0]
                dropped = longest.drop_oldest_half()
                released, excess = released + dropped, excess - dropped
                if dropped:
                    heapreplace(by_length, (-len(longest), index, longest))
                else:
                    break
        return released

    def clock_set_back(self, now_ms: int) -> int:
        """Delete samples of the future, which would prevent new samples from being added. Return their number."""
        return sum(series.drop_after(now_ms) for series in self._all())

    def newer_than(self, at_ms: int) -> Iterator[tuple[Kind, Of, Points]]:
        """Yield kind, object and new samples of every series that has any."""
        for kind, held in self._series.items():
            for of, series in held.items():
                if (series.newest_ms or 0) > at_ms:
                    yield kind, of, series.after(at_ms)

    @property
    def size_bytes(self) -> int:
        """Time and value of all samples, without overhead."""
        return SAMPLE_BYTES * sum(len(series) for series in self._all())

    def __len__(self) -> int:
        return sum(len(held) for held in self._series.values())

    def _all(self) -> Iterator[Series]:
        for held in self._series.values():
            yield from tuple(held.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The time series of one node at the time `now_ms`.

    Methods return None if the window has no sample. Their argument `of` tells which object the series is about: a pod
    UID, container id, NUMA node or application name. For a kind with several labels, it is a tuple of values. For the
    node itself, it is left out.
    """

    store: SeriesStore
    now_ms: int
    interval_ms: int  # Interval of the collectors. A "last" value is at most two intervals old.

    def last(self, kind: Kind, of: Of = "", *, within_ms: int | None = None) -> float | None:
        """None if the newest value is older than `within_ms`, or than two intervals of the collectors without it."""
        lookback_ms = LAST_LOOKBACK_INTERVALS * self.interval_ms if within_ms is None else within_ms
        return self.store.last(kind, self.now_ms - lookback_ms, self.now_ms, of)

    def over(self, kind: Kind, name: str, window_ms: int, of: Of = "") -> float | None:
        """Return an aggregate over the window that ends now: avg, p50, p90, p95, p99 or last."""
        points = self.store.between(kind, self.now_ms - window_ms, self.now_ms, of)
        return aggregate(points, name) if len(points.values) else None

    def average(self, kind: Kind, window_ms: int, of: Of = "") -> float | None:
        return self.over(kind, "avg", window_ms, of)

    def count(self, kind: Kind, window_ms: int, of: Of = "") -> int:
        return len(self.store.between(kind, self.now_ms - window_ms, self.now_ms, of).values)

    def pressure(self, uid: str, resource: str, degree: str, *, within_ms: int) -> float | None:
        """PSI avg10 of a pod in percent. `resource` is `cpu`, `mem` or `io`; `degree` is `some` or `full`."""
        return self.last(Kind.POD_PSI, (uid, resource, PSI_PRECISION, degree), within_ms=within_ms)

    def cycles_per_instruction(self, uid: str, container_id: str, *, within_ms: int) -> float | None:
        """None if there is no sample within `within_ms`, or if no instruction was counted."""
        cycles = self.last(Kind.CONTAINER_CPI, (uid, container_id, CYCLES), within_ms=within_ms)
        instructions = self.last(Kind.CONTAINER_CPI, (uid, container_id, INSTRUCTIONS), within_ms=within_ms)
        return cycles / instructions if cycles is not None and instructions else None
