"""Run functions that read files of a machine in a thread, so that the event loop stays free."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

FINISH_SECONDS: Final = 5.0
"""Longest time for which a cancelled task waits for its thread. A file, a disk or a device may not answer."""


async def finished_in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`finished_in` any thread."""
    return await finished_in(None, partial(call, *args, **kwargs))


async def finished_in(threads: Executor | None, call: Callable[[], T]) -> T:
    """Run a function in a thread, wait until it has finished, and return its result.

    The task may be cancelled meanwhile, also several times. Then it waits for the end of the function, for at most
    `FINISH_SECONDS`, before it ends. Otherwise the steps that end the process would use the agent of a node at the same
    time as its last cycle. The result of the function is dropped then, and so is its error.

    Args:
        threads: None for those of the event loop.

    Raises:
        RuntimeError: The machine has no room for another thread. The function does not run, not even later.
    """
    loop = asyncio.get_running_loop()
    result: Future[T] = Future()

    def run() -> None:
        if result.set_running_or_notify_cancel():
            try:
                result.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                result.set_exception(error)

    try:
        loop.run_in_executor(threads, run)
    except RuntimeError:
        # The executor has the function in its queue, for the next thread that it can start.
        if result.cancel():
            raise
    running = asyncio.wrap_future(result)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(_take_error)
        end = loop.time() + FINISH_SECONDS
        while not running.done() and (left := end - loop.time()) > 0:
            try:
                await asyncio.wait((running,), timeout=left)
            except asyncio.CancelledError:  # as impatient as the first time
                continue
        raise


def _take_error(running: "asyncio.Future[T]") -> None:
    """Take note of the error of a function for which nobody waits, so that asyncio does not log it as forgotten."""
    if not running.cancelled():
        running.exception()
