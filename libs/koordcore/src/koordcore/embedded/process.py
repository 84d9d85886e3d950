"""One child process: declare it, start it, wait until it is ready, stop it.

`ProcessSpec` declares a process and `ChildProcess` runs it. The servers (`nats`, `postgres`) and the `supervisor` of a
stack use them. Children are watched by polling and not by signals. So the same object works with any event loop (uvloop
cannot change the user of a child) and without one.

The kernel reuses pids. So a signal is sent only if the start time of the pid equals the recorded one
(`ProcessIdentity`). When a child has ended, the last error in its log explains why: a JSON line of our services, or
plain text of servers and of an interpreter that fails to start.
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
from typing import IO, Any, Final, cast

import msgspec

from koordcore.embedded.errors import StartError
from koordcore.embedded.identity import ProcessIdentity, identify

_READ_BYTES: Final = 262_144
_SHOWN: Final = 400


def last_words(log_file: Path | None, *, since: int = 0) -> str:
    """Return the last error in a log file as one line; "" if the log has no error or does not exist. A JSON line is an
    error if its level is `error`. The first field that it has of `error`, `message` and `event` is returned. A plain
    line is an error if it is not indented, such as the last line of a Python traceback.

    `log_file`: the log file; None gives "". `since`: Byte offset at which the search begins, for example the start of
    the last run.
    """
    if log_file is None or not log_file.exists():
        return ""
    with log_file.open("rb") as log:
        log.seek(max(since, log_file.stat().st_size - _READ_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    words = next((said for line in reversed(lines) if (said := _said(line))), "")
    return words if len(words) <= _SHOWN else words[:_SHOWN] + "..."


def _said(line: str) -> str:
    if not line.strip() or line[0].isspace():
        return ""
    try:
        decoded = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return line.strip()
    if not isinstance(decoded, Mapping):
        return line.strip()
    fields = cast("Mapping[str, Any]", decoded)
    if fields.get("level") != "error":
        return ""
    said = next((str(fields[name]) for name in ("error", "message", "event") if fields.get(name)), "")
    return " ".join(said.split())


POLL_SECONDS = 0.02
PROBE_SECONDS = 1.0
LOG_TAIL_LINES = 15
LOG_TAIL_BYTES = 16_384
_PR_SET_PDEATHSIG = 1

# Readiness check of a child: a URL that answers 200, or a coroutine function that returns True.
Ready = str | Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    enabled: bool = True
    first_delay_seconds: float = 0.2  # Delay before the first restart. It doubles with each further restart.
    max_delay_seconds: float = 10.0  # Upper bound of the delay
    # After running this long, a child that ends is restarted with the first delay again.
    steady_after_seconds: float = 10.0
    # Largest number of restarts without a steady run between them. Then the child is given up. None: no limit.
    max_restarts: int | None = None

    def delay_seconds(self, restarts_in_a_row: int) -> float:
        """Return the delay in seconds before the next restart: `first * 2^n`, at most `max_delay_seconds`.
        `restarts_in_a_row`: n, the number of restarts since the last steady run.
        """
        return float(min(self.max_delay_seconds, self.first_delay_seconds * 2 ** min(restarts_in_a_row, 30)))


NEVER_RESTART = RestartPolicy(enabled=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """Declaration of a child process: how it is started, when it is ready, and how it is stopped."""

    name: str  # Name in status and errors
    argv: tuple[str, ...]  # Program and arguments. An absolute path is not searched on PATH.
    # Variables that are added to the parent's environment.
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: Path | None = None
    ready: Ready | None = None  # Readiness check; see `Ready`. None: ready as soon as the process runs.
    ready_seconds: float = 20.0  # Time until the process must be ready
    after: tuple[str, ...] = ()  # Names of the processes that must be ready first
    # Texts that mark a temporary failure in the log of a failed start. Such a start is repeated.
    retry_on: tuple[str, ...] = ()
    prepare: Callable[[], Awaitable[None]] | None = None  # Awaited before every start (first start and restarts)
    log_file: Path | None = None  # File to which stdout and stderr are appended. None: /dev/null.
    user: int | None = None  # Numeric user id of the process. Only root may set it.
    group: int | None = None  # Numeric group id of the process. Only root may set it.
    stop_signal: signal.Signals = signal.SIGTERM  # The signal of a graceful stop
    stop_seconds: float = 10.0  # Time between the stop signal and the kill
    restart: RestartPolicy = RestartPolicy()  # Rules for restarting it
    # Asked every few seconds while the process is ready. It returns why a restart is needed; "" if none is.
    restart_reason: Callable[[], Awaitable[str]] | None = None
    # Name -> port that the process serves, for the status.
    ports: Mapping[str, int] = field(default_factory=dict[str, int])
    # Name -> URL that the process serves, for the status.
    urls: Mapping[str, str] = field(default_factory=dict[str, str])


class ChildProcess:
    """A child process that is started from a `ProcessSpec`. Only one task at a time may start it. Any task may call the
    other methods.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_began = 0
        self.identity: ProcessIdentity | None = None
        """Set from the start on; kept after the end."""

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return None if self._popen is None else self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; None before the start and while the process runs."""
        return None if self._popen is None else self._popen.poll()

    @property
    def is_running(self) -> bool:
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
        """Run `prepare`, launch the process and wait until it is ready. A failed or cancelled start leaves no process
        behind. If the end of its log has a text of `retry_on`, the start is repeated, as long as `ready_seconds` since
        the first attempt have not passed.

        Raises:
            StartError: The process ended or was not ready within `ready_seconds`. The message has the end of its log.
            Exception: The error that `prepare` raised.
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
        """Wait until the child is ready; check every 20 ms.

        Raises:
            StartError: The process ended or was not ready within `ready_seconds`.
        """
        deadline = time.monotonic() + self.spec.ready_seconds
        while True:
            if not self.is_running:
                raise self._start_error(f"ended with exit code {self.exit_code} before it was ready{self._why()}")
            if await is_ready(self.spec.ready):
                return
            if time.monotonic() > deadline:
                raise self._start_error(f"not ready within {self.spec.ready_seconds:g} s{self._why()}")
            await asyncio.sleep(POLL_SECONDS)

    async def wait_exit(self, seconds: float | None = None) -> int | None:
        """Wait until the process ends and return its exit code; None if it still runs after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.is_running:
            if deadline is not None and time.monotonic() > deadline:
                return None
            await asyncio.sleep(POLL_SECONDS)
        return self.exit_code

    async def stop(self) -> None:
        """Send the stop signal. If the child still runs after `stop_seconds`, kill it. No-op if it does not run."""
        if not self.is_running:
            return
        self.send(self.spec.stop_signal)
        if await self.wait_exit(self.spec.stop_seconds) is None:
            await self.kill()

    async def kill(self) -> None:
        """Kill the child with SIGKILL and wait until it has ended."""
        if not self.is_running:
            return
        self.send(signal.SIGKILL)
        await self.wait_exit()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the child. No-op if it does not run."""
        if self._popen is not None:
            self._popen.send_signal(number)  # polls first: a reaped pid is never signalled

    def last_words(self) -> str:
        """Return the last error message in the log of this run of the process as one line; empty if there is none."""
        return last_words(self.spec.log_file, since=self._log_began)

    def _why(self) -> str:
        words = self.last_words()
        return f": {words}" if words else ""

    def _is_passing(self, error: BaseException) -> bool:
        return isinstance(error, StartError) and any(text in error.log_tail for text in self.spec.retry_on)

    def _start_error(self, reason: str) -> StartError:
        tail = log_tail(self.spec.log_file, since=self._log_began)
        return StartError(name=self.spec.name, reason=reason, log_file=self.spec.log_file, log_tail=tail)


async def is_ready(ready: Ready | None) -> bool:
    """Run a readiness check once. Return False if it fails in any way, True if there is no check (None)."""
    match ready:
        case None:
            return True
        case str():
            return await asyncio.to_thread(http_ok, ready)
        case _:
            return await ready()


def http_ok(url: str) -> bool:
    """Return whether `GET url` answers 200 within a second. Blocks the calling thread."""
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
    """Return the last lines of a log file; "" if the file does not exist.

    Args:
        log_file: The file; None gives "".
        since: Byte offset before which lines are ignored.
        lines: Largest number of lines.
    """
    if log_file is None or not log_file.exists():
        return ""
    with log_file.open("rb") as log:
        log.seek(max(since, log_file.stat().st_size - LOG_TAIL_BYTES))
        return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])


def _die_with_parent(stop_signal: signal.Signals) -> Callable[[], None] | None:
    """On Linux, let the kernel stop the child when its parent is killed. So no orphan keeps ports or data. On other
    systems, orphans are found with the state file of the stack. It runs after the change of user, because that clears
    the setting.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # loaded before the fork: the child must not import anything

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(stop_signal), 0, 0, 0)

    return ask_kernel
