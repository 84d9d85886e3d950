"""Files whose age tells the probes of a container how a command without a port is."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

PERIOD_SECONDS: Final = 10.0
ALIVE: Final = "alive"
READY: Final = "ready"


@asynccontextmanager
async def probe_files_kept(folder: Path | None, is_ready: Callable[[], bool]) -> AsyncGenerator[None]:
    """Touch `alive` every 10 s while the event loop turns, and `ready` while `is_ready` returns True, until the block
    ends. No-op if `folder` is None.
    """
    if folder is None:
        yield
        return
    keeping = asyncio.create_task(_keep(folder, is_ready))
    try:
        yield
    finally:
        keeping.cancel()


async def _keep(folder: Path, is_ready: Callable[[], bool]) -> None:
    while True:
        _touch(folder, (ALIVE, READY) if is_ready() else (ALIVE,))
        await asyncio.sleep(PERIOD_SECONDS)


def _touch(folder: Path, names: tuple[str, ...]) -> None:
    """Touch the files. If the folder cannot be written, the probes end the container, not an error the command."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).touch()
