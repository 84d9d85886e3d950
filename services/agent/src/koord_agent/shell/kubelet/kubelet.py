"""Requests to the kubelet: pods and configuration over HTTP, CPUs that containers own exclusively over its socket.

HTTP goes to the read-only port, or has the service account's token. The socket is `PodResourcesLister.List` of version
1. Calls block for at most `timeout` seconds; `kubelet_states` makes them in threads.

Source: agent spec, 4.3, 4.6.
"""

import http.client
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from koordcore.runtime_api.hooks import Fields, message_classes
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.node.kubelet import HeldByPod, KubeletConfiguration, parse_configz
from koord_agent.shell.grpc.unix_grpc import SocketAway, call
from koord_agent.shell.host.probe import POD_RESOURCES_SOCKET

SERVICE_ACCOUNT_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
DEFAULT_PORT: Final = 10250
LARGEST_ANSWER: Final = 64 * 1024 * 1024
_OK: Final = 200
Observe = Callable[[str, str, int, float], None]
"""Function that gets each request: verb, path, status (0: no answer), seconds."""
SERVICE: Final = "v1.PodResourcesLister"
LIST: Final = f"/{SERVICE}/List"
_MESSAGES: Final[dict[str, Fields]] = {
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": (1, "repeated PodResources")},
    "PodResources": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "containers": (3, "repeated ContainerResources"),
    },
    "ContainerDevices": {"resource_name": (1, "string"), "device_ids": (2, "repeated string")},
    "ContainerResources": {
        "name": (1, "string"),
        "devices": (2, "repeated ContainerDevices"),
        "cpu_ids": (3, "repeated int64"),
    },
}


class _PodList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class KubeletAway(Exception):
    """The kubelet did not answer, or its answer is invalid. The message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletAddress:
    host: str
    port: int = DEFAULT_PORT
    # Whether to use plain HTTP without token on the read-only port. Otherwise HTTPS is used without verifying the
    # certificate, which is self-signed and from the same machine.
    insecure: bool = False
    # File with the token, read for each request because tokens are rotated; None: send no token.
    token_file: Path | None = SERVICE_ACCOUNT_TOKEN
    timeout_seconds: float = 3.0  # Longest time to wait for an answer


class Kubelet:
    """HTTP client of the machine's kubelet. Only one thread at a time may use it.

    Args:
        now: Returns a monotonic time in seconds, to measure requests.
        observe: Gets each request; None: nobody does.
    """

    def __init__(self, address: KubeletAddress, *, now: Callable[[], float], observe: Observe | None = None) -> None:
        self._address = address
        self._now = now
        self._observe = observe

    def pods(self) -> list[bytes]:
        """The JSON of each pod of the node.

        Raises:
            KubeletAway: The kubelet did not answer with a list and status 200. An empty list also counts as no answer,
                because a kubelet that has just started knows no pods.
        """
        body = self._get("/pods/")
        try:
            items = codec.decode(body, _PodList).items
        except codec.DecodeError as error:
            raise KubeletAway(f"/pods/: not a list of pods: {error}") from error
        if not items:
            raise KubeletAway("/pods/: the kubelet knows no pods")
        return [bytes(item) for item in items]

    def configuration(self) -> KubeletConfiguration:
        """The effective one.

        Raises:
            KubeletAway: The kubelet did not answer, or its answer is invalid.
        """
        try:
            return parse_configz(self._get("/configz"))
        except (codec.DecodeError, InvalidInput) as error:
            raise KubeletAway(f"/configz: {error}") from error

    def _get(self, path: str) -> bytes:
        began, status = self._now(), 0
        try:
            connection = self._connection()
            try:
                connection.request("GET", path, headers=self._headers())
                answer = connection.getresponse()
                status = answer.status
                body = answer.read(LARGEST_ANSWER + 1)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise KubeletAway(f"{path}: {error}") from error
        finally:
            if self._observe is not None:
                self._observe("GET", path, status, self._now() - began)
        if status != _OK or len(body) > LARGEST_ANSWER:
            raise KubeletAway(f"{path}: status {status}, {len(body)} bytes")
        return body

    def _connection(self) -> http.client.HTTPConnection:
        address = self._address
        if address.insecure:
            return http.client.HTTPConnection(address.host, address.port, timeout=address.timeout_seconds)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(address.host, address.port, timeout=address.timeout_seconds, context=context)

    def _headers(self) -> dict[str, str]:
        if self._address.insecure or self._address.token_file is None:
            return {}
        token = self._address.token_file.read_text(errors="replace").strip()
        if not token.isascii() or not token.isprintable():
            # http.client would put the whole token into its message
            raise ValueError(f"{self._address.token_file}: not a token")
        return {"Authorization": f"Bearer {token}"}


@cache
def messages() -> Any:
    """Name -> protobuf message class of the kubelet's pod-resources interface."""
    return message_classes("v1", _MESSAGES)


class PodResources:
    """The kubelet creates the socket when it starts."""

    def __init__(self, folder: Path, *, timeout_seconds: float) -> None:
        self.socket = folder / POD_RESOURCES_SOCKET
        self._timeout_seconds = timeout_seconds

    @property
    def is_there(self) -> bool:
        return self.socket.is_socket()

    def held(self) -> tuple[HeldByPod, ...]:
        """Raises KubeletAway: The socket does not answer."""
        classes = messages()
        try:
            answer = call(
                self.socket,
                LIST,
                classes["ListPodResourcesRequest"](),
                classes["ListPodResourcesResponse"],
                seconds=self._timeout_seconds,
            )
        except SocketAway as error:
            raise KubeletAway(str(error)) from error
        return tuple(
            HeldByPod(
                namespace=pod.namespace,
                name=pod.name,
                cpus={of.name: frozenset(int(cpu) for cpu in of.cpu_ids) for of in pod.containers if of.cpu_ids},
            )
            for pod in answer.pod_resources
        )
