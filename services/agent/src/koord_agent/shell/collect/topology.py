"""CPUs and NUMA nodes of a real machine: the CPUs of each kind of pods, and a report when they change.

Source: agent spec, 4.4, 4.7.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from koordcore.events.nodestate import NodeTopologyReported
from koordcore.protocol.resource_names import CPU
from koordcore.values.cpuset import EMPTY, CpuSet
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import of_milli, of_value
from koordcore.values.resources import Amounts, ResourceList
from koordcore.values.topology import CpuPlace, CpuTopology

from koord_agent.domain.kernel.counters import parse_meminfo
from koord_agent.domain.kernel.resctrl_files import UNKNOWN_VENDOR
from koord_agent.domain.node.cpu_pools import CpuPools, cpu_pools
from koord_agent.domain.node.desired import DesiredView
from koord_agent.domain.node.kubelet import KubeletConfiguration, strict_cpus
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.reporting.topology_report import (
    NodeTopology,
    NumaMemory,
    report_digest,
    topology_reported,
    zone_problems,
)
from koord_agent.shell.collect.storage import Looks
from koord_agent.shell.host.kernel_files import read_kernel_file
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.numa import read_l3_caches

SYNC_EVERY_MS: Final = 3_000
CPU_INFO_EVERY_MS: Final = 60_000


class TopologyReporter:
    """Reads the CPUs and NUMA nodes of one machine, and reports them when they change. Only its agent uses it.

    Args:
        reports: Whether reports are made. If not, only `pools` is kept up to date.
        said: Digest of the last report before the start; "" for none.
        sync_ms: Milliseconds between two readings.
        cpu_info_ms: Milliseconds between two readings of the online CPUs.
    """

    def __init__(
        self,
        host: LinuxHost,
        places: Sequence[CpuPlace],
        *,
        reports: bool = True,
        report_hugepages: bool = False,
        said: str = "",
        sync_ms: int = SYNC_EVERY_MS,
        cpu_info_ms: int = CPU_INFO_EVERY_MS,
    ) -> None:
        # Configuration of the kubelet; the component that follows the kubelet sets it.
        self.kubelet: KubeletConfiguration | None = None
        self.kubelet_entries: Mapping[str, Mapping[str, str]] = {}
        self.pools: CpuPools | None = None
        # What the last reading could not report, one sentence each; empty if it reported everything.
        self.problems: tuple[str, ...] = ()
        self.amend: Callable[[NodeTopologyReported], NodeTopologyReported] | None = None
        """Adds the additions of installed packages to a report, which may differ each time. None: there are none."""
        self.cpu_looks, self.numa_looks = Looks(), Looks()
        self.l3_caches = read_l3_caches(host.roots.sys)
        self._host = host
        self._topology = CpuTopology(tuple(places))
        self._memory: Mapping[int, NumaMemory] = {}
        self._cpu_info_ms = cpu_info_ms
        self._cpu_info_due_ms: int | None = None
        self._basic = _basic_info(host, self._topology)
        self._reports = reports
        self._report_hugepages = report_hugepages
        self._said = said
        self._sync_ms = sync_ms
        self._due_ms: int | None = None
        self._made_of: object = None
        self._owned: Mapping[str, tuple[str, CpuSet]] = {}

    def report(self, desired: DesiredView, pods: Sequence[AgentPod], now_ms: int) -> NodeTopologyReported | None:
        """Read CPUs and NUMA nodes if it is due. Return the fact about them if it changed, otherwise None.

        What is readable is reported, and `problems` says what is not. If the annotation of system QoS is invalid,
        nothing changes.
        """
        try:
            return self._read(desired, pods, now_ms)
        except InvalidInput as error:
            self.problems = (f"topology is not reported: {error}",)
            return None

    def _read(self, desired: DesiredView, pods: Sequence[AgentPod], now_ms: int) -> NodeTopologyReported | None:
        owned = {pod.uid: (pod.qos_label, pod.cpuset) for pod in pods if pod.cpuset}
        if self._due_ms is not None and self._due_ms - self._sync_ms <= now_ms < self._due_ms:
            if owned != self._owned and self._topology.places:
                # the pools of other pods shrink at once when a pod owns CPUs; the report can wait
                self.pools = self._pools(desired, pods)
                self._owned = owned
            return None
        self._owned = owned
        self._due_ms = now_ms + self._sync_ms
        self._look_at_cpus(now_ms)
        unread = self._host.topology_problems
        if not self._topology.places:
            self.problems = (f"topology is not reported: {'; '.join(unread) or 'no CPU is known'}",)
            return None
        self.pools = self._pools(desired, pods)
        found = self._read_memory()
        unread = (*unread, *zone_problems(self._topology, found))
        self.numa_looks.count(succeeded=None not in found.values())
        self.problems = tuple(f"a part of the topology is not reported: {problem}" for problem in unread)
        if not self._reports:
            return None
        # a node that is listed and cannot be read for once keeps its amount
        self._memory = {node: last for node, of in found.items() if (last := of or self._memory.get(node)) is not None}
        if self.amend is None and not self._is_new(desired):
            return None
        return self._changed(self._report(desired, self.pools, self._memory))

    def _is_new(self, desired: DesiredView) -> bool:
        """Whether a report would be made from other inputs than the last one."""
        of_desired = desired.labels, desired.capacity, desired.allocatable
        of_machine = self._topology, self._memory, self._basic, self.l3_caches
        made_of = of_desired, of_machine, self.pools, self.kubelet
        is_new, self._made_of = made_of != self._made_of, made_of
        return is_new

    def _pools(self, desired: DesiredView, pods: Sequence[AgentPod]) -> CpuPools:
        strict = EMPTY if self.kubelet is None else strict_cpus(self.kubelet, self._topology)
        return cpu_pools(self._topology, pods, desired.annotations, self.kubelet_entries, strict)

    def _read_memory(self) -> Mapping[int, NumaMemory | None]:
        """By NUMA node. A kernel without NUMA has one node with all memory, and no files about it."""
        found = self._host.numa.memory()
        if found or set(self._topology.nodes) != {0}:
            return found
        total = parse_meminfo(read_kernel_file(str(self._host.roots.proc / "meminfo")) or "").get("MemTotal")
        return {0: None if total is None else NumaMemory(total_bytes=total, hugepages={})}

    @property
    def places(self) -> tuple[CpuPlace, ...]:
        """CPUs that were online at the last reading; empty if unknown."""
        return self._topology.places

    def _look_at_cpus(self, now_ms: int) -> None:
        """Read the online CPUs and what they can do; both may change. If reading fails, the last CPUs stay.

        While no CPU is known, they are read each time.
        """
        due = self._cpu_info_due_ms
        if self._topology.places and due is not None and due - self._cpu_info_ms <= now_ms < due:
            return
        self._cpu_info_due_ms = now_ms + self._cpu_info_ms
        # the first look was made with the agent
        places = self._host.cpu_topology() if due is not None else self._topology.places
        self.cpu_looks.count(succeeded=bool(places))
        if places and places != self._topology.places:
            self._topology = CpuTopology(places)
        if due is not None:
            self._basic = _basic_info(self._host, self._topology)
        self.l3_caches = read_l3_caches(self._host.roots.sys) or self.l3_caches

    def _report(self, desired: DesiredView, pools: CpuPools, memory: Mapping[int, NumaMemory]) -> NodeTopologyReported:
        found = NodeTopology(
            topology=self._topology,
            memory=memory,
            basic=self._basic,
            kubelet=self.kubelet,
            l3_caches=self.l3_caches,
        )
        return topology_reported(
            found,
            pools,
            labels=desired.labels,
            numa_reservation=(_quantities(desired.capacity), _quantities(desired.allocatable)),
            report_hugepages=self._report_hugepages,
        )

    def _changed(self, report: NodeTopologyReported) -> NodeTopologyReported | None:
        report = report if self.amend is None else self.amend(report)
        digest = report_digest(report)
        if digest == self._said:
            return None
        self._said = digest
        return report


def _quantities(amounts: Amounts) -> ResourceList:
    return {name: of_milli(amount) if name == CPU else of_value(amount) for name, amount in amounts.items()}


def _basic_info(host: LinuxHost, topology: CpuTopology) -> Mapping[str, str | bool]:
    """Model, threads, turbo, cache mask and vendor of the CPU (agent spec, 4.4); empty if unreadable."""
    roots = host.roots
    lines: dict[str, str] = {}
    for line in (read_kernel_file(str(roots.proc / "cpuinfo")) or "").splitlines():
        name, colon, value = line.partition(":")
        if not colon and lines:
            break  # of the first processor
        lines[name.strip()] = value.strip()

    def text(path: str) -> str:
        return (read_kernel_file(str(roots.sys / path)) or "").strip()

    return {
        "cpuModel": lines.get("model name", ""),
        "hyperThreadEnabled": text("devices/system/cpu/smt/active") == "1"
        or any(len(cpus) > 1 for cpus in topology.cores.values()),
        "turboEnabled": text("devices/system/cpu/intel_pstate/no_turbo") == "0",
        "catL3CbmMask": (read_kernel_file(str(roots.resctrl / "info/L3/cbm_mask")) or "").strip(),
        "vendorID": lines.get("vendor_id") or UNKNOWN_VENDOR,
    }
