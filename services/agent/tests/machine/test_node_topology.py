"""The report of CPUs and NUMA nodes: what it says, when it is said, what keeps it from being said."""

import json
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.features import Feature, features_of
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KubeletConfiguration
from koord_agent.domain.node.pods import agent_pod_from_json
from koord_agent.domain.node.policies import CollectPolicy
from koord_agent.domain.reporting.report import node_report, usage_reported
from koord_agent.domain.reporting.topology_report import report_digest
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.collectors import Collectors
from koord_agent.shell.collect.topology import CPU_INFO_EVERY_MS, SYNC_EVERY_MS, TopologyReporter
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.store.local_store import LocalStore
from koordcore.events.nodestate import NodeTopologyReported
from koordcore.events.observation import Usage
from koordcore.ports.desired import DesiredNode
from koordcore.protocol import keys
from koordcore.values.topology import CpuPlace

PLACES = tuple(CpuPlace(cpu=cpu, core=cpu % 4, socket=0, node=cpu % 4 // 2) for cpu in range(8))
CPUINFO = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A CPU\n\nprocessor\t: 1\nmodel name\t: Another\n"


def machine(folder: Path, numa_nodes: int = 2) -> LinuxHost:
    """A machine of 8 CPUs on 2 NUMA nodes, with memory information of as many as asked for."""
    roots = HostRoots(cgroup=folder / "cgroup", proc=folder / "proc", sys=folder / "sys")
    for path in (roots.cgroup, roots.proc):
        path.mkdir(parents=True)
    (roots.proc / "cpuinfo").write_text(CPUINFO)
    for node in range(numa_nodes):
        meminfo = roots.sys / f"bus/node/devices/node{node}/meminfo"
        meminfo.parent.mkdir(parents=True)
        meminfo.write_text(f"Node {node} MemTotal: 1048576 kB\n")
    return LinuxHost(monotonic_ns=lambda: 0, roots=roots, version=1)


def desired(**node: Any) -> Any:
    """Desired state of the node."""
    return view_of(DesiredNode(node="n", capacity={"cpu": 8_000, "memory": 2 << 30}, **node))


def pinned(uid: str, cpuset: str) -> Any:
    """A pod that owns CPUs."""
    status = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpuset})}
    return agent_pod_from_json(
        {"metadata": {"uid": uid, "name": uid, "annotations": status}, "status": {"qosClass": "Guaranteed"}}
    )


def value(report: NodeTopologyReported, key: str) -> Any:
    """A reported annotation."""
    return json.loads(report.annotations[key])


def test_it_says_zones_pools_and_what_the_machine_is(tmp_path: Path) -> None:
    reporter = TopologyReporter(machine(tmp_path), PLACES)
    reporter.kubelet = KubeletConfiguration(cpu_manager_policy="static", reserved_system_cpus="0")
    reporter.kubelet_entries = {"gone": {"c": "7"}}
    annotations = {keys.NODE_RESERVATION: '{"reservedCPUs":"1"}', keys.SYSTEM_QOS_RESOURCE: '{"cpuset":"2"}'}
    report = reporter.report(desired(annotations=annotations), [pinned("a", "4")], 0)
    assert report is not None
    assert report.policies == ["None"]
    assert [(zone.name, zone.capacity["cpu"], zone.capacity["memory"]) for zone in report.zones] == [
        ("node-0", 4_000, 1 << 30),
        ("node-1", 4_000, 1 << 30),
    ]
    threads = {"hyperThreadEnabled": True}  # two CPUs have one core
    assert value(report, keys.CPU_BASIC_INFO) == {"cpuModel": "A CPU", "vendorID": "GenuineIntel", **threads}
    assert value(report, keys.CPU_TOPOLOGY)["detail"][5] == {"id": 5, "core": 1, "socket": 0, "node": 0}
    assert value(report, keys.CPU_SHARED_POOLS) == [
        {"socket": 0, "node": 0, "cpuset": "0,5"},
        {"socket": 0, "node": 1, "cpuset": "3,6"},
    ]
    assert value(report, keys.POD_CPU_ALLOCS) == [{"uid": "gone", "cpuset": "7", "managedByKubelet": True}]
    assert value(report, keys.KUBELET_CPU_MANAGER_POLICY) == {"policy": "static", "reservedCPUs": "0"}
    assert value(report, keys.NODE_RESERVATION) == {"reservedCPUs": "1"}
    assert reporter.pools is not None
    assert (reporter.pools.reserved, reporter.pools.system_exclusive) == ({1}, {2})


def test_reserved_cpus_of_a_strict_kubelet_are_in_no_pool(tmp_path: Path) -> None:
    reporter = TopologyReporter(machine(tmp_path), PLACES)
    reporter.kubelet = KubeletConfiguration(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"strict-cpu-reservation": "true"},
        reserved_system_cpus="0-1,4-5",
    )
    report = reporter.report(desired(), [], 0)
    assert report is not None
    for key in (keys.CPU_SHARED_POOLS, keys.BE_CPU_SHARED_POOLS):
        assert [pool["cpuset"] for pool in value(report, key)] == ["", "2-3,6-7"]
    assert reporter.pools is not None
    assert reporter.pools.kept_free == {0, 1, 4, 5}


@pytest.mark.parametrize("text", ['{"cpuset":"2-3"}', '{"cpuset":"2-3","cpusetExclusive":false}'])
def test_cpus_of_system_qos_are_reported_as_the_node_states_them(tmp_path: Path, text: str) -> None:
    reporter = TopologyReporter(machine(tmp_path), PLACES)
    report = reporter.report(desired(annotations={keys.SYSTEM_QOS_RESOURCE: text}), [], 0)
    assert report is not None
    assert report.annotations[keys.SYSTEM_QOS_RESOURCE] == text
    assert ("2" in value(report, keys.CPU_SHARED_POOLS)[1]["cpuset"]) is ("false" in text)


def test_turbo_that_is_switched_off_later_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def places(_: LinuxHost) -> tuple[CpuPlace, ...]:
        return PLACES  # not the CPUs of the machine of the test

    monkeypatch.setattr(LinuxHost, "cpu_topology", places)
    no_turbo = tmp_path / "sys/devices/system/cpu/intel_pstate/no_turbo"
    no_turbo.parent.mkdir(parents=True)
    no_turbo.write_text("0\n")
    reporter = TopologyReporter(machine(tmp_path), PLACES)
    first = reporter.report(desired(), [], 0)
    assert first is not None
    assert value(first, keys.CPU_BASIC_INFO)["turboEnabled"]
    no_turbo.write_text("1\n")
    assert reporter.report(desired(), [], CPU_INFO_EVERY_MS - 1) is None
    later = reporter.report(desired(), [], CPU_INFO_EVERY_MS + SYNC_EVERY_MS)
    assert later is not None
    assert "turboEnabled" not in value(later, keys.CPU_BASIC_INFO)


def test_zones_offer_less_if_the_node_asks_for_it_by_its_label(tmp_path: Path) -> None:
    allocatable = {"cpu": 7_000, "memory": 3 << 29}
    for is_asked in (False, True):
        labels = {keys.ENABLE_NUMA_RESERVATION: "true"} if is_asked else {}
        reporter = TopologyReporter(machine(tmp_path / str(is_asked)), PLACES)
        report = reporter.report(desired(labels=labels, allocatable=allocatable), [], 0)
        assert report is not None
        less = (500, 1 << 28) if is_asked else (0, 0)
        offered = [(zone.allocatable["cpu"], zone.allocatable["memory"]) for zone in report.zones]
        assert offered == [(4_000 - less[0], (1 << 30) - less[1])] * 2


def test_it_is_said_when_it_changed_and_not_again_after_a_restart(tmp_path: Path) -> None:
    host = machine(tmp_path / "machine")
    reporter = TopologyReporter(host, PLACES)
    first = reporter.report(desired(), [], 0)
    assert first is not None
    assert reporter.report(desired(), [pinned("a", "4")], 1_000) is None, "looked at every 3 s"
    changed = reporter.report(desired(), [pinned("a", "4")], SYNC_EVERY_MS)
    assert changed is not None
    assert reporter.report(desired(), [pinned("a", "4")], 2 * SYNC_EVERY_MS) is None
    kept = LocalStore(tmp_path / "state")
    kept.add([], started={}, stopped={}, topologies={"n": report_digest(changed)})
    kept.close()
    said = LocalStore(tmp_path / "state").topologies()["n"]
    assert TopologyReporter(host, PLACES, said=said).report(desired(), [pinned("a", "4")], 0) is None
    assert TopologyReporter(host, PLACES, said=said).report(desired(), [], 0) is not None


def test_a_malformed_annotation_is_told_and_nothing_is_reported_until_it_is_mended(tmp_path: Path) -> None:
    reporter = TopologyReporter(machine(tmp_path / "three"), PLACES)
    assert reporter.report(desired(annotations={keys.SYSTEM_QOS_RESOURCE: "{"}), [], 0) is None
    said = reporter.problems
    assert said[0].startswith("topology is not reported: ")
    assert reporter.report(desired(), [], SYNC_EVERY_MS - 1) is None
    assert reporter.problems == said, "it lasts until the next reading"
    assert reporter.report(desired(), [], SYNC_EVERY_MS) is not None
    assert reporter.problems == ()
    silent = TopologyReporter(machine(tmp_path / "four"), PLACES, reports=False)
    assert silent.report(desired(), [], 0) is None
    assert silent.pools is not None


def test_usage_by_numa_node_is_measured_and_reported(tmp_path: Path) -> None:
    host = machine(tmp_path)
    now = [0]
    clocked = LinuxHost(monotonic_ns=lambda: now[0], roots=host.roots, version=1, layout=host.layout, jiffy=10_000_000)
    (host.roots.proc / "meminfo").write_text("MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n")
    for node in range(2):
        (host.roots.sys / f"bus/node/devices/node{node}/meminfo").write_text(
            f"Node {node} MemTotal: 4096 kB\nNode {node} MemFree: {1024 * (node + 1)} kB\n"
            + "".join(f"Node {node} {name}: 0 kB\n" for name in ("Active(file)", "Inactive(file)", "SReclaimable"))
        )
    monitor = NodeMonitor(collect_interval_ms=1_000)
    features = features_of(Feature, file="", why="")
    collectors = Collectors(
        clocked, monitor, features=features, settings=AgentSettings.model_validate({}), topology=PLACES
    )
    for second in range(1, 4):
        now[0] = second * 1_000_000_000
        # of the first NUMA node one CPU is busy all the time, of the second none
        lines = [f"cpu{cpu} {100 * second if cpu == 0 else 0} 0 0 0 0 0 0\n" for cpu in range(8)]
        (host.roots.proc / "stat").write_text(f"cpu {100 * second} 0 0 0 0 0 0\n" + "".join(lines))
        collectors.run((), second * 1_000)
    found = node_report(monitor.store, now_ms=3_000, policy=CollectPolicy())
    report = usage_reported(found, updated_at="", be_quota_us=-1)
    assert [(numa.numa_node, numa.node_usage) for numa in report.numa] == [
        (0, Usage(cpu_milli=1_000, memory_bytes=3072 << 10)),
        (1, Usage(cpu_milli=0, memory_bytes=2048 << 10)),
    ]
    assert report.numa[0].system_usage == Usage(cpu_milli=1_000, memory_bytes=3072 << 10)
