"""On a real kernel with real containers over CRI: best effort is held to its budget, the other container works on."""

import contextlib
import os
import time
from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.counters import CgroupCounters
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.metrics.usage import cgroup_usage
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.grpc.container_runtime import ContainerRuntimes
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.pods import NodePods
from koordcore.events.node_ledger import PodOnNode
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from koordctl.stack.containers import missing_program
from support.agent.cri import containerd
from support.until import DEADLINE_SECONDS, until_blocking

pytestmark = [pytest.mark.root, pytest.mark.slow]

BURN = ("/bin/sh", "-c", "for i in 1 2 3 4; do while :; do :; done & done; wait")
SERVE = ("/bin/sh", "-c", "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; usleep 20000; done")
PERIOD_US = 100_000


def pod(name: str, qos: str) -> PodOnNode:
    best_effort = qos == "BE"
    return PodOnNode(
        uid=name,
        namespace="default",
        name=name,
        qos=qos,
        kube_qos="BestEffort" if best_effort else "Burstable",
        priority_class="koord-batch" if best_effort else "koord-prod",
        requests={"kubernetes.io/batch-cpu": 2000} if best_effort else {"cpu": 500},
    )


def counters(host: LinuxHost, directory: str) -> CgroupCounters:
    found = host.cgroup_counters(directory)
    assert found is not None
    return found


def throttling(found: CgroupCounters) -> tuple[int, int]:
    assert found.throttling is not None
    return found.throttling.nr_periods, found.throttling.nr_throttled


def test_the_containers_of_an_evicted_pod_end_at_once_through_the_runtime(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("grpc", reason="no grpcio: real containers are run over CRI")
    if os.geteuid() != 0 or not os.access("/sys/fs/cgroup/cpu/tasks", os.W_OK):
        pytest.skip("needs root and a writable cgroup v1")
    missing = missing_program()
    if missing:
        pytest.skip(missing)
    layout = CgroupLayout(Driver.CGROUPFS, kubepods=f"kubepods-evict-{os.getpid()}")
    request.addfinalizer(lambda: remove_tree(layout.root))
    crunch = pod("crunch", "BE")
    with containerd(tmp_path) as containers:
        parent = layout.pod_directory(KubeQos.BEST_EFFORT, crunch.uid)
        identity = containers.run_pod(crunch.name, f"/{parent}", BURN)
        directory = layout.container_directory(KubeQos.BEST_EFFORT, crunch.uid, f"containerd://{identity}")
        tasks = Path("/sys/fs/cgroup/cpu") / directory / "tasks"
        assert tasks.read_text().split()
        host = LinuxHost(monotonic_ns=time.monotonic_ns, layout=layout)
        runtimes = ContainerRuntimes(
            (), given={"containerd": tmp_path / "containerd.sock"}, monotonic=time.monotonic, seconds=DEADLINE_SECONDS
        )
        pods = NodePods(host, runner=None, announced=(), forget=lambda _: None, stop=runtimes.stop)
        pods.run(view_of(DesiredNode(node="n", pods=[crunch])), KnownPods())
        began = time.monotonic()
        ended = pods.end(crunch.uid)
        print(f"ended after {time.monotonic() - began:.2f} s")
        assert ended.problems == ()
        assert ended.ended
        assert not tasks.exists() or not tasks.read_text().split()


def remove_tree(name: str) -> None:
    """Remove what the runtime leaves of the tree above its pods, in every hierarchy."""
    for root in Path("/sys/fs/cgroup").iterdir():
        for directory in sorted((root / name).glob("**/"), reverse=True):
            with contextlib.suppress(OSError):
                directory.rmdir()


@pytest.mark.deep
def test_a_best_effort_container_that_burns_every_cpu_is_held_to_its_budget(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("grpc", reason="no grpcio: real containers are run over CRI")
    if os.geteuid() != 0 or not os.access("/sys/fs/cgroup/cpu/tasks", os.W_OK):
        pytest.skip("needs root and a writable cgroup v1")
    missing = missing_program()
    if missing:
        pytest.skip(missing)
    layout = CgroupLayout(Driver.CGROUPFS, kubepods=f"kubepods-cri-{os.getpid()}")
    request.addfinalizer(lambda: remove_tree(layout.root))
    web, crunch = pod("web", "LS"), pod("crunch", "BE")
    be_root = layout.qos_directory(KubeQos.BEST_EFFORT)
    with containerd(tmp_path) as containers:
        for one, command in ((web, SERVE), (crunch, BURN)):
            parent = layout.pod_directory(KubeQos(one.kube_qos), one.uid)
            identity = containers.run_pod(one.name, f"/{parent}", command)
            directory = layout.container_directory(KubeQos(one.kube_qos), one.uid, f"containerd://{identity}")
            assert (Path("/sys/fs/cgroup/cpu") / directory).is_dir(), "the runtime puts it where the agent looks for it"
        host = LinuxHost(monotonic_ns=time.monotonic_ns, layout=layout)
        capacity = {"cpu": host.capacity().cpu_milli, "memory": host.capacity().memory_bytes}

        def quota() -> int:
            return int(host.read(CgroupFile(be_root, "cpu.cfs_quota_us")) or 0)

        def agent_that(protect: bool) -> NodeAgent:
            agent = NodeAgent("n", host, Measurement(monitor=NodeMonitor(collect_interval_ms=1_000)), interval_ms=1_000)
            threshold = {"enable": protect, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 40}
            desired = DesiredNode(
                node="n",
                pods=[web, crunch],
                slo={"resourceUsedThresholdWithBE": threshold},
                capacity=capacity,
                allocatable=capacity,
            )
            agent.desired = view_of(desired)
            return agent

        def cycle(agent: NodeAgent) -> int:
            agent.run_cycle(time.monotonic_ns() // 1_000_000)
            return quota()

        unprotected = agent_that(protect=False)
        for _ in range(3):
            assert cycle(unprotected) == -1
        protected = agent_that(protect=True)
        quotas = [until_blocking(lambda: (found := cycle(protected)) > 0 and found, every=1)]
        before = counters(host, be_root)

        def held() -> CgroupCounters | None:
            """The counters after fifty periods, of which some were throttled."""
            quotas.append(cycle(protected))
            found = counters(host, be_root)
            periods, throttled = (
                after - begin for after, begin in zip(throttling(found), throttling(before), strict=True)
            )
            return found if periods >= 50 and throttled > 0 else None

        used = cgroup_usage(before, until_blocking(held, every=1))
        assert used is not None
        budget = max(quotas) / PERIOD_US
        print(f"best effort used {used:.3f} cores of {budget:.3f}")
        assert used <= budget * 1.5, "each CPU may run into the next period for a slice"
