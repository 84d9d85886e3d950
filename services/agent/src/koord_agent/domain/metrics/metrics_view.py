"""Access to recent samples for strategies: last value, average, percentile or count over a window.

All answers are for the time of one snapshot of the node, so a whole cycle uses the same samples.

Source: agent spec, 5, 10.1.
"""

from dataclasses import dataclass

from koord_agent.domain.metrics.metric_kinds import CYCLES, INSTRUCTIONS, PSI_PRECISION, Kind
from koord_agent.domain.metrics.series import Of, SeriesStore, aggregate

LAST_LOOKBACK_INTERVALS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The time series of one node at the time `now_ms`.

    Methods return None if the window has no sample. Their argument `of` tells which object the series is about: a pod
    UID, container id, NUMA node or application name. For a kind with several labels, it is a tuple of values. For the
    node itself, it is left out.

    Attributes:
        store: The series.
        now_ms: Time in milliseconds.
        interval_ms: Interval of the collectors. A "last" value is at most two intervals old.
    """

    store: SeriesStore
    now_ms: int
    interval_ms: int

    def last(self, kind: Kind, of: Of = "", *, within_ms: int | None = None) -> float | None:
        """Return the newest value of a series; None if it is older than `within_ms`.

        If `within_ms` is None, the limit is two intervals of the collectors.
        """
        lookback_ms = LAST_LOOKBACK_INTERVALS * self.interval_ms if within_ms is None else within_ms
        return self.store.last(kind, self.now_ms - lookback_ms, self.now_ms, of)

    def over(self, kind: Kind, name: str, window_ms: int, of: Of = "") -> float | None:
        """Return an aggregate of a series over the window that ends now.

        Args:
            kind: Kind of the metric.
            name: Aggregate: avg, p50, p90, p95, p99 or last.
            window_ms: Length of the window in milliseconds.
            of: Object that the series is about.
        """
        points = self.store.between(kind, self.now_ms - window_ms, self.now_ms, of)
        return aggregate(points, name) if len(points.values) else None

    def average(self, kind: Kind, window_ms: int, of: Of = "") -> float | None:
        """Return the mean of a series over the window of `window_ms` that ends now."""
        return self.over(kind, "avg", window_ms, of)

    def count(self, kind: Kind, window_ms: int, of: Of = "") -> int:
        """Return the number of samples of a series in the window of `window_ms` that ends now; 0 without samples."""
        return len(self.store.between(kind, self.now_ms - window_ms, self.now_ms, of).values)

    def pressure(self, uid: str, resource: str, degree: str, *, within_ms: int) -> float | None:
        """Return the newest PSI avg10 of a pod in percent; None if there is no sample.

        Args:
            uid: UID of the pod.
            resource: `cpu`, `mem` or `io`.
            degree: `some` or `full`.
            within_ms: Largest age of a sample in milliseconds.
        """
        return self.last(Kind.POD_PSI, (uid, resource, PSI_PRECISION, degree), within_ms=within_ms)

    def cycles_per_instruction(self, uid: str, container_id: str, *, within_ms: int) -> float | None:
        """Return the newest CPI (cycles per instruction) of a container.

        Return None if there is no sample within `within_ms`, or if no instruction was counted.
        """
        cycles = self.last(Kind.CONTAINER_CPI, (uid, container_id, CYCLES), within_ms=within_ms)
        instructions = self.last(Kind.CONTAINER_CPI, (uid, container_id, INSTRUCTIONS), within_ms=within_ms)
        return cycles / instructions if cycles is not None and instructions else None
