"""Settings of a whole real machine, beside the files of pods: kernel parameters, resctrl groups, block-IO goals.

These files belong to the whole machine, so they do not pass through the arbiter.
"""

from collections.abc import Callable, Iterator

from koordcore.service.flags import FeatureGates

from koord_agent.domain.failure import failure
from koord_agent.domain.gate_names import BLKIO_RECONCILE, RDT_RESCTRL, SYSTEM_CONFIG
from koord_agent.domain.hooks.group_identity import BvtKernel
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.qos.intervals import Interval
from koord_agent.domain.qos.strategy import RESOURCE_QOS
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.shell.collect.storage import Storage, output_of
from koord_agent.shell.host.host import Host
from koord_agent.shell.host.kernel_files import put
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.node_settings import NodeSettings
from koord_agent.shell.node.root_block_io import RootBlockIo
from koord_agent.shell.store.audit_log import AuditSink


class MachineSettings:
    """Writes the settings of the NodeSLO that belong to a whole real machine: kernel parameters and limits of block IO.

    The `QosCycle` of the node passes it the NodeSLO in each cycle.

    Attributes:
        storage: Finds the disks of the machine. None if block IO is not limited: without the feature gate
            `BlkIOReconcile`, and on cgroup v2.
    """

    def __init__(
        self,
        host: Host,
        roots: HostRoots,
        *,
        gates: FeatureGates,
        audit: AuditSink,
        interval: Interval,
        storage_refresh_ms: int,
    ) -> None:
        """Write below `roots`.

        Args:
            host: The machine.
            roots: Where its file systems are.
            gates: Feature gates that enable the settings.
            audit: Receives every write.
            interval: When settings are compared with the machine.
            storage_refresh_ms: Milliseconds after which the disks are looked up again.
        """
        self.storage: Storage | None = None
        self._gates = gates
        self._interval = interval
        self._settings = NodeSettings(roots, audit=audit, read_tasks=host.read)
        self._block_io: RootBlockIo | None = None
        self._problems: list[str] = []
        if host.cgroup_version == 1 and gates.enabled(BLKIO_RECONCILE):
            self.storage = Storage(
                roots.sys / "class" / "block",
                roots.kubelet,
                run=lambda words: output_of(roots.command(words)),
                refresh_ms=storage_refresh_ms,
            )
            self._block_io = RootBlockIo(
                read=host.read, write=lambda file, line: put(roots.cgroup / "blkio" / file, line), disks=self.disks
            )

    def disks(self, now_ms: int) -> StorageInfo | None:
        """Return the disks of the machine. None while they are unknown or block IO is not set."""
        return None if self.storage is None else self.storage.known(now_ms)

    def group_identity(self, *, has_file: bool) -> BvtKernel:
        """Return whether this kernel supports group identity (cpu.bvt_warp_ns), and whether it is on.

        Args:
            has_file: Whether cpu.bvt_warp_ns exists in the root of the pods.
        """
        return self._settings.group_identity(has_file=has_file)

    def switch_group_identity(self) -> bool:
        """Switch group identity on and core scheduling off; the kernel allows only one of them.

        See `NodeSettings.switch_group_identity`.
        """
        return self._settings.switch_group_identity()

    def apply(self, look: NodeLook) -> list[str]:
        """Write the machine-wide settings of the NodeSLO to the machine, once per interval.

        Settings whose feature gate is off are left alone. Nothing happens while the node has no NodeSLO. A kind of
        settings that fails leaves the others alone.

        Args:
            look: Snapshot of the node, with its NodeSLO.

        Returns:
            What could not be written the last time, one sentence each; empty if nothing failed or there is no NodeSLO.
        """
        if look.slo is None:
            self._problems = []
            return []
        if not self._interval.is_due(look.now_ms):
            return self._problems
        problems: list[str] = []
        for name, write in self._kinds(look):
            try:
                problems.extend(write())
            except Exception as error:  # noqa: BLE001 - what follows in the cycle, such as evictions, takes place
                problems.append(failure(f"{name} failed", error))
        self._problems = problems
        return problems

    def _kinds(self, look: NodeLook) -> Iterator[tuple[str, Callable[[], list[str]]]]:
        """Yield name and function of each kind of settings that is on."""
        qos, block_io = look.section(RESOURCE_QOS), self._block_io
        if self._gates.enabled(SYSTEM_CONFIG):
            yield "kernel parameters", lambda: self._settings.apply_system(look, look.section("systemStrategy"))
        if self._gates.enabled(RDT_RESCTRL):
            yield "resctrl", lambda: self._settings.apply_resctrl(look, qos)
        if block_io is not None:
            yield "block IO of the machine", lambda: block_io.apply(qos, look.now_ms)
