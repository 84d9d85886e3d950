"""The strategies that keep the node as its NodeSLO says: burst, memory, CPU and block-IO QoS, resctrl, the kernel.

They have their turn every `--reconcile-interval-seconds`; `qos_round` brings their plans before the arbiter, between
two turns the last ones. Source: agent spec, 13 to 17.
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from koordcore.service.configuration.gates import FeatureGates
from koordcore.values.invalid import InvalidInput

from koord_agent.config.gates import (
    BLKIO_RECONCILE,
    CGROUP_RECONCILE,
    CORE_SCHED,
    CPU_BURST,
    GROUP_IDENTITY,
    RDT_RESCTRL,
    SYSTEM_CONFIG,
)
from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.hooks.group_identity import BVT, BvtKernel, bvt_rule
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.qos.intervals import Turn
from koord_agent.domain.qos.strategies.cpu_burst_strategy import BurstBook
from koord_agent.domain.qos.strategies.cpu_qos_strategy import CpuQosBook
from koord_agent.domain.qos.strategies.memory_qos_strategy import MemoryBook
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.shell.collect.storage import Storage, output_of
from koord_agent.shell.host.host import Host
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.node.block_io import BlockIo
from koord_agent.shell.node.node_settings import NodeSettings, put
from koord_agent.shell.store.audit_log import AuditSink

MOST_SCALED: Final = 2_000
"""Knobs whose scaled value is remembered before those of gone pods are dropped."""
QOS: Final = "resourceQOSStrategy"
_NOTHING: Mapping[str, Any] = {}


def section_of(slo: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a NodeSLO; empty = it has none."""
    return slo.get(name) or _NOTHING


class ReconcileStrategies:
    """These strategies of one node. Owned by its `QosCycle`.

    read_quota   cfs quota of a directory; None = unreadable
    """

    def __init__(
        self,
        host: Host,
        *,
        turn: Turn,
        gates: FeatureGates,
        audit: AuditSink,
        draw: Callable[[], float],
        storage_refresh_ms: int,
        extensions: NodeExtensions,
        read_quota: Callable[[str], int | None],
    ) -> None:
        self.extensions = extensions
        self.scaled: dict[CgroupFile, int] = {}
        """quotas and bursts of containers that CPU burst asked for last"""
        self.storage: Storage | None = None
        """the disks of a real machine, where block IO is set"""
        self._host = host
        self._turn = turn
        self._gates = gates
        self._read_quota = read_quota
        self._burst = BurstBook(draw)
        self._memory = MemoryBook()
        self._cpu_qos = CpuQosBook(gates.enabled(GROUP_IDENTITY), gates.enabled(CORE_SCHED))
        self._plans: tuple[Plan, ...] = ()
        self._is_turn = False
        self._machine: NodeSettings | None = None
        self._block_io: BlockIo | None = None
        if isinstance(host, LinuxHost):
            self._machine = NodeSettings(host.roots, audit=audit, read_tasks=host.read)
            if host.cgroup_version == 1 and gates.enabled(BLKIO_RECONCILE):
                self._block_io = self._blocks(host, storage_refresh_ms)

    def _blocks(self, host: LinuxHost, refresh_ms: int) -> BlockIo:
        self.storage = Storage(
            host.roots.sys / "class" / "block",
            run=lambda words: output_of(host.roots.command(words)),
            refresh_ms=refresh_ms,
        )
        return BlockIo(
            read=host.read,
            write_root=lambda file, line: put(host.roots.cgroup / "blkio" / file, line),
            storage=self.storage,
        )

    def plans(self, look: NodeLook, *, halve_io_weight: bool, problems: list[str]) -> tuple[Plan, ...]:
        """What they want; none without a NodeSLO.

        halve_io_weight   best effort disturbs others by its IO
        """
        self._is_turn = self._turn.comes(look.now_ms)
        if look.slo is None:
            return ()
        if self._is_turn:
            ttl_ms = self._turn.ttl_ms
            extended = self.extensions.plans(look, ttl_ms=ttl_ms)
            own = self._own_plans(look, look.slo, halve_io_weight=halve_io_weight, problems=problems)
            self._plans = (*own, *extended)
        return self._plans

    def set_machine(self, look: NodeLook) -> list[str]:
        """What is set beside cgroups on a real machine, if it is their turn; what could not be done."""
        if not self._is_turn or look.slo is None or self._machine is None:
            return []
        problems: list[str] = []
        if self._gates.enabled(SYSTEM_CONFIG):
            problems.extend(self._machine.apply_system(look, section_of(look.slo, "systemStrategy")))
        if self._gates.enabled(RDT_RESCTRL):
            problems.extend(self._machine.apply_resctrl(look, section_of(look.slo, QOS)))
        return problems

    def _own_plans(
        self, look: NodeLook, slo: Mapping[str, Any], *, halve_io_weight: bool, problems: list[str]
    ) -> list[Plan]:
        plans: list[Plan] = []
        qos, ttl_ms = section_of(slo, QOS), self._turn.ttl_ms
        try:
            if self._gates.enabled(CPU_BURST):
                burst = section_of(slo, "cpuBurstStrategy")
                scaled = self._burst.plans(look, burst, read_quota=self._read_quota, ttl_ms=ttl_ms)
                self._remember_scaled(look, scaled)
                plans.extend(scaled)
            if self._gates.enabled(CGROUP_RECONCILE):
                plans.extend(self._memory.plans(look, qos, ttl_ms=ttl_ms))
            plans.extend(self._cpu_plans(look, qos, ttl_ms=ttl_ms))
            problems.extend(self._cpu_qos.problems)
            if self._block_io is not None:
                plans.extend(self._block_io.plans(look, qos, halve_weight=halve_io_weight, ttl_ms=ttl_ms))
                problems.extend(self._block_io.apply_root(qos))
        except InvalidInput as error:
            problems.append(f"NodeSLO: {error}")
        return plans

    def _cpu_plans(self, look: NodeLook, section: Mapping[str, Any], *, ttl_ms: int) -> Sequence[Plan]:
        has_file = self._host.read(CgroupFile(look.layout.root, BVT)) is not None
        if self._machine is None:
            return self._cpu_qos.plans(look, section, BvtKernel(has_file=has_file), ttl_ms=ttl_ms)
        kernel = self._machine.group_identity(has_file=has_file)
        plans = self._cpu_qos.plans(look, section, kernel, ttl_ms=ttl_ms)
        is_on = self._machine.switch_group_identity() if plans and bvt_rule(section).is_enabled else True
        return [plan for plan in plans if is_on or plan.file.resource != BVT]

    def _remember_scaled(self, look: NodeLook, plans: Sequence[Plan]) -> None:
        self.scaled.update((plan.file, int(plan.value)) for plan in plans)
        if len(self.scaled) > MOST_SCALED:
            there = {look.pod_directory(pod) for pod in look.pods}
            self.scaled = {
                file: value
                for file, value in self.scaled.items()
                if file.directory in there or posixpath.dirname(file.directory) in there
            }
