"""Devices of a machine: which files count, what is said of them, and when."""

import json
from pathlib import Path
from typing import Any

from koord_agent.domain.devices.device import KEPT_MS, VANISHED, DeviceReport
from koord_agent.domain.reporting.topology_report import report_digest
from koord_agent.shell.collect.devices import CYCLES_KEPT, SYNC_EVERY_MS, DeviceReporter, MachineDevices, XpuFolder
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.nodestate import DeviceInventoryChanged
from koordcore.protocol import keys


def write(folder: Path, name: str, *entries: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(entries))


def xpu(minor: int, **more: Any) -> dict[str, Any]:
    return {"vendor": "huawei", "model": "910B", "uuid": f"u{minor}", "minor": str(minor), **more}


def minors(report: DeviceReport) -> list[int]:
    return [device.minor for device in report.devices]


def machine(folder: Path) -> MachineDevices:
    return MachineDevices(XpuFolder(folder))


def test_files_are_joined_in_order_and_temporary_files_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "xpu"
    assert minors(machine(folder).read()) == [], "there is no folder"
    write(folder, "b.json", xpu(2), xpu(1))
    write(folder, "a.json", xpu(0, vendor="first"))
    write(folder, ".b.json.tmp", xpu(7))
    report = machine(folder).read()
    assert minors(report) == [0, 1, 2]
    assert report.labels["node.koordinator.sh/gpu-vendor"] == "first"


def test_a_half_written_file_keeps_its_devices_for_three_cycles(tmp_path: Path) -> None:
    write(tmp_path, "a.json", xpu(0))
    write(tmp_path, "b.json", xpu(1))
    folder = machine(tmp_path)
    assert minors(folder.read()) == [0, 1]
    (tmp_path / "b.json").write_text('[{"uuid":')
    assert [minors(folder.read()) for _ in range(CYCLES_KEPT + 1)] == [[0, 1]] * CYCLES_KEPT + [[0]]
    write(tmp_path, "b.json", xpu(1))
    assert minors(folder.read()) == [0, 1]


def found_at(report: DeviceInventoryChanged) -> dict[str, str]:
    """The annotation with the time of a report, which must be there."""
    return {keys.DEVICE_DISCOVERY_TIMESTAMP: report.annotations[keys.DEVICE_DISCOVERY_TIMESTAMP]}


def test_a_change_is_said_once_and_not_again_after_a_restart(tmp_path: Path) -> None:
    write(tmp_path, "a.json", xpu(0, status={"healthy": True}))
    folder = machine(tmp_path)
    reporter = DeviceReporter(folder.read)
    first = reporter.report(0)
    assert first is not None
    assert [(device.minor, device.healthy, device.code) for device in first.devices] == [(0, True, "DeviceHealthy")]
    write(tmp_path, "a.json", xpu(0, status={"healthy": False, "errCode": "E1", "errMessage": "broken"}))
    assert reporter.report(SYNC_EVERY_MS - 1) is None, "read every 3 s"
    failed = reporter.report(SYNC_EVERY_MS)
    assert failed is not None
    assert [(device.healthy, device.code, device.message) for device in failed.devices] == [(False, "E1", "broken")]
    assert failed.annotations == {keys.DEVICE_DISCOVERY_TIMESTAMP: "1970-01-01T00:00:03.000000Z"}
    assert reporter.report(2 * SYNC_EVERY_MS) is None
    assert DeviceReporter(folder.read, said=report_digest(failed)).report(0) is None


def test_devices_that_vanish_are_not_healthy_for_ten_minutes(tmp_path: Path) -> None:
    write(tmp_path, "a.json", xpu(0))
    folder = machine(tmp_path)
    reporter = DeviceReporter(folder.read)
    assert reporter.report(0) is not None
    (tmp_path / "a.json").unlink()
    gone = reporter.report(SYNC_EVERY_MS)
    assert gone is not None
    assert [(device.minor, device.healthy, device.code) for device in gone.devices] == [(0, False, VANISHED)]
    assert reporter.report(KEPT_MS - 1) is None
    empty = reporter.report(KEPT_MS + SYNC_EVERY_MS)
    assert empty is not None
    assert empty == DeviceInventoryChanged(devices=[], annotations=found_at(empty))
    after_restart = DeviceReporter(folder.read, said=report_digest(gone))
    assert after_restart.report(1) is None
    again = after_restart.report(KEPT_MS + 1)
    assert again is not None
    assert report_digest(again) == report_digest(empty)


def test_one_device_that_vanishes_is_not_healthy_for_ten_minutes_and_comes_back(tmp_path: Path) -> None:
    def health(now_ms: int) -> list[tuple[int, bool | None, str]] | None:
        report = reporter.report(now_ms)
        return None if report is None else [(each.minor, each.healthy, each.code) for each in report.devices]

    reporter = DeviceReporter(machine(tmp_path).read)
    write(tmp_path, "a.json", xpu(0), xpu(1))
    assert health(0) == [(0, None, ""), (1, None, "")]
    write(tmp_path, "a.json", xpu(0))
    assert health(SYNC_EVERY_MS) == [(0, None, ""), (1, False, VANISHED)]
    write(tmp_path, "a.json", xpu(0), xpu(1))
    assert health(2 * SYNC_EVERY_MS) == [(0, None, ""), (1, None, "")]
    write(tmp_path, "a.json", xpu(0))
    assert health(3 * SYNC_EVERY_MS) == [(0, None, ""), (1, False, VANISHED)]
    assert health(KEPT_MS + SYNC_EVERY_MS) is None
    assert health(KEPT_MS + 2 * SYNC_EVERY_MS) == [(0, None, "")]


def test_a_node_without_devices_says_nothing(tmp_path: Path) -> None:
    assert DeviceReporter(machine(tmp_path).read).report(0) is None


def test_simulated_devices_fail_vanish_and_come_back() -> None:
    node = SimulatedNode(name="n", cpu_milli=8_000, memory_bytes=1 << 30, gpus=3, gpu_model="T4", rdma_functions=2)
    host = SimulatedFleet([node]).host("n")
    hardware = host.hardware
    reporter = DeviceReporter(host.devices)

    def unhealthy(interval: int) -> list[tuple[str, int, str]] | None:
        report = reporter.report(interval * SYNC_EVERY_MS)
        if report is None:
            return None
        return [(each.type, each.minor, each.code) for each in report.devices if each.healthy is False]

    assert unhealthy(0) == []
    assert [(each.type, each.minor) for each in host.devices().devices] == [
        *(("gpu", n) for n in range(3)),
        *(("rdma", n) for n in range(2)),
    ]
    assert host.devices().devices[4].virtual_functions == ("0001:01:00.1", "0001:01:00.2")
    assert unhealthy(1) is None
    hardware.faults["gpu", 1] = "Xid79"
    hardware.faults["rdma", 0] = "PortInactive"
    assert unhealthy(2) == [("gpu", 1, "Xid79"), ("rdma", 0, "PortInactive")]
    hardware.are_gone = True
    vanished = unhealthy(3)
    assert vanished is not None
    assert [code for _, _, code in vanished] == [VANISHED] * 5
    hardware.are_gone = False
    hardware.faults.clear()
    assert unhealthy(4) == []
    assert [hardware.has("rdma", 1), hardware.has("rdma", 2), hardware.has("fpga", 0)] == [True, False, False]
