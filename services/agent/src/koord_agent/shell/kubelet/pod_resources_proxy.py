"""The pod-resources API of the kubelet with the devices that the scheduler gave to pods, for monitoring tools.

The kubelet does not know these devices. All calls are forwarded as bytes; devices are added to the answer of `List`.

Source: agent spec, 4.6.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.allocated_devices import allocated_ids
from koord_agent.domain.node.pods import AgentPod
from koord_agent.shell.grpc.unix_grpc import LARGEST_MESSAGE
from koord_agent.shell.grpc.unix_server import UnixServer
from koord_agent.shell.kubelet.kubelet import LIST, SERVICE, messages

RESOURCE_OF_TYPE: Final[Mapping[str, str]] = {"gpu": "nvidia.com/gpu", "rdma": "koordinator.sh/rdma"}
"""Type of a device -> name of its resource. Devices of other types are not told."""
_DEFAULT_SECONDS: Final = 10.0


class PodResourcesProxy(UnixServer):
    def __init__(self, socket: Path, kubelet: Path, pods: Callable[[], Iterable[AgentPod]]) -> None:
        self._kubelet = kubelet
        self._pods = pods
        super().__init__(socket, _Forwarding(self._forward), name="pod-resources")

    def _forward(self, method: str, request: bytes, context: Any) -> bytes:
        """Return the answer of the kubelet, with devices if the call is `List`. The caller gets its errors, too."""
        options = [("grpc.max_receive_message_length", LARGEST_MESSAGE), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"unix://{self._kubelet}", options=options) as channel:
            unary: Any = channel.unary_unary
            seconds = context.time_remaining()
            try:
                answer: bytes = unary(method)(request, timeout=_DEFAULT_SECONDS if seconds is None else seconds)
            except grpc.RpcError as error:
                status: Any = error
                context.set_code(status.code())
                context.set_details(status.details())
                return b""
        return with_devices(answer, self._pods()) if method == LIST else answer


class _Forwarding(grpc.GenericRpcHandler):
    def __init__(self, forward: Callable[[str, bytes, Any], bytes]) -> None:
        self._forward = forward

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call of any method of the service, as bytes; None for other services."""
        method: str = handler_call_details.method
        if not method.startswith(f"/{SERVICE}/"):
            return None

        def answer(request: bytes, context: Any) -> bytes:
            return self._forward(method, request, context)

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(answer)


def with_devices(answer: bytes, pods: Iterable[AgentPod]) -> bytes:
    """Return an answer of `List` with the devices of pods in their first containers, in the order of resource names.

    A pod whose annotation is malformed gets no devices.
    """
    listed = messages()["ListPodResourcesResponse"].FromString(answer)
    by_name = {(pod.namespace, pod.name): pod for pod in pods}
    for entry in listed.pod_resources:
        pod = by_name.get((entry.namespace, entry.name))
        if pod is None or not entry.containers:
            continue
        try:
            ids = allocated_ids(pod.annotations)
        except InvalidInput:
            continue
        named = {RESOURCE_OF_TYPE[kind]: found for kind, found in ids.items() if kind in RESOURCE_OF_TYPE}
        for resource in sorted(named):
            entry.containers[0].devices.add(resource_name=resource, device_ids=named[resource])
    written: bytes = listed.SerializeToString()
    return written
