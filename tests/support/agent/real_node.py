"""A node of this machine: a real containerd, and the agent's hook server and the CRI proxy as processes; for tests.

A client in place of the kubelet runs pods through the proxy. The first line that a container prints shows what holds.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from koord_agent.domain.hooks.call import Stage
from koord_agent.domain.hooks.plugins import FailurePolicy, registration
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.shell.hooks.hook_server import write_registration
from koordcore.events.node_ledger import PodOnNode
from koordcore.ports.desired import DesiredNode
from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import allocation_annotations
from koordcore.protocol.qos import KubeQos
from koordcore.values import codec
from koordcore.values.allocation import NOTHING, AllocatedDevice, Allocation
from koordctl.stack.containers import IMAGE
from support.agent.cri import NODE_NAMESPACE, Containers, containerd, first_text, message
from support.until import until_blocking

V1 = Path("/sys/fs/cgroup")
TREES = ("cpu", "cpuset", "memory")
FILES = {
    "cpus": "cpuset/cpuset.cpus",
    "shares": "cpu/cpu.shares",
    "quota": "cpu/cpu.cfs_quota_us",
    "memory": "memory/memory.limit_in_bytes",
}
READ = " ".join(f"{name}=$(cat /sys/fs/cgroup/{path})" for name, path in FILES.items())
SHOW = (
    f"echo {READ} allowed=$(grep Cpus_allowed_list /proc/self/status | tr -d '\\t' | cut -d: -f2)"
    " oom=$(cat /proc/self/oom_score_adj) gpu=$NVIDIA_VISIBLE_DEVICES kept=$KEPT"
    " in=$(grep :cpu: /proc/self/cgroup | cut -d: -f3 || true); sleep 100000"
)
STAGES = (Stage.PRE_RUN_POD_SANDBOX, Stage.PRE_CREATE_CONTAINER, Stage.PRE_UPDATE_CONTAINER)
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A pod as the scheduler placed it and as the kubelet asks for it.

    Attributes:
        shares, quota, memory, oom    what the kubelet computes without hooks
        first    what the first line of its container has to show
    """

    name: str
    qos: str
    kube_qos: KubeQos
    allocation: Allocation = NOTHING
    annotations: Mapping[str, str]
    shares: int
    quota: int
    memory: int
    oom: int
    first: Mapping[str, str]

    @property
    def all_annotations(self) -> dict[str, str]:
        """Annotations after the gateway has bound the pod."""
        return {**self.annotations, **allocation_annotations(self.allocation, self.annotations)}


HALF = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
GPU = AllocatedDevice(type="gpu", minor=3, amounts={"koordinator.sh/gpu-core": 100})
LSR = Wanted(
    name="lsr",
    qos="LSR",
    kube_qos=KubeQos.GUARANTEED,
    allocation=Allocation(cpuset="1", devices=(GPU,)),
    annotations={},
    shares=1024,
    quota=100_000,
    memory=128 * MIB,
    oom=900,
    first={"cpus": "1", "allowed": "1", "shares": "1024", "quota": "-1", "memory": str(128 * MIB), "gpu": "3"},
)
LS = Wanted(
    name="ls",
    qos="LS",
    kube_qos=KubeQos.BURSTABLE,
    annotations={},
    shares=512,
    quota=50_000,
    memory=128 * MIB,
    oom=950,
    first={"cpus": "0", "allowed": "0", "shares": "512", "quota": "50000", "memory": str(128 * MIB), "gpu": ""},
)
BE = Wanted(
    name="be",
    qos="BE",
    kube_qos=KubeQos.BEST_EFFORT,
    annotations={keys.EXTENDED_RESOURCE_SPEC: json.dumps({"containers": {"main": {"requests": HALF, "limits": HALF}}})},
    shares=2,
    quota=0,
    memory=0,
    oom=1000,
    first={"allowed": "0-1", "shares": "512", "quota": "50000", "memory": str(64 * MIB), "gpu": ""},
)
PODS = (LSR, LS, BE)


def on_node(pod: Wanted) -> PodOnNode:
    return PodOnNode(
        uid=pod.name,
        namespace="default",
        name=pod.name,
        qos=pod.qos,
        kube_qos=pod.kube_qos,
        priority_class="koord-batch" if pod.qos == "BE" else "koord-prod",
        requests={},
        allocation=pod.allocation,
    )


class Node:
    """A containerd, and a hook server and a proxy as processes."""

    def __init__(self, folder: Path, containers: Containers, *, kubepods: str = "") -> None:
        self.folder, self.containers = folder, containers
        self.layout = CgroupLayout(Driver.CGROUPFS, kubepods=kubepods or f"kubepods-first-{os.getpid()}")
        self.desired = DesiredNode(node="n", pods=[on_node(pod) for pod in PODS], slo={})
        (folder / "desired.json").write_bytes(codec.encode(self.desired))
        (folder / "hookserver.d").mkdir()
        self.running: list[subprocess.Popen[bytes]] = []
        self._create(self.layout.root)
        for qos in KubeQos:
            self._create(self.layout.qos_directory(qos))

    def _create(self, directory: str) -> None:
        """Create a cgroup as the kubelet does, in the hierarchies that matter."""
        for tree in TREES:
            (V1 / tree / directory).mkdir(parents=True, exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            above = (V1 / "cpuset" / directory).parent / name
            (V1 / "cpuset" / directory / name).write_text(above.read_text())

    def register(self, policy: FailurePolicy) -> None:
        text = registration(STAGES, endpoint=str(self.folder / "koordlet.sock"), policy=policy)
        write_registration(self.folder / "hookserver.d", text)

    def start_hooks(self) -> "subprocess.Popen[bytes]":
        words = [sys.executable, "-m", "support.agent.hook_process", str(self.folder), self.layout.root]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment)
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def start_proxy(self) -> "subprocess.Popen[bytes]":
        flags = {
            "koord-runtimeproxy-endpoint": self.folder / "proxy.sock",
            "remote-runtime-service-endpoint": self.folder / "containerd.sock",
            "hookserver-dir": self.folder / "hookserver.d",
            "http-port": 0,
            "state-dir": self.folder / "state",
            "nats-urls": "nats://127.0.0.1:1",
        }
        words = [sys.executable, "-m", "koord_criproxy", *(f"--{name}={value}" for name, value in flags.items())]
        with (self.folder / "proxy.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def call(self, method: str, request: bytes, *, seconds: float = 60) -> bytes:
        """A call of the kubelet: through the proxy."""
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"unix://{self.folder / 'proxy.sock'}", options=options) as channel:
            unary: Any = channel.unary_unary
            call = unary(f"/runtime.v1.RuntimeService/{method}")
            answer: bytes = call(request, timeout=seconds, wait_for_ready=True)
            return answer

    def config(self, pod: Wanted) -> bytes:
        labels = (6, entry(keys.QOS_CLASS, pod.qos))
        annotations = [(7, entry(key, value)) for key, value in pod.all_annotations.items()]
        security = message((1, message((1, NODE_NAMESPACE))))
        linux = message((1, "/" + self.directory(pod)), (2, security))
        meta = message((1, pod.name), (2, pod.name), (3, "default"))
        return message((1, meta), (3, str(self.folder / "logs")), labels, *annotations, (8, linux))

    def directory(self, pod: Wanted) -> str:
        return self.layout.pod_directory(pod.kube_qos, pod.name)

    def run_sandbox(self, pod: Wanted) -> str:
        (self.folder / "logs").mkdir(exist_ok=True)
        self._create(self.directory(pod))
        return first_text(self.call("RunPodSandbox", message((1, self.config(pod)))))

    def create_request(self, pod: Wanted, sandbox: str) -> bytes:
        resources = message((1, 100_000), (2, pod.quota), (3, pod.shares), (4, pod.memory), (5, pod.oom))
        security = message((3, message((1, NODE_NAMESPACE))))
        words = [(3, word) for word in ("/bin/sh", "-c", SHOW)]
        container = message(
            (1, message((1, "main"))),
            (2, message((1, IMAGE))),
            *words,
            (6, entry("KEPT", "yes")),
            (11, f"{pod.name}.log"),
            (15, message((1, resources), (2, security))),
        )
        return message((1, sandbox), (2, container), (3, self.config(pod)))

    def start(self, pod: Wanted, sandbox: str) -> str:
        container = first_text(self.call("CreateContainer", self.create_request(pod, sandbox)))
        self.call("StartContainer", message((1, container)))
        return container

    def first_line(self, pod: Wanted) -> dict[str, str]:
        """Name -> value in the first line of the container's output."""
        log = self.folder / "logs" / f"{pod.name}.log"
        until_blocking(lambda: log.exists() and "\n" in log.read_text(), f"the first line of {pod.name}")
        line = log.read_text().splitlines()[0].split(" ", 3)[3]
        return dict(re.findall(r"(\w+)=(\S*)", line))

    def containers_of(self, sandbox: str) -> int:
        """How many containers the runtime has in a sandbox."""
        listed = self.containers.call("ListContainers", b"")
        return listed.count(sandbox.encode())

    def value(self, pod: Wanted, container: str, name: str) -> str:
        tree, _, file = FILES[name].partition("/")
        return (V1 / tree / self.directory(pod) / container / file).read_text().strip()

    def close(self) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._remove_sandboxes()
        for root in V1.iterdir():
            for directory in sorted((root / self.layout.root).glob("**/"), reverse=True):
                with contextlib.suppress(OSError):
                    directory.rmdir()

    def _remove_sandboxes(self) -> None:
        listed = self.containers.call("ListPodSandbox", b"")
        for found in re.findall(rb"\b[0-9a-f]{64}\b", listed):
            self.containers.call("StopPodSandbox", message((1, found)))
            self.containers.call("RemovePodSandbox", message((1, found)))


def entry(key: str, value: str) -> bytes:
    return message((1, key), (2, value))


@contextlib.contextmanager
def node_in(folder: Path, *, kubepods: str = "") -> Generator[Node]:
    """A node in a folder.

    kubepods    name of the cgroup of all pods; "" = one of its own
    """
    with containerd(folder) as containers:
        node = Node(folder, containers, kubepods=kubepods)
        try:
            yield node
        finally:
            node.close()


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    return {name: (found.get(name), value) for name, value in wanted.items() if found.get(name) != value}


def kubelet_document(pod: Wanted, container: str = "") -> dict[str, Any]:
    """The pod as the kubelet lists it.

    container    id of its running container; "" = none is created yet
    """
    created = [{"name": "main", "containerID": f"containerd://{container}"}] if container else []
    return {
        "metadata": {
            "name": pod.name,
            "namespace": "default",
            "uid": pod.name,
            "labels": {keys.QOS_CLASS: pod.qos},
            "annotations": pod.all_annotations,
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {
            "phase": "Running" if container else "Pending",
            "qosClass": pod.kube_qos,
            "containerStatuses": created,
        },
    }
