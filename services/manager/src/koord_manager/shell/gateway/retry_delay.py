"""How long to wait before the API server is asked again."""

import asyncio
import random


class Backoff:
    """Doubling waits with jitter, from `first` to `most` real seconds, or what the server asks for (Retry-After)."""

    def __init__(self, first: float = 0.2, most: float = 30.0) -> None:
        self._first = first
        self._most = most
        self._next = first

    def reset(self) -> None:
        """It went well: the next wait is a short one."""
        self._next = self._first

    def seconds(self, retry_after: float | None = None) -> float:
        """The next wait; each is longer than the one before."""
        wait = self._next * (0.5 + random.random())  # noqa: S311 - spreading load, not a secret
        self._next = min(self._most, self._next * 2)
        return max(wait, retry_after) if retry_after is not None else wait

    async def wait(self, retry_after: float | None = None) -> None:
        """Waits."""
        await asyncio.sleep(self.seconds(retry_after))
