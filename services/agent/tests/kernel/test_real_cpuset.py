"""On a real kernel: containers run on the CPUs that the strategy proposes, and only there."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.cpu_pools import cpu_pools
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod, agent_pod_of_ledger
from koord_agent.domain.plans.plan import CgroupFile, writable_trees
from koord_agent.domain.strategies.cpuset import CPUSET, RENEW_AFTER_MS, CpusetStrategy
from koord_agent.domain.strategies.strategy import CycleState
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import cgroup_version
from koord_agent.shell.node.protect import HostReadings
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol.qos import KubeQos
from koordcore.values.allocation import NOTHING, Allocation
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.topology import CpuPlace, CpuTopology
from support.until import until_blocking

pytestmark = pytest.mark.root

CGROUP = Path("/sys/fs/cgroup")
LAYOUT = CgroupLayout(Driver.CGROUPFS, kubepods=f"kubepods-cputest-{os.getpid()}")
OWNER = LAYOUT.pod_directory(KubeQos.GUARANTEED, "owner")
OTHER = LAYOUT.pod_directory(KubeQos.BURSTABLE, "other")
SANDBOX, MAIN = f"{OTHER}/sandbox", f"{OTHER}/main"
"""Containers that the agent does not know: without a kubelet, it knows pods only."""


def hierarchy() -> Path | None:
    """The file system of CPU lists. None if it cannot be written, or if there is one CPU."""
    root = CGROUP if cgroup_version(CGROUP) == 2 else CGROUP / "cpuset"
    names = (root / "cgroup.controllers").read_text().split() if root == CGROUP else ["cpuset"]
    is_usable = os.geteuid() == 0 and os.access(root, os.W_OK) and "cpuset" in names
    return root if is_usable and len(os.sched_getaffinity(0)) > 1 else None


@pytest.fixture
def processes() -> Iterator[tuple[int, int]]:
    """Processes of two pods, the second one in the cgroup of a container. Everything is removed afterwards."""
    root = hierarchy()
    if root is None:
        pytest.skip("needs root, two CPUs and a writable hierarchy of CPU lists")
    made: list[Path] = []
    started = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        for directory in (LAYOUT.root, OWNER, LAYOUT.qos_directory(KubeQos.BURSTABLE), OTHER, SANDBOX, MAIN):
            path = root / directory
            path.mkdir()
            made.append(path)
            if root == CGROUP:
                path.parent.joinpath("cgroup.subtree_control").write_text("+cpuset")
            else:
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (path / name).write_text((path.parent / name).read_text())
                made.append(CGROUP / "cpu" / directory)  # every cgroup of a pod is in all hierarchies
                made[-1].mkdir()
        for directory, process in zip((OWNER, MAIN), started, strict=True):
            (root / directory / "cgroup.procs").write_text(str(process.pid))
        yield started[0].pid, started[1].pid
    finally:
        for process in started:
            process.kill()
            process.communicate()
        for path in reversed(made):
            _remove(path)


def _remove(directory: Path) -> None:
    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            directory.rmdir()
        return not directory.exists()

    until_blocking(is_gone, f"the removal of {directory}", every=0)


def _pod(uid: str, qos: str, kube_qos: KubeQos, allocation: Allocation = NOTHING) -> AgentPod:
    return agent_pod_of_ledger(
        PodOnNode(
            requests={},
            priority_class="koord-prod",
            uid=uid,
            namespace="default",
            name=uid,
            qos=qos,
            kube_qos=kube_qos,
            allocation=allocation,
        )
    )


def test_processes_run_on_their_own_or_shared_cpus_and_get_the_cpus_back(processes: tuple[int, int]) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    own, rest = {cpus[0]}, set(cpus[1:])
    # two NUMA nodes, whatever this machine has: the pools are made by the same code
    topology = CpuTopology(tuple(CpuPlace(cpu=cpu, core=cpu, socket=0, node=int(cpu in rest)) for cpu in cpus))
    host = LinuxHost(monotonic_ns=time.monotonic_ns, layout=LAYOUT)
    executor = CgroupExecutor(host, trees=writable_trees(LAYOUT))
    strategy, state = CpusetStrategy(), CycleState(readings=HostReadings(host, None))

    def cycle(now_ms: int, *pods: AgentPod) -> None:
        seen = NodeLook(
            now_ms=now_ms,
            node="n",
            layout=LAYOUT,
            cgroup_version=host.cgroup_version,
            metrics=Metrics(store=SeriesStore(), now_ms=now_ms, interval_ms=1_000),
            pods=pods,
            pools=cpu_pools(topology, pods, {}, {}),
        )
        plans = [plan for plan in strategy.propose(seen, {}, state).plans if plan.file.resource == CPUSET]
        assert plans
        outcomes = executor.apply(plans, now_ms)
        assert {outcome.result for outcome in outcomes} <= {Result.WRITTEN, Result.UNCHANGED}, outcomes

    owner, other = processes
    lsr = _pod("owner", "LSR", KubeQos.GUARANTEED, Allocation(cpuset=format_cpuset(own)))
    ls = _pod("other", "LS", KubeQos.BURSTABLE)
    cycle(0, lsr, ls)
    assert os.sched_getaffinity(owner) == own
    assert os.sched_getaffinity(other) == rest, "the shared pool does not have the CPU of the owner"
    for directory in (OTHER, SANDBOX, MAIN):
        assert parse_cpuset((host.read(CgroupFile(directory, CPUSET)) or "").strip()) == rest
    cycle(RENEW_AFTER_MS, ls)
    assert os.sched_getaffinity(other) == own | rest, "the owner is gone"
