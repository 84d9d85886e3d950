"""The pod-resources socket of the kubelet: CPUs that containers own exclusively.

It uses `PodResourcesLister.List` of version 1. Calls block; `kubelet_states` makes them in a thread.

Source: agent spec, 4.6.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

from koordcore.runtime_api.hooks import Fields, message_classes

from koord_agent.domain.state.pod_resources import HeldByPod
from koord_agent.shell.grpc.unix_grpc import SocketAway, call
from koord_agent.shell.host.sockets import POD_RESOURCES_SOCKET
from koord_agent.shell.kubelets.kubelet import KubeletAway

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


@cache
def messages() -> Any:
    """Return name -> protobuf message class of the kubelet's pod-resources interface."""
    return message_classes("v1", _MESSAGES)


class PodResources:
    """Client of one kubelet's socket. The kubelet creates the socket when it starts."""

    def __init__(self, folder: Path, *, timeout_seconds: float) -> None:
        self.socket = folder / POD_RESOURCES_SOCKET
        self._timeout_seconds = timeout_seconds

    @property
    def is_there(self) -> bool:
        """Whether the kubelet's pod-resources socket exists now."""
        return self.socket.is_socket()

    def held(self) -> tuple[HeldByPod, ...]:
        """Return the exclusive CPUs of the kubelet's pods.

        Raises:
            KubeletAway: The socket does not answer.
        """
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
