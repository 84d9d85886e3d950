"""RDMA devices from a sysfs tree, and what the report says of their health."""

from pathlib import Path

from koord_agent.domain.devices.device import INACTIVE, DeviceReport, device_inventory
from koord_agent.shell.collect.devices import MachineDevices, PciBus, XpuFolder


class Sysfs:
    """A sysfs tree below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.functions = folder / "bus/pci/devices"
        self.functions.mkdir(parents=True)

    def add(self, address: str, *, name: str, state: str = "4: ACTIVE\n", **files: str) -> Path:
        real = self.folder / "devices/pci0000:5d" / address
        (real / "infiniband" / name / "ports/1").mkdir(parents=True)
        (real / "infiniband" / name / "ports/1/state").write_text(state)
        for file, text in {"class": "0x020700\n", "numa_node": "1\n", **files}.items():
            (real / file).write_text(text)
        (self.functions / address).symlink_to(real)
        return real


def test_rdma_devices_with_their_virtual_functions_and_health(tmp_path: Path) -> None:
    sysfs = Sysfs(tmp_path)
    card = sysfs.add("0000:5e:00.0", name="mlx5_0", sriov_numvfs="2\n")
    for number, address in enumerate(("0000:5e:00.3", "0000:5e:00.2")):
        virtual = sysfs.add(address, name=f"mlx5_{number + 4}")
        (virtual / "physfn").symlink_to(card)
        (card / f"virtfn{number}").symlink_to(virtual)
    sysfs.add("0000:5f:00.0", name="mlx5_1", state="1: DOWN\n")
    sysfs.add("0000:60:00.0", name="mlx5_bond_0")
    sysfs.add("0000:61:00.0", name="mlx5_3", **{"class": "0x030000\n"})

    pci = PciBus(tmp_path)
    report = MachineDevices(XpuFolder(tmp_path / "none"), rdma=pci.rdma_devices).read()
    event = device_inventory(report)

    assert [(each.type, each.minor, each.id, each.healthy, each.code) for each in event.devices] == [
        ("rdma", 0, "0000:5e:00.0", None, ""),
        ("rdma", 1, "0000:5f:00.0", False, INACTIVE),
    ]
    first = event.devices[0]
    assert (first.numa_node, first.pcie_id, first.amounts) == (1, "pci0000:5d", {"koordinator.sh/rdma": 100})
    assert first.virtual_functions == ["0000:5e:00.2", "0000:5e:00.3"]


def test_machine_without_a_pci_bus_has_no_devices(tmp_path: Path) -> None:
    assert MachineDevices(XpuFolder(tmp_path), rdma=PciBus(tmp_path).rdma_devices).read() == DeviceReport()
