"""Usage, limit and requests of the best-effort class as a whole.

Source: agent spec, 6.4.
"""

from collections.abc import Iterable

UNLIMITED = -1
NANOSECONDS_PER_MILLISECOND = 1_000_000


def be_usage_milli(previous_ns: int | None, current_ns: int, interval_ms: int) -> int | None:
    """Return the CPU usage of the best-effort class in milli-cores: int(float(ns div 10^6) / ms * 1000).

    Args:
        previous_ns: Counter of the earlier reading in nanoseconds; None for the first reading, whose usage is 0.
        current_ns: Counter of the later reading in nanoseconds.
        interval_ms: Milliseconds between the readings.

    Returns:
        The usage. None if the counter fell or the interval is not positive (D-7).
    """
    if previous_ns is None:
        return 0
    if interval_ms <= 0 or current_ns < previous_ns:
        return None
    return int(float((current_ns - previous_ns) // NANOSECONDS_PER_MILLISECOND) / interval_ms * 1000)


def be_real_limit_milli(cpuset_sizes: Iterable[int], quota_us: int, period_us: int) -> int | None:
    """Return the CPU that best-effort pods can get in milli-cores.

    It is the size of the narrowest CPU list, limited by the quota of the root if there is one.

    Args:
        cpuset_sizes: Number of CPUs of the best-effort root and of every directory two levels below it.
        quota_us: Quota in microseconds per period.
        period_us: Length of a period in microseconds.

    Returns:
        The limit. None if there is neither a CPU list nor a quota.
    """
    limits = [size * 1000 for size in cpuset_sizes]
    if quota_us != UNLIMITED and period_us > 0:
        limits.append(quota_us * 1000 // period_us)
    return min(limits, default=None)


def be_request_milli(batch_cpu_requests: Iterable[int]) -> int:
    """Return the sum of the positive batch-cpu requests (milli-cores) of the containers of pods labelled BE."""
    return sum(request for request in batch_cpu_requests if request > 0)
