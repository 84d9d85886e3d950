"""CPUs and NUMA nodes of a real machine: the CPUs of each kind of pods, and a report when they change.

Source: agent spec, 4.4, 4.7.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from koordcore.events.nodestate import NodeTopologyReported
from koordcore.protocol.resource_names import CPU
from koordcore.values.cpuset import CpuSet
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import of_milli, of_value
from koordcore.values.resources import Amounts, ResourceList
from koordcore.values.topology import CpuPlace, CpuTopology

from koord_agent.domain.kernel.resctrl_files import UNKNOWN_VENDOR
from koord_agent.domain.node.cpu_pools import CpuPools, cpu_pools
from koord_agent.domain.node.desired import DesiredView
from koord_agent.domain.node.kubelet import KubeletConfiguration
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.reporting.topology_report import (
    NodeTopology,
    NumaMemory,
    report_digest,
    topology_reported,
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
        self.problem = ""  # Why the last reading gave no topology; "" if it succeeded
        self.amend: Callable[[NodeTopologyReported], NodeTopologyReported] = lambda report: report
        """Adds the additions of installed packages to a report."""
        self.cpu_looks, self.numa_looks = Looks(), Looks()
        self.l3_caches = read_l3_caches(host.roots.sys)
        self._host = host
        self._topology = CpuTopology(tuple(places))
        self._memory = host.numa.memory
        self._cpu_info_ms = cpu_info_ms
        self._cpu_info_due_ms: int | None = None
        self._basic = _basic_info(host, self._topology)
        self._reports = reports
        self._report_hugepages = report_hugepages
        self._said = said
        self._sync_ms = sync_ms
        self._due_ms: int | None = None
        self._owned: Mapping[str, tuple[str, CpuSet]] = {}

    def report(self, desired: DesiredView, pods: Sequence[AgentPod], now_ms: int) -> NodeTopologyReported | None:
        """Read CPUs and NUMA nodes if it is due. Return the fact about them if it changed, otherwise None.

        If the annotation of system QoS is invalid, nothing changes, and `problem` says so until a reading succeeds.
        """
        try:
            return self._read(desired, pods, now_ms)
        except InvalidInput as error:
            self.problem = str(error)
            return None

    def _read(self, desired: DesiredView, pods: Sequence[AgentPod], now_ms: int) -> NodeTopologyReported | None:
        owned = {pod.uid: (pod.qos_label, pod.cpuset) for pod in pods if pod.cpuset}
        if self._due_ms is not None and self._due_ms - self._sync_ms <= now_ms < self._due_ms:
            if owned != self._owned and self._topology.places:
                # the pools of other pods shrink at once when a pod owns CPUs; the report can wait
                self.pools = cpu_pools(self._topology, pods, desired.annotations, self.kubelet_entries)
                self._owned = owned
            return None
        self._owned = owned
        self._due_ms = now_ms + self._sync_ms
        self._look_at_cpus(now_ms)
        if not self._topology.places:
            return None
        self.pools = cpu_pools(self._topology, pods, desired.annotations, self.kubelet_entries)
        self.problem = ""
        memory = self._memory()
        self.numa_looks.count(succeeded=memory is not None)
        if not self._reports:
            return None
        return None if memory is None else self._changed(self._report(desired, self.pools, memory))

    @property
    def places(self) -> tuple[CpuPlace, ...]:
        """CPUs that were online at the last reading; empty if unknown."""
        return self._topology.places

    def _look_at_cpus(self, now_ms: int) -> None:
        """Read the online CPUs and what they can do; both may change. If reading fails, the last CPUs stay."""
        due = self._cpu_info_due_ms
        if due is not None and due - self._cpu_info_ms <= now_ms < due:
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

    def _report(
        self, desired: DesiredView, pools: CpuPools, memory: Sequence[NumaMemory]
    ) -> NodeTopologyReported | None:
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

    def _changed(self, report: NodeTopologyReported | None) -> NodeTopologyReported | None:
        if report is None:
            return None
        report = self.amend(report)
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
