"""The pod-resources proxy between a client and a kubelet that both speak real gRPC."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.shell.kubelet.pod_resources_proxy import PodResourcesProxy
from koordcore.protocol import keys
from support.agent.cri import message
from support.until import DEADLINE_SECONDS


def pod(name: str, annotation: object) -> AgentPod:
    text = annotation if isinstance(annotation, str) else json.dumps(annotation)
    metadata = {"name": name, "namespace": "d", "uid": name, "annotations": {keys.DEVICE_ALLOCATED: text}}
    return agent_pod_from_json({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}})


PODS = (
    pod(
        "a",
        {
            "rdma": [{"minor": 0, "id": "0000:09:00.0", "extension": {"vfs": [{"busID": "0000:09:00.2"}]}}],
            "gpu": [{"minor": 0, "id": "GPU-0"}, {"minor": 1, "id": "GPU-1"}],
            "fpga": [{"minor": 0, "id": "f"}],
        },
    ),
    pod("broken", "{"),
)


def listed(name: str, *containers: bytes) -> tuple[int, bytes]:
    return 1, message((1, name), (2, "d"), *((3, container) for container in containers))


class Kubelet(grpc.GenericRpcHandler):
    """Answers each method: List with two pods, another with its own name and request, or with an error."""

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method

        def answer(request: bytes, context: Any) -> bytes:
            if method.endswith("/Fails"):
                context.abort(grpc.StatusCode.NOT_FOUND, "no such pod")
            if method.endswith("/List"):
                kept = message((1, "c"), (3, b"\x01"), (9, "a newer field"))
                return message(listed("a", kept, message((1, "side"))), listed("broken", message((1, "c"))))
            return method.encode() + request

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(answer)


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    kubelet = grpc.server(ThreadPoolExecutor(2))
    kubelet.add_generic_rpc_handlers((Kubelet(),))
    kubelet.add_insecure_port(f"unix://{tmp_path / 'kubelet.sock'}")
    kubelet.start()
    proxy = PodResourcesProxy(tmp_path / "proxy.sock", tmp_path / "kubelet.sock", lambda: PODS)
    proxy.start()
    yield tmp_path / "proxy.sock"
    proxy.stop()
    kubelet.stop(0).wait()


def call(socket: Path, method: str, request: bytes = b"") -> bytes:
    with grpc.insecure_channel(f"unix://{socket}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        unary: Any = channel.unary_unary
        answer: bytes = unary(f"/v1.PodResourcesLister/{method}")(
            request, timeout=DEADLINE_SECONDS, wait_for_ready=True
        )
        return answer


def test_list_has_the_devices_of_pods_in_their_first_container(socket: Path) -> None:
    rdma = message((1, "koordinator.sh/rdma"), (2, "0000:09:00.2"))
    gpus = message((1, "nvidia.com/gpu"), (2, "GPU-0"), (2, "GPU-1"))
    first = message((1, "c"), (2, rdma), (2, gpus), (3, b"\x01"), (9, "a newer field"))
    assert call(socket, "List") == message(
        listed("a", first, message((1, "side"))), listed("broken", message((1, "c")))
    )


def test_other_methods_pass_as_bytes_with_their_errors(socket: Path) -> None:
    assert call(socket, "GetAllocatableResources", b"\xff\xfe") == (
        b"/v1.PodResourcesLister/GetAllocatableResources\xff\xfe"
    )
    with pytest.raises(grpc.RpcError) as raised:
        call(socket, "Fails")
    error: Any = raised.value
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no such pod")
