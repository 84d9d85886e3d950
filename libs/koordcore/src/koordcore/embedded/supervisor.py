"""Start, watch and stop the processes of a stack.

The processes are declared as `ProcessSpec` values. They start in parallel as far as their order allows, restart with
back-off if they end by themselves, and stop in reverse order. A supervisor runs inside an asyncio program (`async with
Supervisor(...)`) or as a background process (`run_until_stopped`, started by `background`). After every change it
writes `stack.json`; see `stack`. On a full disk, it goes on without: it writes the file again when there is space.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from koordcore.embedded import stack
from koordcore.embedded.errors import EmbeddedError, NotRestartableError
from koordcore.embedded.identity import identify
from koordcore.embedded.process import ChildProcess, ProcessSpec
from koordcore.ending import end_tasks

LOOK_SECONDS: Final = 2.0  # Time between two looks at a process (`restart_reason`), and at a state file to be written


class Supervisor:
    """Starts, watches, restarts and stops a stack: a list of child processes with an order. One task starts and stops
    it. Any task of this event loop may call `status`, `kill` and `wait_ready`.

    Args:
        specs: Processes with unique names. Their `after` fields must not form a cycle.
        state_file: State file, for example var/run/stack.json. Only one live supervisor may use it.
        log: Called with one sentence per event, for the operator. A sentence that cannot be written is lost.
        look_seconds: Real seconds between two looks at a process and at an unwritten state file.
    """

    def __init__(
        self,
        specs: Iterable[ProcessSpec],
        *,
        state_file: Path,
        log: Callable[[str], None] | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._managed = {spec.name: _Managed(spec) for spec in require_startable(tuple(specs))}
        self._state_file = state_file
        self._lock = stack.StackLock(state_file)
        self._tell = log or _say_nothing
        self._look_seconds = look_seconds
        self._is_recorded = True
        self._phase = stack.Phase.STARTING
        self._error = ""
        self._watchers: list[asyncio.Task[None]] = []
        me = identify(os.getpid())
        assert me is not None, "our own process is alive"
        self._identity = me

    def status(self) -> stack.Stack:
        phase = self._phase
        if phase is stack.Phase.READY and any(m.state is not stack.ProcessState.READY for m in self._managed.values()):
            phase = stack.Phase.DEGRADED
        return stack.Stack(
            phase=phase,
            supervisor=self._identity,
            processes=tuple(managed.status() for managed in self._managed.values()),
            error=self._error,
        )

    async def start(self) -> None:
        """Start all processes, wait until they are ready, then watch them in the background. Processes that outlived an
        earlier supervisor are stopped first. If a start fails, all processes are stopped.

        Raises:
            AlreadyRunningError: A live supervisor uses the state file.
            StartError: A process ended or was not ready in time.
        """
        self._lock.acquire()
        before = stack.read_stack(self._state_file)
        if before is not None and before.supervisor != self._identity and await stack.stop_orphans(before):
            self._log("stopped processes that an earlier supervisor had left")
        self._phase = stack.Phase.STARTING
        self._record()
        try:
            async with asyncio.TaskGroup() as group:
                for managed in self._managed.values():
                    group.create_task(self._start_one(managed), name=f"start {managed.spec.name}")
        except BaseExceptionGroup as failures:
            cause = _first_leaf(failures)
            self._error = str(cause)
            await self._stop_all(stack.Phase.FAILED)
            self._lock.release()
            raise cause from failures
        except asyncio.CancelledError:
            await self.stop()
            raise
        self._phase = stack.Phase.READY
        self._watchers = [
            asyncio.create_task(self._watch(managed), name=f"watch {managed.spec.name}")
            for managed in self._managed.values()
        ]
        self._watchers.append(asyncio.create_task(self._look(), name="look"))
        self._record()

    async def stop(self) -> None:
        """Stop all processes in reverse order and remove the state file. Each process has its own deadline before it is
        killed. No-op if the stack was never started.
        """
        if self._lock.is_held:
            await self._stop_all(stack.Phase.STOPPED)
            stack.forget_stack(self._state_file)
            self._lock.release()

    async def run_until_stopped(self) -> None:
        """Start the stack, wait for SIGTERM or SIGINT, then stop it. A signal during the start ends the start. For
        programs that do nothing but run the stack.

        Raises:
            AlreadyRunningError: A live supervisor uses the state file.
            StartError: A process ended or was not ready in time during the start.
        """
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, stopping.set)
        starting = asyncio.create_task(self.start())
        waiting = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.is_set():
                await starting  # raises what went wrong
                await waiting
            await end_tasks(starting)
        finally:
            waiting.cancel()
            await self.stop()
            for number in numbers:
                loop.remove_signal_handler(number)

    async def kill(self, name: str) -> None:
        """Kill one process with SIGKILL, for demonstrations and tests. Its restart policy then applies."""
        await self._managed[name].child.kill()

    async def restart(self, name: str, *, seconds: float) -> None:
        """Stop one process by its stop signal, let its restart policy start it again, and wait until it is ready.
        `seconds`: time to wait until it is ready again.

        Raises:
            EmbeddedError: It was not ready within `seconds`.
        """
        managed = self._managed[name]
        restarts = managed.restarts
        await managed.child.stop()
        await self.wait_ready(name, seconds=seconds, after_restarts=restarts + 1)

    async def wait_ready(self, name: str, *, seconds: float, after_restarts: int = 0) -> None:
        """Wait until a process is ready and has been restarted at least `after_restarts` times. `after_restarts`:
        Number of restarts since the stack was started.

        Raises:
            EmbeddedError: It was not ready within `seconds`.
        """
        managed = self._managed[name]
        try:
            async with asyncio.timeout(seconds):
                while managed.state is not stack.ProcessState.READY or managed.restarts < after_restarts:
                    await managed.changed.wait()
        except TimeoutError as error:
            raise EmbeddedError(f"{name} is {managed.state} after {seconds:g} s") from error

    async def __aenter__(self) -> "Supervisor":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Shielded: a cancelled caller must not leave processes behind.
        await asyncio.shield(self.stop())

    async def _start_one(self, managed: "_Managed") -> None:
        for name in managed.spec.after:
            await self._managed[name].first_ready.wait()
        began = time.monotonic()
        self._set(managed, stack.ProcessState.STARTING)
        await managed.child.start()
        managed.first_ready.set()
        self._set(managed, stack.ProcessState.READY)
        self._log(f"{managed.spec.name} is ready after {time.monotonic() - began:.2f} s")

    async def _watch(self, managed: "_Managed") -> None:
        """Restart one process whenever it ends, for as long as the stack runs."""
        policy = managed.spec.restart
        in_a_row = 0
        while True:
            began = time.monotonic()
            if managed.state is stack.ProcessState.READY:
                managed.last_exit = await managed.child.wait_exit()
                managed.last_words = _last_words(managed.child)
                self._log(f"{managed.spec.name} ended with exit code {managed.last_exit}")
            if time.monotonic() - began >= policy.steady_after_seconds:
                in_a_row = 0
            if not policy.enabled or (policy.max_restarts is not None and in_a_row >= policy.max_restarts):
                self._set(managed, stack.ProcessState.GIVEN_UP)
                self._log(f"{managed.spec.name} is given up after {in_a_row} restarts in a row")
                return
            self._set(managed, stack.ProcessState.BACKING_OFF)
            await asyncio.sleep(policy.delay_seconds(in_a_row))
            in_a_row += 1
            managed.restarts += 1
            self._set(managed, stack.ProcessState.STARTING)
            try:
                await managed.child.start()
            except NotRestartableError as error:
                managed.last_exit, managed.last_words = managed.child.exit_code, str(error)
                self._set(managed, stack.ProcessState.GIVEN_UP)
                self._log(f"{managed.spec.name} is given up: {error}")
                return
            except (EmbeddedError, OSError) as error:
                managed.last_exit = managed.child.exit_code
                managed.last_words = _last_words(managed.child)
                self._log(f"{managed.spec.name} could not be restarted: {error}")
                continue
            self._set(managed, stack.ProcessState.READY)
            self._log(f"{managed.spec.name} is ready again")

    async def _look(self) -> None:
        """Stop each process that has a reason to be restarted, which its watcher then does, and write a state file that
        could not be written before.
        """
        while True:
            await asyncio.sleep(self._look_seconds)
            for managed in self._managed.values():
                if managed.spec.restart_reason is None or managed.state is not stack.ProcessState.READY:
                    continue
                with contextlib.suppress(OSError):
                    if reason := await managed.spec.restart_reason():
                        self._log(f"{managed.spec.name} is restarted: {reason}")
                        await managed.child.stop()
            if not self._is_recorded:
                self._record()

    async def _stop_all(self, end: stack.Phase) -> None:
        self._phase = stack.Phase.STOPPING
        self._record()
        await end_tasks(*self._watchers)
        self._watchers = []
        stopped = {name: asyncio.Event() for name in self._managed}

        async def stop_one(managed: "_Managed") -> None:
            # Whoever needs this process goes first.
            for other in self._managed.values():
                if managed.spec.name in other.spec.after:
                    await stopped[other.spec.name].wait()
            if managed.child.is_running:
                await managed.child.stop()
                self._log(f"{managed.spec.name} is stopped")
            stopped[managed.spec.name].set()
            self._set(managed, stack.ProcessState.STOPPED)

        await asyncio.gather(*(stop_one(managed) for managed in self._managed.values()))
        self._phase = end
        self._record()

    def _set(self, managed: "_Managed", state: stack.ProcessState) -> None:
        managed.state = state
        managed.changed.set()
        managed.changed = asyncio.Event()
        self._record()

    def _record(self) -> None:
        """Write the state file. A watcher must not end because the disk is full, so an error is only told."""
        try:
            stack.write_stack(self._state_file, self.status())
        except OSError as error:
            if self._is_recorded:
                self._log(f"the state file cannot be written, and shows an earlier state: {error}")
            self._is_recorded = False
        else:
            self._is_recorded = True

    def _log(self, sentence: str) -> None:
        with contextlib.suppress(OSError):
            self._tell(sentence)


class _Managed:
    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.child = ChildProcess(spec)
        self.state = stack.ProcessState.WAITING
        self.restarts = 0
        self.last_exit: int | None = None
        self.last_words = ""
        self.first_ready = asyncio.Event()
        self.changed = asyncio.Event()

    def status(self) -> stack.ProcessStatus:
        return stack.ProcessStatus(
            name=self.spec.name,
            state=self.state,
            process=self.child.identity,
            restarts=self.restarts,
            last_exit=self.last_exit,
            last_words=self.last_words,
            ports=dict(self.spec.ports),
            urls=dict(self.spec.urls),
            log_file=None if self.spec.log_file is None else str(self.spec.log_file),
            stop_signal=int(self.spec.stop_signal),
            stop_seconds=self.spec.stop_seconds,
        )


def _last_words(child: ChildProcess) -> str:
    try:
        return child.last_words()
    except OSError as error:
        return f"its log cannot be read: {error}"


def _say_nothing(_sentence: str) -> None:
    """Discard the sentence: the default operator log."""


def require_startable(specs: tuple[ProcessSpec, ...]) -> tuple[ProcessSpec, ...]:
    """Check that an order exists in which the processes can be started. Return them unchanged.

    Raises:
        EmbeddedError: A name occurs twice, `after` has an unknown name, or there is a cycle.
    """
    names = [spec.name for spec in specs]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise EmbeddedError(f"processes with the same name: {', '.join(doubled)}")
    for spec in specs:
        unknown = sorted(set(spec.after) - set(names))
        if unknown:
            raise EmbeddedError(f"{spec.name}.after names {', '.join(unknown)}, which is not part of the stack")
    startable: set[str] = set()
    waiting = list(specs)
    while waiting:
        ready = [spec for spec in waiting if startable.issuperset(spec.after)]
        if not ready:
            raise EmbeddedError(f"processes wait for each other: {', '.join(spec.name for spec in waiting)}")
        startable.update(spec.name for spec in ready)
        waiting = [spec for spec in waiting if spec.name not in startable]
    return specs


def _first_leaf(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first_leaf(first) if isinstance(first, BaseExceptionGroup) else first  # pyright: ignore[reportUnknownArgumentType]  # narrowing loses the parameter
