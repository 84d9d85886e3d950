"""Run functions that read files of a machine in a thread, so that the event loop stays free."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

FINISH_SECONDS: Final = 5.0
"""Longest time for which a cancelled task waits for its thread. A file, a disk or a device may not answer."""


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread and return its result.

    If the task is cancelled, it first waits for the end of the function. Otherwise the steps that end the process would
    use the agent of a node at the same time as its last cycle.
    """
    running = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,), timeout=FINISH_SECONDS)
        raise
