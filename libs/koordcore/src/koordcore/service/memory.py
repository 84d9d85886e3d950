"""Memory that a large request took goes back to the operating system: the C library keeps what was freed."""

import asyncio
import ctypes
from typing import Final

QUIET_SECONDS: Final = 2.0


class MemoryReturn:
    """Returns freed memory some seconds after the last large request, once for all that come in between."""

    def __init__(self) -> None:
        self._due: asyncio.TimerHandle | None = None

    def schedule(self) -> None:
        """Return freed memory in 2 seconds. An earlier schedule is replaced. Must be called in a running event loop."""
        if self._due is not None:
            self._due.cancel()
        loop = asyncio.get_running_loop()
        self._due = loop.call_later(QUIET_SECONDS, loop.run_in_executor, None, return_freed_memory)


def return_freed_memory() -> None:
    """Give freed memory back to the operating system. No-op unless the C library is glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
