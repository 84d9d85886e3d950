"""The inventory over several looks: a failing tool or card neither hides nor revives other devices."""

import errno
from dataclasses import dataclass, field

from koord_devicediscovery.inventory import Inventory, take_inventory
from koord_devicediscovery.metrics import DiscoveryMetrics
from koord_devicediscovery.vendors.vendor import (
    HEALTHY,
    DiscoveryError,
    Found,
    PciFunction,
    ToolError,
    Vendor,
    Xpu,
    XpuTopology,
    file_content,
    gpu_resources,
)
from koordcore.protocol.hardware.devices import PciLocation
from koordcore.service.telemetry.metrics import Metrics
from koordcore.values import codec

HUAWEI_PCI, METAX_PCI = PciFunction("19e5", "d500"), PciFunction("9999", "4000")
METAX = {
    "hwinfo": "Model Name : MXC500\nMemory Capacity : 64GB\n" * 11,
    "list": "".join(f"GPU#{card} MXC500 0000:00:{card:02x}.0 0 Available (uuid-{card})\n" for card in (10, 1, 0))
    + "".join(f"GPU#{card} MXC500 0000:00:{card:02x}.0 0 Available (uuid-{card})\n" for card in range(2, 10)),
}


@dataclass
class FakeMachine:
    """Answers from a table of `<query>` or `<query>.<card>`; what is missing fails."""

    functions: tuple[PciFunction, ...]
    answers: dict[str, str] = field(default_factory=dict[str, str])

    def pci_functions(self) -> tuple[PciFunction, ...]:
        return self.functions

    def locate(self, bus_id: str) -> PciLocation | None:
        return PciLocation(1, "pci0000:80") if bus_id == "0000:81:00.0" else None

    def device_files(self) -> list[str]:
        return ["/dev/davinci10", "/dev/davinci2", "/dev/davinci_manager"]

    def ask(self, query: str, card: int | None = None) -> str:
        key = query if card is None else f"{query}.{card}"
        if key not in self.answers:
            raise ToolError(key, 1, "no such card")
        return self.answers[key]


def metax(*cards: int) -> dict[str, str]:
    answers = dict(METAX)
    for card in cards:
        answers[f"card.{card}"] = f"GPU#{card} MXC500 0000:81:00.0\n"
        answers[f"ecc.{card}"] = "SRAM Uncorrectable : 0\n"
    return answers


def test_card_numbers_are_matched_whole() -> None:
    found = take_inventory(Inventory(), lambda _: FakeMachine((METAX_PCI,), metax(0, 1, 10)))
    assert [(device.minor, device.uuid) for device in found.devices] == [
        ("0", "uuid-0"),
        ("1", "uuid-1"),
        ("10", "uuid-10"),
    ]


def test_card_whose_command_fails_is_left_out_until_it_was_seen_and_unhealthy_afterwards() -> None:
    first = take_inventory(Inventory(), lambda _: FakeMachine((METAX_PCI,), metax(0)))
    assert [device.minor for device in first.devices] == ["0"]
    assert set(first.errors) == {f"metax/{card}" for card in range(1, 11)}
    second = take_inventory(first, lambda _: FakeMachine((METAX_PCI,), metax(1)))
    assert [(device.minor, device.status.healthy) for device in second.devices] == [("0", False), ("1", True)]
    third = take_inventory(second, lambda _: FakeMachine((METAX_PCI,), metax(0, 1)))
    assert [device.status for device in third.devices] == [HEALTHY, HEALTHY]


def test_lost_metax_card_does_not_hide_the_last_one() -> None:
    good = take_inventory(Inventory(), lambda _: FakeMachine((METAX_PCI,), metax(*range(11))))
    assert [device.minor for device in good.devices] == [str(card) for card in range(11)]
    lost = {
        **metax(*range(1, 11)),
        "hwinfo": "Model Name : MXC500\nMemory Capacity : 64GB\n" * 10,
        "list": "".join(line for line in METAX["list"].splitlines(keepends=True) if "GPU#0 " not in line),
    }
    found = take_inventory(good, lambda _: FakeMachine((METAX_PCI,), lost))
    assert [(device.minor, device.status.healthy) for device in found.devices] == [
        (str(card), card != 0) for card in range(11)
    ]


def test_the_number_of_devices_is_zero_once_the_last_card_of_a_vendor_is_gone() -> None:
    metrics = Metrics("devicediscovery")
    discovery = DiscoveryMetrics(metrics)
    discovery.observe(take_inventory(Inventory(), lambda _: FakeMachine((METAX_PCI,), metax(0))))
    labels = {"vendor": "metax", "healthy": "true"}
    assert metrics.registry.get_sample_value("koord_devicediscovery_devices", labels) == 1
    discovery.observe(Inventory())
    assert metrics.registry.get_sample_value("koord_devicediscovery_devices", labels) == 0


def test_lost_card_that_cannot_be_measured_leaves_the_others_in_force() -> None:
    answers = {
        "mapping": "NPU Chip\n0 0 Ascend 910B3\n",
        "list": "NPU ID : 0\nNPU ID : 1\n",
        "common": "Aicore Count : 20\n",
        **{f"memory.{card}": "HBM Capacity(MB) : 65536\n" for card in (0, 1)},
        **{f"board.{card}": "PCIe Bus Info : 0000:81:00.0\nChip Fault : 0\n" for card in (0, 1)},
    }
    without = {query: text for query, text in answers.items() if query != "memory.1"}
    first = take_inventory(Inventory(), lambda _: FakeMachine((HUAWEI_PCI,), without))
    assert [device.minor for device in first.devices] == ["2"]
    good = take_inventory(first, lambda _: FakeMachine((HUAWEI_PCI,), answers))
    lost = take_inventory(good, lambda _: FakeMachine((HUAWEI_PCI,), without))
    assert [(device.minor, device.status.healthy) for device in lost.devices] == [("2", True), ("10", False)]


def test_failing_tool_keeps_its_last_devices_and_hides_no_other_vendor() -> None:
    good = take_inventory(Inventory(), lambda _: FakeMachine((HUAWEI_PCI, METAX_PCI), metax(0)))
    assert [device.vendor for device in good.devices] == ["metax"]
    assert "huawei" in good.errors
    broken = take_inventory(good, lambda _: FakeMachine((HUAWEI_PCI, METAX_PCI)))
    assert broken.devices == good.devices
    assert set(broken.errors) == {"huawei", "metax"}


def test_output_that_nobody_expected_hides_no_other_vendor() -> None:
    answers = {**metax(0), "mapping": "NPU ID Chip Name\n0 0 0 Ascend 910B4\n"}
    machine = FakeMachine((HUAWEI_PCI, METAX_PCI), {**answers, "list": METAX["list"] + "NPU ID : NA\n"})
    found = take_inventory(Inventory(), lambda _: machine)
    assert [device.vendor for device in found.devices] == ["metax"]
    assert found.errors["huawei"] == "NPU ID must be a number, got 'NA'"

    def discover(_machine: object) -> Found:
        raise KeyError("what nobody thought of")

    vendor = Vendor(key="acme", pci_vendor="19e5", commands={}, discover=discover)
    before = Inventory(by_vendor={"acme": found.devices})
    again = take_inventory(before, lambda _: machine, (vendor,))
    assert again.by_vendor == before.by_vendor
    assert again.errors == {
        "acme": "the output of its tool is not understood: KeyError: 'what nobody thought of'",
    }


def test_machine_that_cannot_be_read_keeps_the_last_devices() -> None:
    class Broken(FakeMachine):
        def pci_functions(self) -> tuple[PciFunction, ...]:
            raise OSError(errno.EMFILE, "Too many open files")

    good = take_inventory(Inventory(), lambda _: FakeMachine((METAX_PCI,), metax(*range(11))))
    found = take_inventory(good, lambda _: Broken(()))
    assert found.devices == good.devices
    assert found.errors["metax"] == "[Errno 24] Too many open files"


def test_vendor_whose_cards_are_gone_has_no_devices() -> None:
    good = take_inventory(Inventory(), lambda _: FakeMachine((METAX_PCI,), metax(0)))
    assert take_inventory(good, lambda _: FakeMachine(())).devices == []


def test_minors_are_paired_in_the_order_of_their_numbers() -> None:
    answers = {
        "mapping": "NPU ID Chip Name\n0 0 0 Ascend 910B4\n",
        "list": "NPU ID : 5\nNPU ID : 3\n",
        "common": "Aicore Count : 20\n",
        **{f"memory.{card}": f"HBM Capacity(MB) : {card}000\n" for card in (3, 5)},
        **{f"board.{card}": "PCIe Bus Info : 0000:C1:00.0\n" for card in (3, 5)},
    }
    found = take_inventory(Inventory(), lambda _: FakeMachine((HUAWEI_PCI,), answers))
    assert [(device.uuid, device.resources["koordinator.sh/gpu-memory"]) for device in found.devices] == [
        ("npu-5-2", "5000Mi"),
        ("npu-3-10", "3000Mi"),
    ]
    assert {device.topology for device in found.devices} == {
        XpuTopology(socket_id="-1", node_id="-1", bus_id="0000:c1:00.0")
    }


def huawei(mapping: str, *cards: int) -> FakeMachine:
    """The tool of Huawei with a table of chips. The files of the machine are davinci2 and davinci10."""
    answers = {
        "mapping": "NPU ID      Chip ID     Chip Logic ID     Chip Name\n" + mapping,
        "list": "".join(f"NPU ID : {card}\n" for card in cards),
        "common": "Aicore Count : 20\n",
        **{f"memory.{card}": f"HBM Capacity(MB) : {card}000\n" for card in cards},
        **{f"board.{card}": "PCIe Bus Info : 0000:81:00.0\n" for card in cards},
    }
    return FakeMachine((HUAWEI_PCI,), answers)


def test_ascend_card_has_the_file_of_its_first_chip() -> None:
    rows = "5      0      10     Ascend 910B4\n3      0      2      Ascend 910B4\n3      1      -      Mcu\n"
    found = take_inventory(Inventory(), lambda _: huawei(rows, 5, 3))
    assert [device.uuid for device in found.devices] == ["npu-3-2", "npu-5-10"]
    two_chips = "0      0      2      Ascend 910B4\n0      1      10     Ascend 910B4\n"
    found = take_inventory(Inventory(), lambda _: huawei(two_chips, 0))
    assert [device.uuid for device in found.devices] == ["npu-0-2"]


def test_ascend_card_without_a_file_or_a_row_leaves_the_others_in_force() -> None:
    both = "0      0      2      Ascend 910B4\n1      0      10     Ascend 910B4\n"
    good = take_inventory(Inventory(), lambda _: huawei(both, 0, 1))
    assert [device.uuid for device in good.devices] == ["npu-0-2", "npu-1-10"]
    one = "1      0      10     Ascend 910B4\n"
    for table in (one, one + "0      0      7      Ascend 910B4\n"):
        physical = huawei(table, 0, 1)
        physical.answers["mapping"] = physical.answers["mapping"].replace("Chip Logic ID", "Chip Phy-ID  ")
        lost = take_inventory(good, lambda _, physical=physical: physical)
        assert ("npu-1-10", True) in [(device.uuid, device.status.healthy) for device in lost.devices]
        assert lost.errors
    physical.answers["mapping"] = physical.answers["mapping"].replace("0      0      7", "-      0      7")
    lost = take_inventory(good, lambda _: physical)
    assert [(device.uuid, device.status.healthy) for device in lost.devices] == [("npu-0-2", False), ("npu-1-10", True)]


def test_logical_ids_are_the_order_of_the_files() -> None:
    """Runtime spec, 8.4: files sorted by number, paired with cards by position. Files 2 and 10, not 10 and 2."""
    both = "0      0      0      Ascend 910B4\n1      0      1      Ascend 910B4\n"
    for table in (both, both.splitlines(keepends=True)[0]):
        found = take_inventory(Inventory(), lambda _, table=table: huawei(table, 0, 1))
        assert [device.uuid for device in found.devices] == ["npu-0-2", "npu-1-10"]
    swapped = "0      0      1      Ascend 910B4\n1      0      0      Ascend 910B4\n"
    found = take_inventory(Inventory(), lambda _: huawei(swapped, 0, 1))
    assert [device.uuid for device in found.devices] == ["npu-1-2", "npu-0-10"]
    two_chips = "0      0      0      Ascend 910B4\n0      1      1      Ascend 910B4\n"
    found = take_inventory(Inventory(), lambda _: huawei(two_chips, 0))
    assert [device.uuid for device in found.devices] == ["npu-0-2"]


def test_error_of_a_vendor_is_reported_with_its_message() -> None:
    def discover(_machine: object) -> Found:
        raise DiscoveryError("says nothing useful")

    vendor = Vendor(key="acme", pci_vendor="19e5", commands={}, discover=discover)
    found = take_inventory(Inventory(), lambda _: FakeMachine((HUAWEI_PCI,)), (vendor,))
    assert found.errors == {"acme": "says nothing useful"}


def test_file_has_two_spaces_and_omits_what_is_unknown() -> None:
    device = Xpu(
        vendor="metax",
        model="M",
        uuid="u",
        minor="0",
        resources=gpu_resources("64Gi"),
        topology=XpuTopology(socket_id="-1", node_id="-1", bus_id="0000:00:00.0"),
        status=HEALTHY,
    )
    content = file_content([device]).decode()
    assert content.startswith('[\n  {\n    "vendor": "metax"')
    (entry,) = codec.decode(content.encode(), list[dict[str, object]])
    assert entry["topology"] == {"socketID": "-1", "nodeID": "-1", "busID": "0000:00:00.0"}
    assert entry["status"] == {"healthy": True}
    assert file_content([]) == b"[]\n"
