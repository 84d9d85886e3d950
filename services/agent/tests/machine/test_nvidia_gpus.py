"""GPUs through NVML: the agent's own process over a library that answers as libnvidia-ml does."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.until import until_blocking

PROGRAM = """
import json, sys, time
from pathlib import Path
from koord_agent.shell.collect.devices import DeviceReporter, MachineDevices, XpuFolder
from koord_agent.shell.collect.nvidia_gpus import NvidiaGpus
from koord_agent.shell.collect.devices import PciBus

pci = PciBus(Path(sys.argv[1]))
gpus = NvidiaGpus(pci, every_ms=20)
gpus.start()
reporter = DeviceReporter(MachineDevices(XpuFolder(Path("/none")), gpus=gpus.report).read, sync_ms=20)
while True:
    report = reporter.report(time.monotonic_ns() // 1_000_000)
    if report is not None:
        devices = [[d.id, d.minor, d.healthy, d.code, d.numa_node, d.pcie_id, d.bus_id] for d in report.devices]
        print(json.dumps({"devices": devices, "labels": report.labels}), flush=True)
    time.sleep(0.01)
"""
USAGE_PROGRAM = """
import json, sys, time
from pathlib import Path
from koord_agent.shell.collect.nvidia_gpus import NvidiaGpus
from koord_agent.shell.collect.devices import PciBus

gpus = NvidiaGpus(PciBus(Path(sys.argv[1])), every_ms=20)
gpus.start()
said = None
while True:
    usage = [
        [gpu.minor, gpu.uuid, gpu.memory_bytes, gpu.processes, *([] if gpu.has_cores else ["unknown"])]
        for gpu in gpus.usage()
    ]
    if usage != said:
        print(json.dumps({"devices": usage}), flush=True)
    said = usage
    time.sleep(0.01)
"""
OK = "GPU-a 0 00000000:3B:00.0 85899345920 ok NVIDIA A100-SXM4-80GB\n"
ODD = OK.replace("GPU-a", "GPU-\udcff")
SIZE = 85899345920
OTHER = "GPU-b 1 00000000:AF:00.0 85899345920 {state} NVIDIA A100-SXM4-80GB\n"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the library"),
]


class Machine:
    """A process that reports the GPUs of the library, and the folder that decides what the library answers."""

    def __init__(self, folder: Path, program: str = PROGRAM) -> None:
        self.microseconds = 0
        self.gpus = folder / "gpus"
        self.gpus.write_text(OK + OTHER.format(state="ok"))
        for bus_id, numa in (("0000:3b:00.0", 0), ("0000:af:00.0", 1)):
            function = folder / f"sys/devices/pci0000:{bus_id[5:7]}" / bus_id
            function.mkdir(parents=True)
            (function / "numa_node").write_text(f"{numa}\n")
            link = folder / "sys/bus/pci/devices" / bus_id
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(function)
        library = folder / "lib/libnvidia-ml.so.1"
        library.parent.mkdir()
        source = Path(__file__).with_name("fake_nvml.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", str(library), str(source)], check=True)
        self.reports = folder / "reports"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": str(self.gpus)}
        with self.reports.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, str(folder / "sys")], env=environment, stdout=output
            )

    def answer(self, text: str) -> None:
        """Change what the library answers, at once."""
        fresh = self.gpus.with_suffix(".new")
        fresh.write_bytes(text.encode(errors="surrogateescape"))
        fresh.replace(self.gpus)

    def fail(self, uuid: str, xid: int) -> None:
        """Let the library tell an error. It takes the one before first."""
        event = Path(f"{self.gpus}.xid")
        until_blocking(lambda: not event.exists())
        fresh = self.gpus.with_suffix(".event")
        fresh.write_bytes(f"{uuid} {xid}".encode(errors="surrogateescape"))
        fresh.replace(event)

    def until_used(self, expected: list[Any], *lines: str) -> None:
        """Let processes use GPUs until a report says so. Each line: UUID, process, percent of the cores, bytes.

        A sample counts for one reading only, so there are newer ones until a reading has seen it together with the
        processes.
        """

        def run() -> None:
            self.microseconds += 1
            fresh = self.gpus.with_suffix(".processes")
            fresh.write_text("\n".join(f"{line} {self.microseconds}" for line in lines))
            fresh.replace(Path(f"{self.gpus}.pids"))

        until_blocking(lambda: expected in [report["devices"] for report in self.all()], check=run)

    def all(self) -> list[dict[str, Any]]:
        text = self.reports.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line.startswith("{")]

    def last(self) -> dict[str, Any]:
        reports = self.all()
        return reports[-1] if reports else {"devices": [], "labels": {}}

    def until_health(self, expected: dict[str, tuple[bool | None, str]]) -> None:
        def health() -> bool:
            return {each[0]: (each[2], each[3]) for each in self.last()["devices"]} == expected

        def alive() -> None:
            assert self.process.poll() is None, "the process has ended"

        until_blocking(health, check=alive)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def test_gpus_have_their_place_and_their_model(machine: Machine) -> None:
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    assert machine.last() == {
        "devices": [
            ["GPU-a", 0, None, "", 0, "pci0000:3b", "0000:3b:00.0"],
            ["GPU-b", 1, None, "", 1, "pci0000:af", "0000:af:00.0"],
        ],
        "labels": {
            "node.koordinator.sh/gpu-vendor": "nvidia",
            "node.koordinator.sh/gpu-model": "A100-SXM4-80GB",
            "node.koordinator.sh/gpu-driver-version": "550.54.15",
        },
    }


def test_critical_error_lasts_until_the_gpu_was_reset(machine: Machine) -> None:
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    machine.fail("GPU-b", 31)  # an error of an application
    machine.fail("GPU-a", 79)
    machine.until_health({"GPU-a": (False, "Xid79"), "GPU-b": (None, "")})
    machine.answer(OTHER.format(state="ok"))
    machine.until_health({"GPU-a": (False, "DeviceVanished"), "GPU-b": (None, "")})
    machine.answer(OK + OTHER.format(state="ok"))
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})


def test_error_without_a_gpu_concerns_all(machine: Machine) -> None:
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    machine.fail("nobody", 48)
    machine.until_health({"GPU-a": (False, "Xid48"), "GPU-b": (False, "Xid48")})


def test_gpu_that_falls_off_the_bus_is_known_and_unhealthy(machine: Machine) -> None:
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    machine.answer(OK + OTHER.format(state="lost"))
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (False, "GpuIsLost")})
    machine.answer(OK + OTHER.format(state="ok"))
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})


def test_answer_about_one_gpu_that_cannot_be_read_hides_no_other_gpu(machine: Machine) -> None:
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    machine.answer(ODD + OTHER.format(state="lost"))
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (False, "GpuIsLost")})
    machine.answer(ODD + OTHER.format(state="ok"))
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    assert machine.reports.read_text().count("gpu_not_read") == 2, "once for each GPU, not at each reading"


def test_gpu_whose_name_cannot_be_read_is_healthy_without_a_model(machine: Machine) -> None:
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    machine.answer((OK + OTHER.format(state="ok")).replace("NVIDIA", "\udcff"))
    until_blocking(lambda: machine.last()["labels"] == {"node.koordinator.sh/gpu-vendor": "nvidia"})
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})


def test_error_of_a_gpu_whose_name_cannot_be_read_concerns_all_and_the_watch_goes_on(machine: Machine) -> None:
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    machine.answer(ODD + OTHER.format(state="ok"))
    until_blocking(lambda: "gpu_not_read" in machine.reports.read_text())
    machine.fail("GPU-\udcff", 79)
    machine.until_health({"GPU-a": (False, "Xid79"), "GPU-b": (False, "Xid79")})
    machine.answer(OK + OTHER.format(state="ok"))
    machine.fail("GPU-b", 48)
    machine.until_health({"GPU-a": (False, "Xid79"), "GPU-b": (False, "Xid48")})


def test_gpu_without_events_is_not_trusted(machine: Machine) -> None:
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})
    machine.answer(OK)
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (False, "DeviceVanished")})
    machine.answer(OK + OTHER.format(state="mute"))
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (False, "DeviceHealthCheckNotSupported")})
    machine.answer(OK + OTHER.format(state="ok"))
    machine.until_health({"GPU-a": (None, ""), "GPU-b": (None, "")})


@pytest.fixture
def used_machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path, USAGE_PROGRAM)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def test_usage_is_unknown_while_a_call_hangs(used_machine: Machine) -> None:
    busy: list[Any] = [[0, "GPU-a", SIZE, [[10, 30.0, 1000]]], [1, "GPU-b", SIZE, []]]
    used_machine.until_used(busy, "GPU-a 10 30 1000")
    hang = Path(f"{used_machine.gpus}.hang")
    hang.touch()
    until_blocking(lambda: used_machine.last()["devices"] == [])
    hang.unlink()
    until_blocking(lambda: [gpu[1] for gpu in used_machine.last()["devices"]] == ["GPU-a", "GPU-b"])


def test_a_gpu_whose_processes_cannot_be_read_has_no_usage(used_machine: Machine) -> None:
    until_blocking(lambda: [gpu[1] for gpu in used_machine.last()["devices"]] == ["GPU-a", "GPU-b"])
    used_machine.answer(OK + OTHER.format(state="deaf"))
    until_blocking(lambda: [gpu[1] for gpu in used_machine.last()["devices"]] == ["GPU-a"])


def test_newest_sample_of_each_process_counts(used_machine: Machine) -> None:
    busy = [[0, "GPU-a", SIZE, [[10, 30.0, 1000], [11, 20.0, 500]]], [1, "GPU-b", SIZE, [[10, 5.0, 7]]]]
    used_machine.until_used(busy, "GPU-a 10 30 1000", "GPU-a 11 20 500", "GPU-b 10 5 7")
    later: list[Any] = [[0, "GPU-a", SIZE, [[10, 90.0, 2000]]], [1, "GPU-b", SIZE, []]]
    used_machine.until_used(later, "GPU-a 10 90 2000")


def test_cores_of_a_partitioned_gpu_are_unknown_while_its_memory_is_known(used_machine: Machine) -> None:
    used_machine.answer(OK.replace(" ok ", " mig ") + OTHER.format(state="ok"))
    partitioned: list[Any] = [
        [0, "GPU-a", SIZE, [[10, 0.0, 1000]], "unknown"],
        [1, "GPU-b", SIZE, [[11, 40.0, 7]]],
    ]
    used_machine.until_used(partitioned, "GPU-a 10 30 1000", "GPU-b 11 40 7")
