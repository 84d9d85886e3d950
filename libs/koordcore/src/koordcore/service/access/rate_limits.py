"""Limits on the rate of requests: one token bucket per subject."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from koordcore.service.access.configuration import Limits

MOST_BUCKETS: Final = 10_000
"""Buckets that are kept. The one that was used longest ago is dropped, which makes it full again."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class TokenBuckets:
    """Token buckets by key. A new bucket is full."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of buckets that are kept."""
        return len(self._buckets)

    def take(self, key: str, cost: float, now: float, limits: Limits) -> int:
        """Take tokens from a bucket.

        A request that costs more than a full bucket takes a full bucket, so that it can be sent at all.

        Args:
            key: Subject whose bucket pays.
            cost: Tokens of the request.
            now: Monotonic time in seconds.
            limits: Size of a bucket, and the tokens that it gains per second.

        Returns:
            0 if the tokens were taken. Otherwise no token was taken, and the result is the number of whole seconds,
            at least 1, after which the bucket will have enough.
        """
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(limits.burst, now)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.tokens = min(limits.burst, bucket.tokens + (now - bucket.at) * limits.requests_per_second)
            bucket.at = now
        wanted = min(cost, limits.burst)
        if bucket.tokens >= wanted:
            bucket.tokens -= wanted
            return 0
        return max(1, math.ceil((wanted - bucket.tokens) / limits.requests_per_second))
