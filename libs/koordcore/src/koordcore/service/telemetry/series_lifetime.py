"""Forget the series of a metric whose labels name objects that are gone."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

KEPT_SECONDS: Final = 300.0
"""Time for which series are kept after their object is gone, so that Prometheus reads the last values."""


class SeriesLifetime(Generic[K]):
    """Removes the series of objects that are gone. Objects come and go for as long as the process runs.

    Args:
        exists: Whether the object of a key exists.
        remove: Removes the series of a key.
        now: Returns the seconds of a monotonic clock.
    """

    def __init__(self, exists: Callable[[K], bool], remove: Callable[[K], None], now: Callable[[], float]) -> None:
        self._exists = exists
        self._remove = remove
        self._now = now
        self._seen: dict[K, float] = {}
        """Key -> seconds at which its series were set, or its object existed."""
        self._next_look = 0.0

    def touch(self, key: K) -> None:
        """Note that the series of a key were set.

        If nobody reads the metric, this also calls `forget_gone`, once in `KEPT_SECONDS`.
        """
        now = self._now()
        if now >= self._next_look:
            self.forget_gone()
        self._seen[key] = now

    def forget_gone(self) -> None:
        """Remove the series of objects that have been gone for `KEPT_SECONDS`. Call it before the metric is read."""
        now = self._now()
        self._next_look = now + KEPT_SECONDS
        for key, at in list(self._seen.items()):
            if self._exists(key):
                self._seen[key] = now
            elif now - at > KEPT_SECONDS:
                del self._seen[key]
                self._remove(key)
