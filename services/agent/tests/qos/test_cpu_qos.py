"""CPU QoS: who runs before others, by class, pod, container and host application; what a kernel cannot do is left."""

from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.strategies.group_identity import is_idle
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import CycleResult, NodeAgent
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from support.agent.pods import limited_pod
from support.agent.real_tree import real_tree

LAYOUT = CgroupLayout(Driver.CGROUPFS)
ON: dict[str, Any] = {
    "lsrClass": {"cpuQOS": {"enable": True}},
    "lsClass": {"cpuQOS": {"enable": True}},
    "beClass": {"cpuQOS": {"enable": True}},
}
BATCH = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "64Mi"}
APPLICATION = {"name": "nginx", "qos": "LS", "cgroupPath": {"base": "CgroupRoot", "relativePath": "host/nginx"}}


def pod(uid: str, qos: str, *, own: str = "") -> AgentPod:
    metadata: dict[str, Any] = {"name": uid, "namespace": "default", "uid": uid}
    metadata["labels"] = {"koordinator.sh/qosClass": qos}
    metadata["annotations"] = {"koordinator.sh/cpuQOS": own} if own else {}
    statuses: list[dict[str, Any]] = [{"name": "c", "containerID": f"containerd://{uid}-c", "state": {"running": {}}}]
    kube_qos = "BestEffort" if qos == "BE" else "Burstable"
    return agent_pod_from_json(
        {
            "metadata": metadata,
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Running", "qosClass": kube_qos, "containerStatuses": statuses},
        }
    )


PODS = {
    "web": pod("web", "LS"),
    "odd": pod("odd", "LS", own='{"enable": true, "groupIdentity": 7}'),
    "low": pod("low", "LS", own='{"enable": true, "groupIdentity": -1}'),
    "job": pod("job", "BE"),
}


class Node:
    """A fake v1 tree of an extended kernel, its switch off and core scheduling on, and the agent on it."""

    def __init__(self, folder: Path, *, extended: bool = True, gates: str = "") -> None:
        self.cgroup, self.proc = folder / "cgroup", folder / "proc"
        directories = [LAYOUT.qos_directory(qos) for qos in KubeQos] + ["host/nginx"]
        for found in PODS.values():
            directories.append(LAYOUT.pod_directory(found.kube_qos, found.uid))
            directories.append(LAYOUT.container_directory(found.kube_qos, found.uid, f"containerd://{found.uid}-c"))
        for directory in directories:
            (self.cgroup / "cpu" / directory).mkdir(parents=True, exist_ok=True)
            (self.cgroup / "cpu" / directory / "cpu.idle").write_text("0\n")
            if extended:
                (self.cgroup / "cpu" / directory / "cpu.bvt_warp_ns").write_text("0\n")
        kernel = self.proc / "sys/kernel"
        kernel.mkdir(parents=True)
        if extended:
            (kernel / "sched_group_identity_enabled").write_text("0\n")
            (kernel / "sched_core").write_text("1\n")
        (self.proc / "stat").write_text("cpu 1 1 1 1 1 1 1\n")
        (self.proc / "meminfo").write_text("MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n")
        roots = HostRoots(cgroup=self.cgroup, proc=self.proc, sys=folder / "sys")
        host = LinuxHost(monotonic_ns=lambda: 0, roots=roots, layout=LAYOUT, version=1, jiffy=10_000_000)
        self.agent = NodeAgent(
            "n",
            host,
            Measurement(monitor=NodeMonitor(collect_interval_ms=1_000)),
            interval_ms=1_000,
            settings=AgentSettings.model_validate({"feature_gates": gates}),
        )
        self.agent.known = KnownPods(pods=PODS, at_ms=0)

    def round(self, at_ms: int, strategy: dict[str, Any], **slo: Any) -> CycleResult:
        amounts = {"cpu": 4_000, "memory": 1 << 30}
        wanted = DesiredNode(
            node="n", slo={"resourceQOSStrategy": strategy, **slo}, capacity=amounts, allocatable=amounts
        )
        self.agent.desired = view_of(wanted)
        return self.agent.run_cycle(at_ms)

    def values(self, name: str = "cpu.bvt_warp_ns") -> dict[str, int]:
        """By the last part of the directory."""
        found = sorted((self.cgroup / "cpu").rglob(name))
        return {path.parent.name: int(path.read_text()) for path in found if int(path.read_text())}

    def kernel(self, name: str) -> str:
        return (self.proc / "sys/kernel" / name).read_text().strip()


def test_classes_pods_containers_and_applications_get_their_identity(tmp_path: Path) -> None:
    node = Node(tmp_path)
    tick = node.round(1_000, ON, hostApplications=[APPLICATION])
    assert node.values() == {
        "burstable": 2,
        "besteffort": -1,
        "podweb": 2,
        "web-c": 2,
        "podlow": -1,
        "low-c": -1,
        "podjob": -1,
        "job-c": -1,
        "nginx": 2,
    }
    assert (node.kernel("sched_group_identity_enabled"), node.kernel("sched_core")) == ("1", "0")
    assert any("default/odd: its CPU QoS is not applied" in problem for problem in tick.problems)
    node.round(2_000, {}, hostApplications=[APPLICATION])
    assert node.values() == {"podlow": -1, "low-c": -1}, "switched off, it is taken back but where a pod asks for it"


def test_off_by_default_nothing_is_switched_and_nothing_written(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.round(1_000, {})
    assert node.values() == {}
    assert node.kernel("sched_group_identity_enabled") == "0"


def test_a_kernel_without_it_is_left_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, extended=False)
    tick = node.round(1_000, ON)
    assert node.values() == {}
    assert not any("bvt" in problem for problem in tick.problems)


def test_the_gate_switches_it_off(tmp_path: Path) -> None:
    node = Node(tmp_path, gates="GroupIdentity=false")
    node.round(1_000, ON)
    assert node.values() == {}


IDLE: dict[str, Any] = {
    "policies": {"cpuPolicy": "coreSched"},
    "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}},
}


def test_pods_of_an_idle_class_run_when_nobody_else_wants_to(tmp_path: Path) -> None:
    assert [is_idle(IDLE, "", qos) for qos in KubeQos] == [False, False, True]
    assert is_idle(IDLE, "BE", KubeQos.BURSTABLE)
    assert not is_idle({**IDLE, "policies": {"cpuPolicy": "groupIdentity"}}, "BE", KubeQos.BEST_EFFORT)
    node = Node(tmp_path, extended=False, gates="CoreSched=true")
    node.round(1_000, IDLE)
    assert node.values("cpu.idle") == {"podjob": 1}
    node.round(2_000, {})
    assert node.values("cpu.idle") == {}


def test_on_a_mainline_kernel_best_effort_pods_are_idle_instead(tmp_path: Path) -> None:
    node = Node(tmp_path, extended=False)
    node.round(1_000, {**ON, "beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}})
    assert node.values("cpu.idle") == {"podjob": 1}
    node.round(2_000, {})
    assert node.values("cpu.idle") == {}
    extended = Node(tmp_path / "extended")
    extended.round(1_000, ON)
    assert extended.values("cpu.idle") == {}


@pytest.mark.root
def test_with_a_kernel_of_this_machine_no_writer_of_shares_is_refused(tmp_path: Path) -> None:
    """The kernel refuses shares of an idle cgroup; a kubelet that cannot write those of its classes does not start."""
    job, slo = limited_pod("job", "BE", BATCH), {"resourceQOSStrategy": IDLE}
    with real_tree(tmp_path, {"job": job}, gates="CoreSched=true") as tree:
        be, of_pod = tree.layout.qos_directory(KubeQos.BEST_EFFORT), tree.pod("job")
        tree.write(be, "cpu.shares", 2)
        tree.write(be, "cpu.idle", 1)  # an earlier version of the agent left it
        tree.live(1, slo)
        assert (tree.read(be, "cpu.idle"), tree.read(of_pod, "cpu.idle")) == (0, 1)
        assert tree.read(be, "cpu.shares") == 2, "the kernel makes it 1024"
        tree.write(be, "cpu.shares", 2)  # as the kubelet does when it starts
        tree.live(12, slo)
        assert tree.problems == ()
        tree.live(1, {})
        assert tree.read(of_pod, "cpu.idle") == 0
        assert tree.read(of_pod, "cpu.shares") == 2_048, "of 2 cores"
