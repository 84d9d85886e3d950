"""CPU quotas and burst buffers in files whose CFS period is not 100 ms.

In all code, a quota or burst buffer is microseconds per 100 ms. A kubelet may choose another period for its cgroups
(`cpuCFSQuotaPeriod`), and the kernel counts both files per period. So hosts add the period to a text that they read, as
cpu.max of cgroup v2 has it (`20000 10000`), and convert values when they write.
"""

CFS_PERIOD_US = 100_000
MIN_QUOTA_US = 1_000
"""Smallest quota that the kernel accepts, whatever the period is."""
UNLIMITED = -1
QUOTA, BURST = "cpu.cfs_quota_us", "cpu.cfs_burst_us"
PER_PERIOD = (QUOTA, BURST)
"""Files that count microseconds per CFS period."""


def in_period(name: str, us: int, period_us: int) -> int:
    """Return the number in the file for `us` per 100 ms. A limited quota is at least 1 ms. -1 stays."""
    if period_us == CFS_PERIOD_US or us <= 0:
        return us
    number = us * period_us // CFS_PERIOD_US
    return max(number, MIN_QUOTA_US) if name == QUOTA else number


def per_100_ms(number: int, period_us: int) -> int:
    """Return the microseconds per 100 ms of a number in a file. -1 stays."""
    return number if number <= 0 else number * CFS_PERIOD_US // period_us


def split_period(text: str) -> tuple[str, int]:
    """Return the number of a text as it is, and the period in microseconds; 100 ms without a valid one."""
    number, _, period = text.strip().partition(" ")
    is_valid = period.isascii() and period.isdecimal() and int(period[:20]) > 0
    return number, int(period[:20]) if is_valid else CFS_PERIOD_US


def with_period(text: str, period_us: int) -> str:
    """Return a text without period with its period, if that is not 100 ms."""
    return text if period_us == CFS_PERIOD_US else f"{text.strip()} {period_us}"
