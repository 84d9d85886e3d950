"""Devices of a simulated machine: GPUs, two under each PCIe switch, and one RDMA adapter at each switch.

A demo lets single devices fail, and lets the devices of a whole machine vanish, as if its driver had been removed.
"""

from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.resource_names import RDMA
from koordcore.values.quantity import of_value

from koord_agent.domain.devices.device import Device, DeviceReport, DeviceTopology
from koord_agent.domain.devices.xpu import Xpu, XpuStatus, XpuTopology, report_devices
from koord_agent.simulator.nodes import SimulatedNode

GPUS_PER_SWITCH: Final = 2
_NOTHING: Final = DeviceReport()


class SimulatedDevices:
    """Only the task that runs the machine uses it."""

    def __init__(self, node: SimulatedNode, zones: int) -> None:
        """The devices are healthy. The first part of the switches is on NUMA node 0, and so on for all `zones`."""
        # (type, minor) -> code of the fault of each device that is not healthy. The health of an RDMA adapter has no
        # code: its port is not active.
        self.faults: dict[tuple[str, int], str] = {}
        self.are_gone = False  # Whether the machine finds no device
        self._node = node
        self._zones = zones
        self._report: DeviceReport | None = None
        self._report_with: dict[tuple[str, int], str] = {}

    def has(self, type_: str, minor: int) -> bool:
        """Whether the machine was built with this device. A failed device counts, too."""
        return 0 <= minor < {"gpu": self._node.gpus, "rdma": self._adapters}.get(type_, 0)

    def report(self) -> DeviceReport:
        """The same object if nothing changed."""
        if self.are_gone:
            return _NOTHING
        if self._report is None or self.faults != self._report_with:
            self._report_with = dict(self.faults)
            gpus = report_devices([self._gpu(minor) for minor in range(self._node.gpus)])
            adapters = [self._adapter(minor) for minor in range(self._adapters)]
            self._report = DeviceReport.of((*gpus.devices, *adapters), labels=gpus.labels) if adapters else gpus
        return self._report

    @property
    def _switches(self) -> int:
        return -(-self._node.gpus // GPUS_PER_SWITCH)

    @property
    def _adapters(self) -> int:
        return self._switches if self._node.rdma_functions else 0

    def _gpu(self, minor: int) -> Xpu:
        fault = self.faults.get(("gpu", minor))
        switch = minor // GPUS_PER_SWITCH
        return Xpu(
            vendor=keys.NVIDIA,
            model=self._node.gpu_model,
            uuid=f"GPU-{self._node.name}-{minor}",
            minor=minor,
            resources={"gpu-core": 100, "gpu-memory": self._node.gpu_memory_bytes},
            topology=XpuTopology(node_id=self._zone(switch), pcie_id=_pcie_of(switch), bus_id=f"0000:{minor:02x}:00.0"),
            status=XpuStatus(healthy=fault is None, err_code=fault or ""),
        )

    def _adapter(self, minor: int) -> Device:
        bus = f"0001:{minor:02x}:00"
        return Device(
            uuid=f"{bus}.0",
            minor=minor,
            type="rdma",
            resources={RDMA: of_value(100)},
            health=("rdma", minor) not in self.faults,
            topology=DeviceTopology(
                socket_id=-1, node_id=self._zone(minor), pcie_id=_pcie_of(minor), bus_id=f"{bus}.0"
            ),
            condition=None,
            virtual_functions=tuple(f"{bus}.{number}" for number in range(1, self._node.rdma_functions + 1)),
        )

    def _zone(self, switch: int) -> int:
        return switch * self._zones // self._switches


def _pcie_of(switch: int) -> str:
    return f"pci0000:{switch:02x}"
