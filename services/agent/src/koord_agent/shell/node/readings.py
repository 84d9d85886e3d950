"""Readings of a host for strategies: implements `domain.qos.strategy.Readings`."""

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.group_identity import BVT, BvtKernel
from koord_agent.domain.kernel.cgroup_files import QUOTA, UNLIMITED, Unsupported, from_file_text
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.host import Host
from koord_agent.shell.node.machine_settings import MachineSettings


class HostReadings:
    """Access of strategies to the files and features of one machine; implements `domain.qos.strategy.Readings`.

    Attributes:
        machine: Settings of a real machine. None on a simulated one.
    """

    def __init__(self, host: Host, machine: MachineSettings | None) -> None:
        """Create readings: files come from `host`, settings outside of cgroups from `machine`."""
        self.machine = machine
        self._host = host

    def read(self, file: CgroupFile) -> str | None:
        """Return the text of a kernel file; None if it is unreadable. See `Readings.read`."""
        return self._host.read(file)

    def quota_us(self, directory: str) -> int | None:
        """Return the CFS quota of a directory; -1 if unlimited, None if unreadable. See `Readings.quota_us`."""
        text = self._host.read(CgroupFile(directory, QUOTA))
        if text is None:
            return None
        try:
            quota = int(from_file_text(QUOTA, text, self._host.cgroup_version))
        except (InvalidInput, Unsupported):
            return None
        return quota if quota >= 0 else UNLIMITED

    def group_identity(self) -> BvtKernel:
        """Return whether this kernel supports group identity (cpu.bvt_warp_ns), and whether it is on.

        See `Readings.group_identity`.
        """
        has_file = self._host.read(CgroupFile(self._host.layout.root, BVT)) is not None
        return BvtKernel(has_file=has_file) if self.machine is None else self.machine.group_identity(has_file=has_file)

    def disks(self, now_ms: int) -> StorageInfo | None:
        """Return the disks of the machine; None while they are unknown. See `Readings.disks`."""
        return None if self.machine is None else self.machine.disks(now_ms)
