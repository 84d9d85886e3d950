"""One child process: declared as a value, started, awaited until ready, stopped.

`ProcessSpec` is the value; `ChildProcess` is the running thing. The single servers (`nats`, `postgres`)
and the `supervisor` of a whole stack are both built on it. Children are watched by polling, not by
signals: the same object then works from any event loop (also uvloop, which cannot change the user of a
child) and from none.
"""

import asyncio
import contextlib
import ctypes
import http.client
import os
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from koordcore.embedded.errors import StartError
from koordcore.embedded.identity import ProcessIdentity, identify
from koordcore.embedded.last_words import last_words

POLL_SECONDS = 0.02
PROBE_SECONDS = 1.0
LOG_TAIL_LINES = 15
LOG_TAIL_BYTES = 16_384
_PR_SET_PDEATHSIG = 1

Ready = str | Callable[[], Awaitable[bool]]
"""When a child counts as ready: an http url that answers 200, or a coroutine function that answers True."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """What the supervisor does with a child that ended by itself.

    Attributes:
        first_delay_seconds: Before the first restart; doubled for each further one.
        max_delay_seconds: Upper bound of the delay.
        steady_after_seconds: A child that ran this long starts again at the first delay.
        max_restarts: In a row without a steady run, then the child is given up; None: for ever.
    """

    enabled: bool = True
    first_delay_seconds: float = 0.2
    max_delay_seconds: float = 10.0
    steady_after_seconds: float = 10.0
    max_restarts: int | None = None

    def delay_seconds(self, restarts_in_a_row: int) -> float:
        """Return the pause before the next restart, `first * 2^n`, at most `max_delay_seconds`."""
        return float(min(self.max_delay_seconds, self.first_delay_seconds * 2 ** min(restarts_in_a_row, 30)))


NEVER_RESTART = RestartPolicy(enabled=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A child process as a value.

    Attributes:
        argv: Program (a path, never searched on PATH when absolute) and arguments.
        env: Added to the parent's environment.
        ready: See Ready; None: ready as soon as it runs.
        after: Names of the processes that must be ready first.
        retry_on: Texts in the log of a failed start that tell of a state that passes: it is tried again.
        prepare: Awaited before every start (first start and restarts).
        log_file: Receives stdout and stderr, appended; None: /dev/null.
        user: Numeric ids to run as; only root may set them.
        group: Numeric ids to run as; only root may set them.
        stop_signal: The signal of a graceful stop.
        stop_seconds: From the stop signal to the kill.
        ports: What the process serves, for the status.
        urls: What the process serves, for the status.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None
    ready: Ready | None = None
    ready_seconds: float = 20.0
    after: tuple[str, ...] = ()
    retry_on: tuple[str, ...] = ()
    prepare: Callable[[], Awaitable[None]] | None = None
    log_file: Path | None = None
    user: int | None = None
    group: int | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0
    restart: RestartPolicy = RestartPolicy()
    ports: Mapping[str, int] = field(default_factory=dict[str, int])
    urls: Mapping[str, str] = field(default_factory=dict[str, str])


class ChildProcess:
    """A started child. Not safe for concurrent start calls; every other method may be called from any task."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_began = 0
        self.identity: ProcessIdentity | None = None
        """Set from the start on; kept after the end."""

    @property
    def pid(self) -> int | None:
        """The process id, None before the first start."""
        return None if self._popen is None else self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs (and before the start); negative for a signal."""
        return None if self._popen is None else self._popen.poll()

    @property
    def is_running(self) -> bool:
        """Whether the child was started and has not ended."""
        return self._popen is not None and self._popen.poll() is None

    def launch(self) -> None:
        """Start the process without waiting for it to be ready.

        Raises:
            StartError: The program cannot be executed.
        """
        assert not self.is_running, f"{self.spec.name} is launched twice"
        spec = self.spec
        with contextlib.ExitStack() as stack:
            output: IO[bytes] | int = subprocess.DEVNULL
            if spec.log_file is not None:
                spec.log_file.parent.mkdir(parents=True, exist_ok=True)
                log = stack.enter_context(spec.log_file.open("ab"))
                self._log_began = log.tell()
                output = log
            try:
                self._popen = subprocess.Popen(
                    spec.argv,
                    env={**os.environ, **spec.env},
                    cwd=spec.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    user=spec.user,
                    group=spec.group,
                    extra_groups=None if spec.group is None else [spec.group],
                    start_new_session=True,  # Ctrl-C in a terminal reaches us only; we stop children in order
                    preexec_fn=_die_with_parent(spec.stop_signal),
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise StartError(
                    name=spec.name, reason=f"cannot run {spec.argv[0]}: {error}", log_file=spec.log_file, log_tail=""
                ) from error
        self.identity = identify(self._popen.pid)

    async def start(self) -> None:
        """Prepare, launch and wait until ready. A failed or cancelled start leaves no process behind.

        Raises:
            StartError: With the end of the log when it ends early or is not ready within `ready_seconds`.
        """
        deadline = time.monotonic() + self.spec.ready_seconds
        while True:
            if self.spec.prepare is not None:
                await self.spec.prepare()
            self.launch()
            try:
                await self.wait_ready()
            except BaseException as error:
                await self.kill()
                if not self._is_passing(error) or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(POLL_SECONDS)
            else:
                return

    async def wait_ready(self) -> None:
        """Wait until the child is ready; polls every 20 ms.

        Raises:
            StartError: As `start` does.
        """
        deadline = time.monotonic() + self.spec.ready_seconds
        while True:
            if not self.is_running:
                words = self.last_words()
                why = f": {words}" if words else ""
                raise self._start_error(f"ended with exit code {self.exit_code} before it was ready{why}")
            if await is_ready(self.spec.ready):
                return
            if time.monotonic() > deadline:
                raise self._start_error(f"not ready within {self.spec.ready_seconds:g} s")
            await asyncio.sleep(POLL_SECONDS)

    async def wait_exit(self, seconds: float | None = None) -> int | None:
        """Wait for the end and return the exit code; None if it still runs after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.is_running:
            if deadline is not None and time.monotonic() > deadline:
                return None
            await asyncio.sleep(POLL_SECONDS)
        return self.exit_code

    async def stop(self) -> None:
        """Ask the child to stop, wait up to `stop_seconds`, then kill it. No-op if it does not run."""
        if not self.is_running:
            return
        self.send(self.spec.stop_signal)
        if await self.wait_exit(self.spec.stop_seconds) is None:
            await self.kill()

    async def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        if not self.is_running:
            return
        self.send(signal.SIGKILL)
        await self.wait_exit()

    def send(self, number: signal.Signals) -> None:
        """Signal the child if it runs."""
        if self._popen is not None:
            self._popen.send_signal(number)  # polls first: a reaped pid is never signalled

    def last_words(self) -> str:
        """Return the last error that the log of this run tells of, in one line; empty when it tells of none."""
        return last_words(self.spec.log_file, since=self._log_began)

    def _is_passing(self, error: BaseException) -> bool:
        return isinstance(error, StartError) and any(text in error.log_tail for text in self.spec.retry_on)

    def _start_error(self, reason: str) -> StartError:
        tail = log_tail(self.spec.log_file, since=self._log_began)
        return StartError(name=self.spec.name, reason=reason, log_file=self.spec.log_file, log_tail=tail)


async def is_ready(ready: Ready | None) -> bool:
    """Return whether the child answers that it is ready; any failure counts as not ready."""
    match ready:
        case None:
            return True
        case str():
            return await asyncio.to_thread(http_ok, ready)
        case _:
            return await ready()


def http_ok(url: str) -> bool:
    """Return whether `GET url` answers 200 within a second. Blocks."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", f"{parts.path or '/'}?{parts.query}")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def log_tail(log_file: Path | None, *, since: int = 0, lines: int = LOG_TAIL_LINES) -> str:
    """Return the last lines of a log file, none from before the byte `since`; empty when there is no file."""
    if log_file is None or not log_file.exists():
        return ""
    with log_file.open("rb") as log:
        log.seek(max(since, log_file.stat().st_size - LOG_TAIL_BYTES))
        return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])


def _die_with_parent(stop_signal: signal.Signals) -> Callable[[], None] | None:
    """On Linux: have the kernel stop the child when we are killed, so that no orphan keeps ports or data.

    Elsewhere the state file of the stack serves to find orphans. Runs after the change of user, because
    changing credentials would clear the setting.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # loaded before the fork: the child must not import anything

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(stop_signal), 0, 0, 0)

    return ask_kernel
