"""Evicted pods end at once: their containers are stopped through the runtime, whatever happens to one of them."""

import http.server
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.shell.grpc import container_runtime, unix_grpc
from koord_agent.shell.grpc.container_runtime import STOP, ContainerRuntimes, messages, socket_of
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import RUNTIME_SOCKETS, HostRoots
from koord_agent.shell.node.pods import NodePods
from koordcore.ports.desired import DesiredNode
from support.until import DEADLINE_SECONDS


class FakeRuntime:
    """A CRI server of one version that answers per container as a test says; "" = it stops."""

    def __init__(self, path: Path, answers: Mapping[str, str], *, version: str = "runtime.v1") -> None:
        path.parent.mkdir(parents=True)
        self.asked: list[tuple[str, int]] = []
        self.server = grpc.server(ThreadPoolExecutor(2))

        def stop(request: bytes, context: Any) -> bytes:
            found = messages()["StopContainerRequest"].FromString(request)
            self.asked.append((found.container_id, found.timeout))
            why = answers.get(found.container_id, "")
            if why:
                context.abort(grpc.StatusCode[why], f"{found.container_id} will not")
            return b""

        unary: Any = grpc.unary_unary_rpc_method_handler
        service, _, method = f"{version}.{STOP}".partition("/")
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: unary(stop)})])
        self.server.add_insecure_port(f"unix://{path}")
        self.server.start()


def runtimes(folder: Path, monotonic: Callable[[], float] = time.monotonic) -> ContainerRuntimes:
    """Return the client of the runtimes below a folder, which waits on a slow machine, too."""
    return ContainerRuntimes((folder,), monotonic=monotonic, seconds=DEADLINE_SECONDS)


@pytest.mark.parametrize("version", ["runtime.v1", "runtime.v1alpha2"])
def test_every_container_is_tried_without_grace_and_one_that_is_gone_is_stopped(tmp_path: Path, version: str) -> None:
    fake = FakeRuntime(tmp_path / RUNTIME_SOCKETS["containerd"], {"b": "INTERNAL", "c": "NOT_FOUND"}, version=version)
    problems = runtimes(tmp_path).stop(["containerd://a", "containerd://b", "containerd://c", "d"])
    fake.server.stop(None).wait(DEADLINE_SECONDS)
    assert fake.asked == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]
    assert len(problems) == 1
    assert "container containerd://b is not stopped" in problems[0]
    assert "b will not" in problems[0]


def test_an_error_that_nobody_expected_keeps_no_other_container_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(path: Path, method: str, request: Any, answer: Any, *, seconds: float) -> Any:
        if request.container_id == "a":
            raise RuntimeError("can't start new thread")
        return unix_grpc.call(path, method, request, answer, seconds=seconds)

    monkeypatch.setattr(container_runtime, "call", call)
    fake = FakeRuntime(tmp_path / RUNTIME_SOCKETS["containerd"], {})
    (problem,) = runtimes(tmp_path).stop(["containerd://a", "containerd://b"])
    fake.server.stop(None).wait(DEADLINE_SECONDS)
    assert problem.startswith("container containerd://a is not stopped: RuntimeError: can't start new thread (")
    assert fake.asked == [("b", 0)]


def test_a_runtime_that_is_silent_is_left_alone_for_a_minute(tmp_path: Path) -> None:
    path = tmp_path / RUNTIME_SOCKETS["containerd"]
    fake = FakeRuntime(path, {"a": "UNAVAILABLE"})
    now = [0.0]
    runtime = runtimes(tmp_path, monotonic=lambda: now[0])
    assert len(runtime.stop(["containerd://a", "containerd://b"])) == 2
    assert fake.asked == [("a", 0)], "the others are not waited for"
    now[0] = 61.0
    assert runtime.stop(["containerd://b"]) == ()
    fake.server.stop(None).wait(DEADLINE_SECONDS)


def test_a_socket_in_its_usual_place_comes_before_the_one_that_was_given(tmp_path: Path) -> None:
    given = tmp_path / "odd" / "runtime.sock"
    assert socket_of("cri-o", (tmp_path,), given) is None
    one = FakeRuntime(given, {})
    assert socket_of("cri-o", (tmp_path,), given) == given
    other = FakeRuntime(tmp_path / "run" / RUNTIME_SOCKETS["cri-o"], {})
    assert socket_of("cri-o", (tmp_path, tmp_path / "run"), given) == tmp_path / "run" / RUNTIME_SOCKETS["cri-o"]
    for fake in (one, other):
        fake.server.stop(None).wait(DEADLINE_SECONDS)


def test_ids_that_no_runtime_has_are_told_and_not_asked(tmp_path: Path) -> None:
    problems = runtimes(tmp_path).stop(["rkt://x", "containerd://", "docker://y"])
    assert len(problems) == 3
    assert "there is no socket of docker" in problems[2]


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[list[str]]:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(500 if "broken" in self.path else 304)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            return

        def address_string(self) -> str:
            return "docker"

    server = socketserver.ThreadingUnixStreamServer(str(tmp_path / RUNTIME_SOCKETS["docker"]), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield asked
    server.shutdown()
    server.server_close()


def test_docker_is_asked_over_its_own_api(tmp_path: Path, docker: list[str]) -> None:
    problems = runtimes(tmp_path).stop(["docker://a1", "docker://broken"])
    assert docker == ["/containers/a1/stop?t=0", "/containers/broken/stop?t=0"]
    assert [problem.endswith("status 500") for problem in problems] == [True]


def evicted(statuses: list[dict[str, Any]]) -> AgentPod:
    return agent_pod_from_json(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": name} for name in ("a", "b")]},
            "status": {"phase": "Running", "qosClass": "BestEffort", "containerStatuses": statuses},
        }
    )


STATUSES: list[tuple[list[dict[str, Any]], list[str]]] = [
    (
        [
            {"name": "a", "containerID": "containerd://1", "state": {"running": {}}},
            {"name": "b", "containerID": "containerd://2", "state": {"terminated": {}}},
        ],
        ["containerd://1"],
    ),
    ([], ["by-directory"]),
]


@pytest.mark.parametrize(("statuses", "stopped"), STATUSES)
def test_what_runs_is_stopped_by_status_or_without_a_kubelet_by_directory(
    tmp_path: Path, statuses: list[dict[str, Any]], stopped: list[str]
) -> None:
    (tmp_path / "kubepods/besteffort/podu/by-directory").mkdir(parents=True)
    layout = CgroupLayout(Driver.CGROUPFS)
    host = LinuxHost(monotonic_ns=lambda: 0, roots=HostRoots(cgroup=tmp_path), layout=layout, version=2, jiffy=1)
    asked: list[str] = []

    def stop(ids: Any) -> tuple[str, ...]:
        asked.extend(ids)
        return ()

    pods = NodePods(host, runner=None, announced=(), forget=lambda _: None, stop=stop)
    pods.run(view_of(DesiredNode(node="n")), KnownPods(pods={"u": evicted(statuses)}, at_ms=0))
    assert pods.end("u").ended
    assert asked == stopped
    assert not pods.end("nobody").ended
