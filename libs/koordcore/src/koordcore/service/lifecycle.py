"""Life cycle of a process: start its components in order, run them, and end them in reverse order.

    start   each component's `start`, in order; then its `run` begins as a task
    ready   all have started: readiness, and READY=1 to systemd
    stop    on SIGTERM, SIGINT, `Service.stop` or a failure: in reverse order, each stops taking work and finishes what
            is in hand
    close   in reverse order, each flushes and lets go of what it holds

The whole end must fit into the grace period. A second signal ends the waiting. If a component fails, the process ends
with status 1 and logs the cause. `koordcore.service.run` builds the service; its `compose` adds the components.
"""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from koordcore.ending import end_tasks
from koordcore.service.health import Health
from koordcore.service.telemetry.logging import logger

_log: Final = logger("service.lifecycle")

# What closing may take even when the grace is used up: flushing a buffer must not be lost to a slow request.
_LAST_SECONDS: Final = 2.0
# A blocked event loop cannot keep the grace: this long after it a thread ends the process.
_WATCHDOG_SECONDS: Final = 5.0

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_STUCK: Final = 70

Step = Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Component:
    """One part of a service with the functions that start, run and end it. Each function is optional."""

    name: str  # Name in the log
    # Prepares the component. When it returns, later components may use this one. If it raises, the process ends.
    start: Step | None = None
    run: Step | None = None  # Its main task. It may only return after `stop` was called, unless `finite`.
    # Takes no more work and returns after current work is done; then `run` is awaited. A component with `run` but
    # without `stop` is cancelled instead.
    stop: Step | None = None
    close: Step | None = None  # Flushes and closes resources. It is also called if `start` of a later component failed.
    finite: bool = False  # Whether `run` may return before `stop` was called


class ComponentEnded(RuntimeError):
    """The `run` function of a component returned although the service was not stopping."""


class Service:
    """A process made of components: starts them in order, runs them, and ends them in reverse order.

    Args:
        health: Receives the readiness of the service.
        grace_real_seconds: Real seconds that the end of all components may take together.
    """

    def __init__(self, name: str, *, health: Health, grace_real_seconds: float = 20.0) -> None:
        self.name = name
        self.failures: list[BaseException] = []
        self._health = health
        self._grace = grace_real_seconds
        self._components: list[Component] = []
        self._started: list[Component] = []
        self._tasks: dict[Component, asyncio.Task[None]] = {}
        self._stop_reason: str | None = None
        self._stop_requested = asyncio.Event()
        self._hurry = asyncio.Event()
        self._running = health.readiness_condition("running", "starting")

    def add(self, component: Component) -> None:
        """Add a component. It starts after the components that were added before. Call it before `run`."""
        self._components.append(component)

    @property
    def stopping(self) -> bool:
        """Whether the service is stopping and must begin no new work."""
        return self._stop_reason is not None

    async def stopped(self) -> None:
        """Wait until the service begins to stop."""
        await self._stop_requested.wait()

    def stop(self, reason: str) -> None:
        """Begin to stop the service. If it is called repeatedly, only the first reason is recorded."""
        if self._stop_reason is None:
            self._stop_reason = reason
            self._running.unmet(f"stopping: {reason}")
            self._stop_requested.set()

    async def run(self, *, handle_signals: bool = True) -> int:
        """Start the components, run them until the service stops, end them, and return the exit status. If the task is
        cancelled, the service stops, and the cancellation is raised again. `handle_signals`: whether SIGTERM and SIGINT
        stop the service.

        Returns:
            0; 1 if a component failed (see `failures`). If the event loop is blocked until 7 s after the grace period,
            the process ends with status 70 instead.
        """
        if handle_signals:
            self._listen_to_signals()
        async with asyncio.TaskGroup() as group:
            try:
                await self._start_all(group)
                if not self.stopping:
                    self._running.met()
                    notify_systemd("READY=1")
                    _log.info("service_ready", components=[component.name for component in self._started])
                await self._stop_requested.wait()
            except asyncio.CancelledError:
                self.stop("cancelled")
                raise
            finally:
                await self._end()
        _log.info("service_stopped", reason=self._stop_reason, failures=len(self.failures))
        return EXIT_FAILED if self.failures else EXIT_OK

    async def _start_all(self, group: asyncio.TaskGroup) -> None:
        for component in self._components:
            if self.stopping:
                return
            if component.start is not None:
                self._running.unmet(f"starting {component.name}")
                if not await self._started_before_stop(component.name, component.start):
                    return
            self._started.append(component)
            if component.run is not None:
                self._tasks[component] = group.create_task(
                    self._supervise(component, component.run), name=component.name
                )

    async def _started_before_stop(self, name: str, start: Step) -> bool:
        """Return whether the component started; a stop during a long start cancels the start."""
        starting = asyncio.ensure_future(start())
        stopping = asyncio.ensure_future(self._stop_requested.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not starting.done():
                await end_tasks(starting)
        if starting.cancelled():
            return False
        error = starting.exception()
        if error is not None:
            self._fail(name, "start", error)
        return error is None

    async def _supervise(self, component: Component, run: Step) -> None:
        try:
            await run()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.stopping or (task is not None and task.cancelling()):
                raise
            # something that it waited for was cancelled, and nobody cancelled the component
            self._fail(component.name, "run", ComponentEnded(f"{component.name} was cancelled from within"))
        except Exception as error:  # noqa: BLE001  the end of the process, with its cause logged
            self._fail(component.name, "run", error)
        else:
            if not self.stopping and not component.finite:
                self._fail(component.name, "run", ComponentEnded(f"{component.name} ended before it was told to"))

    def _fail(self, component: str, step: str, error: BaseException) -> None:
        self.failures.append(error)
        _log.error("component_failed", component=component, step=step, error=_sentence(error), exc_info=error)
        self.stop(f"{component} failed")

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        self._running.unmet(f"stopping: {self._stop_reason}")
        notify_systemd("STOPPING=1")
        _log.info("service_stopping", reason=self._stop_reason, grace_seconds=self._grace)
        watchdog = threading.Timer(self._grace + _LAST_SECONDS + _WATCHDOG_SECONDS, os._exit, (EXIT_STUCK,))
        watchdog.daemon = True
        watchdog.start()
        try:
            for component in reversed(self._started):
                await self._stop_one(component, deadline)
            for component in reversed(self._started):
                if component.close is not None:
                    await self._bounded(
                        component.name, "close", component.close, max(deadline, loop.time() + _LAST_SECONDS)
                    )
        finally:
            watchdog.cancel()

    async def _stop_one(self, component: Component, deadline: float) -> None:
        task = self._tasks.get(component)
        if component.stop is not None:
            await self._bounded(component.name, "stop", component.stop, deadline)
        elif task is not None:
            task.cancel()
        if task is None:
            return
        if not await self._done_in_time(task, deadline):
            _log.warning("component_cut_off", component=component.name, step="run")
            task.cancel()
            await asyncio.wait((task,), timeout=_LAST_SECONDS)

    async def _bounded(self, name: str, step: str, action: Step, deadline: float) -> None:
        task = asyncio.ensure_future(action())
        if not await self._done_in_time(task, deadline):
            _log.warning("component_cut_off", component=name, step=step)
            task.cancel()
            await asyncio.wait((task,), timeout=_LAST_SECONDS)
        elif not task.cancelled() and (error := task.exception()) is not None:
            self._fail(name, step, error)

    async def _done_in_time(self, task: "asyncio.Future[None]", deadline: float) -> bool:
        """Return whether the task ended before the deadline and before a second signal."""
        loop = asyncio.get_running_loop()
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            left = max(0.0, deadline - loop.time())
            await asyncio.wait((task, hurry), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
        return task.done()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def on_signal(number: signal.Signals) -> None:
            if self.stopping:
                self._hurry.set()
            self.stop(number.name)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def notify_systemd(state: str) -> bool:
    """Send `READY=1` or `STOPPING=1` to systemd, and return whether it was sent. No-op if the process does not run
    under systemd. An error is logged, not raised.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.connect(address)
            out.sendall(state.encode())
    except OSError as error:
        _log.warning("systemd_not_notified", state=state, error=str(error))
        return False
    return True
