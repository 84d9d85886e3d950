"""The best-effort class as a whole: what it uses, what it could use, what it asked for (agent spec, 6.4)."""

from collections.abc import Iterable

UNLIMITED = -1
NANOSECONDS_PER_MILLISECOND = 1_000_000


def be_usage_milli(previous_ns: int | None, current_ns: int, interval_ms: int) -> int | None:
    """Milli-cores used by the best-effort root: int(float(ns div 10^6) / ms * 1000).

    previous_ns   None = first reading, usage 0
    returns       None = no sample: counter fell or interval not positive (D-7)
    """
    if previous_ns is None:
        return 0
    if interval_ms <= 0 or current_ns < previous_ns:
        return None
    return int(float((current_ns - previous_ns) // NANOSECONDS_PER_MILLISECOND) / interval_ms * 1000)


def be_real_limit_milli(cpuset_sizes: Iterable[int], quota_us: int, period_us: int) -> int | None:
    """Milli-cores that best-effort pods can get: the narrowest CPU list, and the root's quota if it has one.

    cpuset_sizes   number of CPUs of the best-effort root and of every directory two levels below it
    returns        None if there is neither a CPU list nor a quota
    """
    limits = [size * 1000 for size in cpuset_sizes]
    if quota_us != UNLIMITED and period_us > 0:
        limits.append(quota_us * 1000 // period_us)
    return min(limits, default=None)


def be_request_milli(batch_cpu_requests: Iterable[int]) -> int:
    """Sum of the positive batch-cpu requests (milli-cores) of the containers of pods labelled BE."""
    return sum(request for request in batch_cpu_requests if request > 0)
