"""The kubelet's pod-resources socket as a source of state, over a real gRPC server on a unix socket."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from koord_agent.domain.node.kubelet import HeldByPod, pinned_cpus, unknown_pods
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.shell.host.probe import POD_RESOURCES_SOCKET
from koord_agent.shell.kubelet.kubelet import LIST, KubeletAway, PodResources, messages
from koord_agent.shell.kubelet.kubelet_states import KubeletStates
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs
from support.until import DEADLINE_SECONDS

Pods = Mapping[str, Mapping[str, tuple[int, ...]]]


def pod(uid: str, name: str, *, created: str = "2026-01-01T00:00:00Z", ends: bool = False) -> AgentPod:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": created}
    if ends:
        metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    return agent_pod_from_json({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": {}})


def served(pods: Pods) -> bytes:
    """An answer of the kubelet; `devices`, which the agent does not read, is among it."""
    answer = messages()["ListPodResourcesResponse"]()
    for name, containers in pods.items():
        one = answer.pod_resources.add(name=name, namespace="default")
        for container, cpus in containers.items():
            one.containers.add(name=container, cpu_ids=cpus)
    devices = b"\x12\x10\x0a\x0envidia.com/gpu"
    message = answer.SerializeToString()
    # a container of a pod that holds a device: field 2 of ContainerResources
    container = b"\x1a" + bytes([len(devices)]) + devices
    gpu = b"\x0a\x03gpu\x12\x07default" + container
    return message + b"\x0a" + bytes([len(gpu)]) + gpu


class FakeKubelet:
    """A pod-resources server that answers what a test puts into `answer`."""

    def __init__(self, folder: Path) -> None:
        (folder / POD_RESOURCES_SOCKET).parent.mkdir(parents=True)
        self.answer: Callable[[Any], bytes] = lambda _: served({})
        self.server = grpc.server(ThreadPoolExecutor(2))

        def listed(_request: bytes, context: Any) -> bytes:
            return self.answer(context)

        unary: Any = grpc.unary_unary_rpc_method_handler
        handler = unary(listed)
        service, _, method = LIST.strip("/").partition("/")
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        self.server.add_insecure_port(f"unix://{folder / POD_RESOURCES_SOCKET}")
        self.server.start()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[FakeKubelet]:
    fake = FakeKubelet(tmp_path)
    yield fake
    fake.server.stop(None).wait(DEADLINE_SECONDS)


def states(folder: Path, pods: list[AgentPod]) -> KubeletStates:
    return KubeletStates(
        None,
        resources=PodResources(folder, timeout_seconds=DEADLINE_SECONDS),
        folder=folder,
        pods=lambda: pods,
        sync_seconds=3_600.0,
        now_ms=lambda: 0,
        monotonic=lambda: 0.0,
        logger=logger("agent"),
        changed=lambda: None,
    )


async def test_cpus_of_containers_come_by_the_socket_alone(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.answer = lambda _: served({"db": {"main": (2, 3, 10), "log": ()}, "web": {"main": ()}})
    following = states(tmp_path, [pod("u1", "db"), pod("u2", "web")])
    assert not following.is_static
    await following.sync_held()
    assert following.cpu_entries == {"u1": {"main": "2-3,10"}}
    assert following.is_static, "only a static CPU manager gives CPUs to one container alone"
    assert following.trouble() is None


async def test_a_socket_that_fails_keeps_what_it_said_last(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.answer = lambda _: served({"db": {"main": (4,)}})
    following = states(tmp_path, [pod("u1", "db")])
    await following.sync_held()

    def refuse(context: Any) -> bytes:
        context.abort(grpc.StatusCode.INTERNAL, "the device manager is not ready")
        raise AssertionError

    def babble(_context: Any) -> bytes:
        return b"\xff\xff no message"

    for answer in (refuse, babble):
        kubelet.answer = answer
        with pytest.raises(KubeletAway):
            PodResources(tmp_path, timeout_seconds=DEADLINE_SECONDS).held()
        await following.sync_held()
        assert following.cpu_entries == {"u1": {"main": "4"}}


async def test_a_kubelet_that_restarts_is_heard_again(kubelet: FakeKubelet, tmp_path: Path) -> None:
    kubelet.answer = lambda _: served({"db": {"main": (4,)}})
    following = states(tmp_path, [pod("u1", "db")])
    await following.sync_held()
    kubelet.server.stop(None).wait(DEADLINE_SECONDS)
    (tmp_path / POD_RESOURCES_SOCKET).unlink(missing_ok=True)
    await following.sync_held()
    (tmp_path / POD_RESOURCES_SOCKET).parent.rmdir()
    again = FakeKubelet(tmp_path)
    again.answer = lambda _: served({"db": {"main": (5,)}})
    await following.sync_held()
    again.server.stop(None).wait(DEADLINE_SECONDS)
    assert following.cpu_entries == {"u1": {"main": "5"}}


async def test_pods_that_the_log_does_not_know_yet_are_told_once_and_not_as_an_error(
    kubelet: FakeKubelet, tmp_path: Path
) -> None:
    kubelet.answer = lambda _: served({"db": {"main": (4,)}, "web": {"main": ()}})
    following = states(tmp_path, [pod("u1", "db"), pod("u2", "gpu")])
    with capture_logs() as lines:
        await following.sync_held()
        await following.sync_held()
        kubelet.answer = lambda _: served({"web": {"main": ()}, "new": {"main": ()}})
        await following.sync_held()
    told = [(line["log_level"], line["event"], line["pods"]) for line in lines]
    assert told == [
        ("info", "pods_only_in_kubelet", ["default/web"]),
        ("info", "pods_only_in_kubelet", ["default/new"]),
    ]


async def test_no_socket_is_no_trouble(tmp_path: Path) -> None:
    following = states(tmp_path, [])
    await following.sync_held()
    assert (following.trouble(), following.cpu_entries, following.is_static) == (None, {}, False)


def test_the_socket_is_newer_than_the_file_and_the_file_knows_what_the_socket_leaves_out() -> None:
    file = {"u1": {"main": "0-1", "side": "7"}, "u3": {"main": "6"}}
    held = [
        HeldByPod(namespace="default", name="db", cpus={"main": frozenset({2, 3})}),
        HeldByPod(namespace="default", name="web", cpus={}),
        HeldByPod(namespace="other", name="db", cpus={"main": frozenset({9})}),
    ]
    pods = [pod("u1", "db"), pod("u2", "web")]
    assert pinned_cpus(file, held, pods) == {"u1": {"main": "2-3", "side": "7"}, "u3": {"main": "6"}}
    assert unknown_pods(held, pods) == ("other/db",)


def test_of_two_pods_of_one_name_the_one_that_stays_holds_the_cpus() -> None:
    held = [HeldByPod(namespace="default", name="db-0", cpus={"main": frozenset({1})})]
    old = pod("old", "db-0", created="2026-01-03T00:00:00Z", ends=True)
    assert pinned_cpus({}, held, [old, pod("new", "db-0")]) == {"new": {"main": "1"}}
