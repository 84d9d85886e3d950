"""Stop containers of evicted pods with the container runtime of this machine.

    containerd, cri-o, pouch   CRI  RuntimeService.StopContainer, without grace
    docker                     its own API  POST /containers/<id>/stop?t=0

Calls block for at most `seconds` for all containers of one pod, and the cycle waits for them. A runtime that does not
answer is skipped for a minute; the eviction then remains a request.

Source: agent spec, 2.2, 12.1 (D-20).
"""

import http.client
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from koordcore.runtime_api.hooks import Fields, message_classes
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.failure import failure
from koord_agent.domain.kernel.cgroup_layout import split_container_id
from koord_agent.shell.grpc.unix_grpc import SocketAway, call
from koord_agent.shell.host.probe import CONTAINERD, DOCKER, RUNTIME_SOCKETS

SECONDS_PER_POD: Final = 5.0
LEFT_ALONE_SECONDS: Final = 60.0
STOP: Final = "RuntimeService/StopContainer"
VERSIONS: Final = ("runtime.v1", "runtime.v1alpha2")
_MESSAGES: Final[dict[str, Fields]] = {
    "StopContainerRequest": {"container_id": (1, "string"), "timeout": (2, "int64")},
    "StopContainerResponse": {},
}
_GONE: Final = frozenset({"NOT_FOUND"})
_SILENT: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
_DOCKER_FINE: Final = frozenset({204, 304, 404})
"""Status codes of Docker for success: stopped, was not running, does not exist."""


class NotStopped(Exception):
    """The container may still run. `is_silent` tells that the runtime did not answer."""

    def __init__(self, message: str, *, is_silent: bool = False) -> None:
        super().__init__(message)
        self.is_silent = is_silent


@cache
def messages() -> Any:
    """Name -> protobuf message class of the container runtime interface (CRI)."""
    return message_classes("runtime.v1", _MESSAGES)


def socket_of(runtime: str, roots: Sequence[Path], given: Path | None) -> Path | None:
    """The usual path of a runtime's socket below the roots, else the given path; None if neither is a socket."""
    usual = [root / RUNTIME_SOCKETS[runtime] for root in roots]
    return next((path for path in (*usual, *((given,) if given else ())) if path.is_socket()), None)


class ContainerRuntimes:
    """The container runtimes of one machine. Only one thread at a time may use it.

    Args:
        roots: Folders that may hold the runtimes' sockets, such as /run.
        given: Runtime -> path of its socket, used if none of the roots has it.
        default: Runtime of ids that name none.
        monotonic: Returns a monotonic time in seconds.
        seconds: Longest time for all containers of one pod.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        given: Mapping[str, Path] | None = None,
        default: str = CONTAINERD,
        monotonic: Callable[[], float],
        seconds: float = SECONDS_PER_POD,
    ) -> None:
        self._roots = tuple(roots)
        self._given = dict(given or {})
        self._default = default
        self._monotonic = monotonic
        self._seconds = seconds
        self._left_alone: dict[Path, float] = {}

    def stop(self, container_ids: Iterable[str]) -> tuple[str, ...]:
        """Stop the containers of a pod. If one cannot be stopped, the others are still stopped.

        Return errors, one sentence each.

        An id is `<runtime>://<id>`, or has no runtime for the default runtime.
        """
        problems: list[str] = []
        end = self._monotonic() + self._seconds
        for container_id in container_ids:
            try:
                self._stop(container_id if "://" in container_id else f"{self._default}://{container_id}", end)
            except (NotStopped, InvalidInput, ValueError) as error:
                problems.append(f"container {container_id} is not stopped: {error}")
            except Exception as error:  # noqa: BLE001 - such as a thread of the library that cannot start
                problems.append(failure(f"container {container_id} is not stopped", error))
        return tuple(problems)

    def _stop(self, container_id: str, end: float) -> None:
        runtime, identity = split_container_id(container_id)
        path = socket_of(runtime, self._roots, self._given.get(runtime))
        if path is None:
            raise NotStopped(f"there is no socket of {runtime}")
        now = self._monotonic()
        if now < self._left_alone.get(path, 0.0):
            raise NotStopped(f"{path} did not answer a while ago")
        if now >= end:
            raise NotStopped(f"{path} took too long")
        try:
            (_stop_docker if runtime == DOCKER else _stop_cri)(path, identity, end - now)
        except NotStopped as error:
            if error.is_silent:
                self._left_alone[path] = self._monotonic() + LEFT_ALONE_SECONDS
            raise


def _stop_cri(path: Path, identity: str, seconds: float) -> None:
    request, answer = messages()["StopContainerRequest"](container_id=identity), messages()["StopContainerResponse"]
    for version in VERSIONS:
        try:
            call(path, f"/{version}.{STOP}", request, answer, seconds=seconds)
        except SocketAway as error:
            if error.code == "UNIMPLEMENTED" and version != VERSIONS[-1]:
                continue
            if error.code in _GONE:
                return
            raise NotStopped(str(error), is_silent=error.code in _SILENT) from error
        return


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _stop_docker(path: Path, identity: str, seconds: float) -> None:
    connection = _UnixConnection(path, seconds)
    try:
        connection.request("POST", f"/containers/{quote(identity, safe='')}/stop?t=0")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise NotStopped(f"{path}: {error}", is_silent=True) from error
    finally:
        connection.close()
    if status not in _DOCKER_FINE:
        raise NotStopped(f"{path}: status {status}")
