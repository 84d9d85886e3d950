"""A token bucket: a container may exceed its CPU limit while it has tokens that it saved below the limit.

Source: agent spec, 13.4. Vectors: cpu_burst, op limiter.
"""

from dataclasses import dataclass

CONSUMES_FROM_PERCENT = 100
SAVES_BELOW_PERCENT = 60
LARGEST_START_FRACTION = 0.5


@dataclass(slots=True, kw_only=True)
class BurstLimiter:
    """The token bucket of one container, which limits how long it may exceed its CPU limit.

    Attributes:
        period_seconds: Period of the burst policy; a negative period disables the limit.
        percent: Highest quota of the burst policy, in percent of the limit.
        tokens: Present number of tokens. A token is one percent above the limit for one second.
        updated_ms: Time of the last update in milliseconds.
    """

    period_seconds: int
    percent: int
    tokens: int
    updated_ms: int

    @property
    def capacity(self) -> int:
        """Largest number of tokens that the container can save."""
        return capacity_tokens(self.period_seconds, self.percent)

    @property
    def expire_seconds(self) -> int:
        """Seconds without use after which the token bucket is dropped: two periods."""
        return 2 * self.period_seconds

    def allows(self) -> bool:
        """Return whether the container may exceed its CPU limit now, because it has tokens."""
        return self.tokens > 0

    def step(self, usage_percent: int, now_ms: int) -> bool:
        """Spend or save tokens for the time since the last step. Return whether the container may exceed its limit.

        Only whole seconds count, and the rest is lost: pass times that are whole seconds. Tokens are spent at a usage
        of 100 % and above, and saved below 60 %.

        Args:
            usage_percent: CPU usage in percent of the limit.
            now_ms: Time in milliseconds.
        """
        seconds = max(now_ms - self.updated_ms, 0) // 1000
        self.updated_ms = now_ms
        if usage_percent >= CONSUMES_FROM_PERCENT:
            self.tokens -= (usage_percent - 100) * seconds
        elif usage_percent < SAVES_BELOW_PERCENT:
            self.tokens += (100 - usage_percent) * seconds
        self.tokens = min(max(self.tokens, -self.capacity), self.capacity)
        return self.allows()


def capacity_tokens(period_seconds: int, percent: int) -> int:
    """Return the largest number of tokens of a bucket: period * (percent - 100).

    Args:
        period_seconds: Period of the burst policy in seconds.
        percent: Highest quota of the burst policy, in percent of the limit.
    """
    return period_seconds * (percent - 100)


def new_limiter(period_seconds: int, percent: int, *, start_fraction: float, now_ms: int) -> BurstLimiter:
    """Return the token bucket of a container, filled with a part of its capacity.

    Args:
        period_seconds: Period of the burst policy in seconds.
        percent: Highest quota of the burst policy, in percent of the limit.
        start_fraction: Random number from 0 to 0.5, so that containers do not run out of tokens at the same time.
        now_ms: Time in milliseconds.
    """
    tokens = int(capacity_tokens(period_seconds, percent) * min(max(start_fraction, 0.0), LARGEST_START_FRACTION))
    return BurstLimiter(period_seconds=period_seconds, percent=percent, tokens=tokens, updated_ms=now_ms)
