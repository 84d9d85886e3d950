"""CPU lists on a machine of two NUMA zones, described by a sysfs tree, with cgroup v1 and v2: the agent's own code."""

from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod, agent_pod_of_ledger
from koord_agent.domain.plans.plan import writable_trees
from koord_agent.domain.strategies.cpuset import CPUSET, CpusetStrategy
from koord_agent.domain.strategies.strategy import CycleState
from koord_agent.shell.collect.topology import TopologyReporter
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.protect import HostReadings
from koordcore.events.node_ledger import PodOnNode
from koordcore.ports.desired import DesiredNode
from koordcore.protocol import keys
from koordcore.protocol.qos import KubeQos
from koordcore.values.allocation import NOTHING, Allocation, ZoneAmounts

LAYOUT = CgroupLayout(Driver.SYSTEMD)
RESERVED = {keys.NODE_RESERVATION: '{"reservedCPUs":"3"}'}
CPUS, CORES = 8, 4


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _machine(folder: Path, version: int, pods: list[AgentPod]) -> LinuxHost:
    """A machine of two sockets with one zone of two cores each; CPUs k and k + 4 share core k."""
    sys, proc = folder / "sys", folder / "proc"
    _write(sys / "devices/system/cpu/online", f"0-{CPUS - 1}\n")
    for cpu in range(CPUS):
        core = cpu % CORES
        topology = sys / f"devices/system/cpu/cpu{cpu}/topology"
        _write(topology / "core_id", f"{core}\n")
        _write(topology / "physical_package_id", f"{core // 2}\n")
        _write(topology / "thread_siblings_list", f"{core},{core + CORES}\n")
        _write(topology / "core_siblings_list", f"{('0-1,4-5', '2-3,6-7')[core // 2]}\n")
    for zone, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        _write(sys / f"bus/node/devices/node{zone}/cpulist", f"{cpus}\n")
        _write(sys / f"bus/node/devices/node{zone}/meminfo", f"Node {zone} MemTotal: 1048576 kB\n")
    _write(proc / "cpuinfo", "".join(f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\n\n" for cpu in range(CPUS)))
    for pod in pods:
        _write(_file(folder, version, pod), f"0-{CPUS - 1}\n")
        if version == 2:
            _write(_file(folder, version, pod).with_name("cpuset.cpus.effective"), f"0-{CPUS - 1}\n")
    roots = HostRoots(cgroup=folder / "cgroup", proc=proc, sys=sys)
    return LinuxHost(monotonic_ns=lambda: 0, roots=roots, version=version, layout=LAYOUT)


def _file(folder: Path, version: int, pod: AgentPod) -> Path:
    return folder / "cgroup" / ("cpuset" if version == 1 else "") / LAYOUT.pod_directory(pod.kube_qos, pod.uid) / CPUSET


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


@pytest.mark.parametrize("version", [1, 2])
def test_pods_get_their_cpus_and_disjoint_pools_of_both_zones(tmp_path: Path, version: int) -> None:
    in_zone_1 = Allocation(zones=(ZoneAmounts(zone=1, amounts={"cpu": 1_000}),))
    pods = [
        _pod("lse", "LSE", KubeQos.GUARANTEED, Allocation(cpuset="2,6", cpu_bind_policy="FullPCPUs")),
        _pod("lsr", "LSR", KubeQos.GUARANTEED, Allocation(cpuset="0,4", cpu_bind_policy="FullPCPUs")),
        _pod("ls", "LS", KubeQos.BURSTABLE),
        _pod("zoned", "LS", KubeQos.BURSTABLE, in_zone_1),
        _pod("be", "BE", KubeQos.BEST_EFFORT),
    ]
    host = _machine(tmp_path, version, pods)
    reporter = TopologyReporter(host, host.cpu_topology())
    desired = view_of(
        DesiredNode(node="n", capacity={"cpu": 8_000, "memory": 2 << 30}, annotations=RESERVED, as_of={"node": 1})
    )
    report = reporter.report(desired, pods, 0)
    assert report is not None
    assert [(zone.name, zone.capacity["cpu"]) for zone in report.zones] == [("node-0", 4_000), ("node-1", 4_000)]

    executor = CgroupExecutor(host, trees=writable_trees(LAYOUT))
    seen = NodeLook(
        now_ms=0,
        node="n",
        layout=LAYOUT,
        cgroup_version=host.cgroup_version,
        metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
        pods=tuple(pods),
        annotations=RESERVED,
        pools=reporter.pools,
    )
    strategy = CpusetStrategy(be_by_manager=True)
    proposal = strategy.propose(seen, {}, CycleState(readings=HostReadings(host, None)))
    plans = [plan for plan in proposal.plans if plan.file.resource == CPUSET]
    assert {outcome.result for outcome in executor.apply(plans, 0)} == {Result.WRITTEN}
    lists = {pod.uid: _file(tmp_path, version, pod).read_text().strip() for pod in pods}
    assert lists == {
        "lse": "2,6",
        "lsr": "0,4",
        "ls": "1,5,7",
        "zoned": "7",
        "be": "0-7",
    }
    assert reporter.pools is not None
    assert [pool.cpuset for pool in reporter.pools.be] == ["0-1,4-5", "7"], "not those of LSE, and not the reserved CPU"
