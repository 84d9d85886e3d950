"""End tasks for certain.

Until Python 3.12, `asyncio.wait_for` loses a cancellation that meets the answer that it waits for. A task that was
cancelled only once then goes on, and whoever waits for its end waits for ever.
"""

import asyncio
from typing import Any, Final

AGAIN_SECONDS: Final = 1.0


async def end_tasks(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel tasks, once a second anew, until all have ended. What they return or raise is dropped.

    Raises:
        CancelledError: The caller was cancelled meanwhile. It is raised after the tasks have ended.
    """
    running, is_cancelled = {task for task in tasks if not task.done()}, False
    while running:
        for task in running:
            task.cancel()
        try:
            _, running = await asyncio.wait(running, timeout=AGAIN_SECONDS)
        except asyncio.CancelledError:
            is_cancelled = True
            running = {task for task in running if not task.done()}
    for task in tasks:
        if not task.cancelled():
            task.exception()  # asyncio logs an exception that nobody has looked at
    if is_cancelled:
        raise asyncio.CancelledError
