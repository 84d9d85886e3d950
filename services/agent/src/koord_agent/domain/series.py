"""The node's own time series: samples in time order, bounded by retention and size, and the aggregates over them.

Filled by `monitor`, read by `report` and by the QoS strategies. In memory only: a restarted agent starts with empty
series, which its report shows as cold windows rather than as wrong numbers.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
OUT_OF_ORDER_MS = 60_000
SAMPLE_BYTES = 16
DEFAULT_RETENTION_MS = 12 * 3600 * 1000
DEFAULT_MAX_BYTES = 100 * 1024 * 1024


class NoSamples(LookupError):
    """An aggregate (other than count) of no samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Samples of one query: times_ms and values are aligned, in the order in which they are held."""

    times_ms: Sequence[int]
    values: Sequence[float]

    @property
    def span_ms(self) -> int:
        """Newest minus oldest time over all samples (D-6); 0 without samples."""
        return max(self.times_ms) - min(self.times_ms) if len(self.times_ms) else 0


def aggregate(points: Points, name: str) -> float:
    """One number for a list of samples.

    avg; p50, p90, p95, p99 = sorted value at index int(f32(n) * f32(p)) - 1, at least 0; last = newest time, the first
    of equal ones; count. An unknown name means avg.

    raises    NoSamples for an empty list, except count which is 0
    source    agent spec, 5
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
    """Index int(f32(count) * f32(fraction)) - 1 in single precision, never below 0 (agent spec, 5)."""
    product = _float32(_float32(float(count)) * _float32(fraction))
    return max(int(product) - 1, 0)


def _float32(value: float) -> float:
    """Nearest single-precision value. The product of two of them is exact in double, so rounding once is enough."""
    return struct.unpack("f", struct.pack("f", value))[0]


def is_cold(points: Points, window_ms: int) -> bool:
    """Whether the samples span less than half of the window (agent spec, 7.3)."""
    return points.span_ms < 0.5 * window_ms


class Series:
    """Samples of one object, in time order."""

    __slots__ = ("_times", "_values", "retention_ms")

    def __init__(self, retention_ms: int) -> None:
        self.retention_ms = retention_ms
        self._times = array("q")
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._times)

    def append(self, at_ms: int, value: float) -> bool:
        """Keep a sample; False if it is more than a minute older than the newest one (it is dropped).

        Samples beyond the retention are released when they make up half of what is held, so an append costs O(1)
        on average; queries never show them.
        """
        times, values = self._times, self._values
        if times and at_ms < times[-1]:
            if times[-1] - at_ms > OUT_OF_ORDER_MS:
                return False
            place = bisect_right(times, at_ms)
            times.insert(place, at_ms)
            values.insert(place, value)
        else:
            times.append(at_ms)
            values.append(value)
        oldest_kept = times[-1] - self.retention_ms
        if len(times) >= 8 and times[len(times) // 2] < oldest_kept:
            self.drop_before(oldest_kept)
        return True

    def drop_before(self, oldest_kept_ms: int) -> int:
        """Release samples older than the given time; how many were released."""
        cut = bisect_left(self._times, oldest_kept_ms)
        if cut:
            del self._times[:cut]
            del self._values[:cut]
        return cut

    def drop_oldest_half(self) -> int:
        """Release the older half of the samples (at least one); how many were released."""
        cut = (len(self._times) + 1) // 2
        del self._times[:cut]
        del self._values[:cut]
        return cut

    def between(self, start_ms: int, end_ms: int) -> Points:
        """Samples in [start, end], both inclusive, never one older than the retention before end."""
        start_ms = max(start_ms, end_ms - self.retention_ms)
        low, high = bisect_left(self._times, start_ms), bisect_right(self._times, end_ms)
        return Points(times_ms=self._times[low:high], values=self._values[low:high])

    def last(self, start_ms: int, end_ms: int) -> float | None:
        """Newest sample in [start, end]; None = no sample there."""
        high = bisect_right(self._times, end_ms)
        if not high or self._times[high - 1] < start_ms:
            return None
        low = bisect_left(self._times, self._times[high - 1])
        return self._values[low]

    @property
    def newest_ms(self) -> int | None:
        """Time of the newest sample; None = no sample yet."""
        return self._times[-1] if self._times else None


class SeriesStore:
    """All series of a node, by (kind, object): kind is a metric kind of the protocol, object "" for the node itself."""

    def __init__(self, *, retention_ms: int = DEFAULT_RETENTION_MS, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.retention_ms = retention_ms
        self.max_bytes = max_bytes
        self._series: dict[tuple[str, str], Series] = {}

    def append(self, kind: str, at_ms: int, value: float, of: str = "") -> None:
        """Add one sample."""
        key = (kind, of)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(self.retention_ms)
        series.append(at_ms, value)

    def between(self, kind: str, start_ms: int, end_ms: int, of: str = "") -> Points:
        """Samples of one series in [start, end]; empty if there is no such series."""
        series = self._series.get((kind, of))
        return series.between(start_ms, end_ms) if series is not None else Points(times_ms=(), values=())

    def last(self, kind: str, start_ms: int, end_ms: int, of: str = "") -> float | None:
        """Newest sample of one series in [start, end]; None = none."""
        series = self._series.get((kind, of))
        return series.last(start_ms, end_ms) if series is not None else None

    def objects(self, kind: str) -> list[str]:
        """Names of the objects that have a series of this kind, sorted."""
        return sorted(of for held, of in self._series if held == kind)

    def forget(self, objects: Iterable[str]) -> None:
        """Drop every series of these objects (a pod that is gone)."""
        gone = set(objects)
        self._series = {key: series for key, series in self._series.items() if key[1] not in gone}

    def collect_garbage(self, now_ms: int) -> int:
        """Drop expired samples, silent series and, above the size cap, the oldest half of the longest series.

        returns   samples released
        source    agent spec, 5 (storage GC)
        """
        released = 0
        oldest_kept = now_ms - self.retention_ms
        for key in [k for k, s in self._series.items() if (s.newest_ms or 0) < oldest_kept]:
            released += len(self._series.pop(key))
        for series in self._series.values():
            released += series.drop_before(oldest_kept)
        while self.size_bytes > self.max_bytes:
            longest = max(self._series.values(), key=len)
            released += longest.drop_oldest_half()
        return released

    @property
    def size_bytes(self) -> int:
        """Bytes of samples held (time and value, without overhead)."""
        return SAMPLE_BYTES * sum(len(series) for series in self._series.values())
