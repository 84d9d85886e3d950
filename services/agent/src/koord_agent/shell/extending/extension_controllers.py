"""Run controllers of installed packages, each in a thread with its own event loop.

A controller that blocks does not delay the agent. If it ends or fails, this is logged and it is started again, with
growing delays.
"""

import asyncio
import threading
import time
from asyncio import sleep
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from koordcore.service.lifecycle import Component
from koordcore.service.telemetry.logging import Logger

from koord_agent.domain.extending.extension_points import Point, RunController
from koord_agent.domain.extending.extensions import Extensions
from koord_agent.domain.failure import failure

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Longest pause. A controller that ran for this long has worked, so its next pause is the first one again."""


def controller_components(
    extensions: Extensions,
    logger: Logger,
    *,
    first_pause_seconds: float = FIRST_PAUSE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> list[Component]:
    return [
        Component(
            name=f"extension-{name}", run=_Controller(name, run, extensions, logger, first_pause_seconds, clock).run
        )
        for name, run in extensions.controllers.items()
    ]


class _Controller:
    def __init__(
        self,
        name: str,
        run: RunController,
        extensions: Extensions,
        logger: Logger,
        first_pause_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._name = name
        self._run = run
        self._extensions = extensions
        self._logger = logger
        self._pause = first_pause_seconds
        self._clock = clock

    async def run(self) -> None:
        pause = self._pause
        while True:
            began = self._clock()
            reason = await self._once()
            if self._clock() - began >= LONGEST_PAUSE_SECONDS:
                pause = self._pause
            self._extensions.failures[Point.CONTROLLER, self._name] += 1
            self._logger.error("extension_failed", point=str(Point.CONTROLLER), name=self._name, reason=reason)
            await sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _once(self) -> str:
        """Return the reason why it ended."""
        ours = asyncio.get_running_loop()
        ended: asyncio.Future[str] = ours.create_future()
        theirs = asyncio.new_event_loop()
        tasks: list[asyncio.Task[None]] = []

        def tell(reason: str) -> None:
            if not ended.done():
                ended.set_result(reason)

        def live() -> None:
            reason = "it returned, although it should run as long as the agent does"
            task = theirs.create_task(_awaited(self._run))
            tasks.append(task)
            try:
                theirs.run_until_complete(task)
            except BaseException as error:  # noqa: BLE001 - also sys.exit() of a package
                reason = failure(f"{Point.CONTROLLER} {self._name}", error)
                if task.done() and not task.cancelled():
                    task.exception()  # taken note of: an exit is not told a second time when the task is forgotten
            finally:
                theirs.close()
                with suppress(RuntimeError):  # the agent's own loop is over
                    ours.call_soon_threadsafe(tell, reason)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        try:
            threading.Thread(target=live, name=f"controller {self._name}", daemon=True).start()
        except RuntimeError as error:  # the machine has no room for another thread
            theirs.close()
            return failure(f"{Point.CONTROLLER} {self._name}", error)
        try:
            return await ended
        finally:
            with suppress(RuntimeError):  # its loop is over
                theirs.call_soon_threadsafe(cancel)  # it runs after `live` has made the task


def _awaited(run: RunController) -> Coroutine[Any, Any, None]:
    async def awaited() -> None:
        await run()

    return awaited()
