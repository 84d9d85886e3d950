"""CPUs and NUMA nodes from the files of sysfs, without a program of the machine; what cannot be read is told.

Source: reality, 4.10; agent spec, 4.4, 4.7 (7).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cpus import CpuFiles, cpu_places
from koord_agent.domain.kernel.features import Feature
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.reporting.topology_report import NumaMemory, zones
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.topology import SYNC_EVERY_MS, TopologyReporter
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.numa import NumaReader, read_cpus
from koord_agent.shell.host.probe import HostRoots, host_roots
from koordcore.events.nodestate import NodeTopologyReported
from koordcore.ports.desired import DesiredNode
from koordcore.protocol import keys
from koordcore.values.cpuset import parse_cpuset
from koordcore.values.quantity import parse_quantity
from koordcore.values.topology import CpuPlace, CpuTopology

CPU_FOLDER = "devices/system/cpu"
GIB = 1 << 30


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def put_cpu(sys: Path, cpu: int, core: str, package: str, **ids: int) -> None:
    folder = sys / CPU_FOLDER / f"cpu{cpu}/topology"
    put(folder / "core_cpus_list", core)
    put(folder / "package_cpus_list", package)
    for name, value in ids.items():
        put(folder / name, str(value))


def put_node(sys: Path, node: int, cpus: str, gib: int | None) -> None:
    folder = sys / f"bus/node/devices/node{node}"
    put(folder / "cpulist", cpus)
    if gib is not None:
        put(folder / "meminfo", f"Node {node} MemTotal: {gib << 20} kB")


def machine(folder: Path, nodes: Mapping[int, tuple[str, int | None]], cpus: int = 4) -> LinuxHost:
    """One core for each CPU. `nodes` is NUMA node -> its CPUs and GiB of memory; None: its meminfo is unreadable."""
    roots = HostRoots(cgroup=folder / "cgroup", proc=folder / "proc", sys=folder / "sys")
    roots.cgroup.mkdir(parents=True)
    put(roots.proc / "meminfo", f"MemTotal: {8 << 20} kB")
    put(roots.sys / CPU_FOLDER / "online", f"0-{cpus - 1}")
    for cpu in range(cpus):
        put_cpu(roots.sys, cpu, str(cpu), f"0-{cpus - 1}")
    for node, (of_node, gib) in nodes.items():
        put_node(roots.sys, node, of_node, gib)
    return LinuxHost(monotonic_ns=lambda: 0, roots=roots, version=1)


def desired() -> Any:
    """Desired state of the node."""
    return view_of(DesiredNode(node="n", capacity={"cpu": 4_000, "memory": 8 * GIB}))


def reported(host: LinuxHost) -> tuple[NodeTopologyReported | None, tuple[str, ...]]:
    reporter = TopologyReporter(host, host.cpu_topology())
    return reporter.report(desired(), [], 0), reporter.problems


def amounts(report: NodeTopologyReported | None) -> dict[str, tuple[int, int]]:
    """Zone -> CPUs and GiB."""
    assert report is not None
    return {zone.name: (zone.capacity["cpu"] // 1_000, zone.capacity["memory"] // GIB) for zone in report.zones}


def test_cores_and_sockets_are_numbered_as_lscpu_numbers_them() -> None:
    """The kernel's core ids begin again in each socket, and may have holes."""
    files = {
        cpu: CpuFiles(
            core_cpus=f"{cpu % 4},{cpu % 4 + 4}",
            package_cpus="0-1,4-5" if cpu % 4 < 2 else "2-3,6-7",
            core_id=str(cpu % 2 * 8),
            package_id=str(cpu % 4 // 2),
        )
        for cpu in range(8)
    }
    found = cpu_places(files, {0: parse_cpuset("0-1,4-5"), 3: parse_cpuset("2-3,6-7")})
    assert found.problems == ()
    assert [(place.cpu, place.core, place.socket, place.node) for place in found.places] == [
        (0, 0, 0, 0),
        (4, 0, 0, 0),
        (1, 1, 0, 0),
        (5, 1, 0, 0),
        (2, 2, 1, 3),
        (6, 2, 1, 3),
        (3, 3, 1, 3),
        (7, 3, 1, 3),
    ]


def test_without_lists_the_ids_of_socket_die_and_core_tell_cores_apart() -> None:
    files = {
        cpu: CpuFiles(core_id="0", die_id=str(die), package_id="-1") for cpu, die in ((0, 0), (1, 0), (2, 1), (3, 1))
    }
    places = cpu_places(files, {}).places
    assert [(place.cpu, place.core, place.socket, place.node) for place in places] == [
        (0, 0, 0, 0),
        (1, 0, 0, 0),
        (2, 1, 0, 0),
        (3, 1, 0, 0),
    ]


def test_offline_cpus_do_not_enter_and_a_cpu_without_a_place_is_left_out_and_told(tmp_path: Path) -> None:
    put(tmp_path / CPU_FOLDER / "online", "0-1,3")
    for cpu in range(3):
        put_cpu(tmp_path, cpu, str(cpu), "0-2")
    found = read_cpus(tmp_path, {})
    assert [place.cpu for place in found.places] == [0, 1]
    assert found.problems == ("core or socket of CPUs 3 cannot be read",)


def test_numa_ids_with_a_hole_keep_their_cpus_and_memory(tmp_path: Path) -> None:
    report, problems = reported(machine(tmp_path, {0: ("0-1", 2), 8: ("2-3", 4)}))
    assert amounts(report) == {"node-0": (2, 2), "node-8": (2, 4)}
    assert problems == ()
    assert report is not None
    detail = json.loads(report.annotations[keys.CPU_TOPOLOGY])["detail"]
    assert [each["node"] for each in detail] == [0, 0, 8, 8]


def test_a_node_of_only_memory_or_only_cpus_is_a_zone_and_one_of_neither_is_none(tmp_path: Path) -> None:
    report, problems = reported(machine(tmp_path, {0: ("0-3", 0), 1: ("", 6), 2: ("", 0)}))
    assert amounts(report) == {"node-0": (4, 0), "node-1": (0, 6)}
    assert problems == ()


def test_what_can_be_read_is_reported_and_the_rest_is_told(tmp_path: Path) -> None:
    host = machine(tmp_path, {0: ("0-1", 2), 1: ("2-3", None), 70: ("", 1)})
    reporter = TopologyReporter(host, host.cpu_topology())
    assert amounts(reporter.report(desired(), [], 0)) == {"node-0": (2, 2), "node-1": (2, 0), "node-70": (0, 1)}
    assert reporter.problems == (
        "a part of the topology is not reported: memory of NUMA node 1 cannot be read",
        "a part of the topology is not reported: NUMA node 70: the scheduler ignores zones above 63",
    )
    put_node(host.roots.sys, 1, "2-3", 3)
    assert amounts(reporter.report(desired(), [], SYNC_EVERY_MS))["node-1"] == (2, 3)
    (host.roots.sys / "bus/node/devices/node1/meminfo").unlink()
    assert reporter.report(desired(), [], 2 * SYNC_EVERY_MS) is None, "an amount that was known stays"
    assert len(reporter.problems) == 2


def test_memory_that_is_plugged_in_is_reported(tmp_path: Path) -> None:
    host = machine(tmp_path, {0: ("0-3", 2)})
    reporter = TopologyReporter(host, host.cpu_topology())
    assert amounts(reporter.report(desired(), [], 0)) == {"node-0": (4, 2)}
    put_node(host.roots.sys, 1, "", 4)
    assert amounts(reporter.report(desired(), [], SYNC_EVERY_MS)) == {"node-0": (4, 2), "node-1": (0, 4)}


def test_a_kernel_without_numa_is_one_zone(tmp_path: Path) -> None:
    report, problems = reported(machine(tmp_path, {}))
    assert amounts(report) == {"node-0": (4, 8)}
    assert problems == ()


def test_an_unreadable_topology_is_told_and_read_again_soon(tmp_path: Path) -> None:
    host = machine(tmp_path, {0: ("0-3", 2)})
    online = host.roots.sys / CPU_FOLDER / "online"
    online.unlink()
    reporter = TopologyReporter(host, host.cpu_topology())
    assert reporter.report(desired(), [], 0) is None
    why = f"{online}: no list of online CPUs can be read"
    assert reporter.problems == (f"topology is not reported: {why}",)
    finding = next(each for each in host.features().findings if each.feature == Feature.CPU_TOPOLOGY)
    assert (finding.usable, finding.why) == (False, why)
    put(online, "0-3")
    assert amounts(reporter.report(desired(), [], SYNC_EVERY_MS)) == {"node-0": (4, 2)}
    assert reporter.problems == ()


def test_only_nodes_of_neither_cpus_nor_memory_are_initiators(tmp_path: Path) -> None:
    for node in range(3):
        put_node(tmp_path, node, "", 0)
    for name, nodes in (("has_generic_initiator", "0-2"), ("has_cpu", "0"), ("has_memory", "1")):
        put(tmp_path / "devices/system/node" / name, nodes)
    assert NumaReader(tmp_path).nodes == (0, 1)


def test_a_reservation_of_numa_nodes_is_shared_by_those_that_have_the_resource() -> None:
    places = tuple(CpuPlace(cpu=cpu, core=cpu, socket=0, node=0) for cpu in range(4))
    reservation = (
        {"cpu": parse_quantity("4"), "memory": parse_quantity("4Gi")},
        {"cpu": parse_quantity("3"), "memory": parse_quantity("2Gi")},
    )
    memory = {node: NumaMemory(total_bytes=2 * GIB, hugepages={}) for node in (0, 4)}
    found = zones(CpuTopology(places), memory, numa_reservation=reservation)
    assert [(zone.name, zone.allocatable["cpu"], zone.allocatable["memory"]) for zone in found] == [
        ("node-0", 3_000, GIB),
        ("node-4", 0, GIB),
    ]


@pytest.mark.parametrize("mode", ["hostMode", "daemonSet"])
def test_this_machine_is_read_without_a_program(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod, the same files are below another root. No program can be found."""
    monkeypatch.setenv("PATH", "")
    flags = ["--sys-root-dir=/sys", "--cgroup-root-dir=/sys/fs/cgroup"]
    roots = host_roots(AgentSettings.load(flags, {"agent_mode": mode}))
    host = LinuxHost(monotonic_ns=lambda: 0, roots=roots)
    places = host.cpu_topology()
    online = parse_cpuset(Path("/sys/devices/system/cpu/online").read_text().strip())
    assert {place.cpu for place in places} == online
    assert host.topology_problems == ()
    assert {place.node for place in places} <= set(host.numa.nodes) | {0}
