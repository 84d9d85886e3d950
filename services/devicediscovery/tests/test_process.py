"""The service as a process: a fake `npu-smi` on PATH, a sysfs and a /dev of its own, real signals."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from koordcore.values import codec
from support.until import until_blocking

pytestmark = pytest.mark.slow

TOOL = """#!/bin/sh
case "$*" in
  "info -m")
    [ -e {folder}/broken ] && {{ echo "dcmi init failed"; exit 2; }}
    printf 'NPU ID Chip Name\\n0 0 0 Ascend 910B4\\n';;
  "info -l") printf 'NPU ID : 0\\nChip Count : 1\\n';;
  "info -t common -i 0") echo 'Aicore Count : 20';;
  "info -t memory -i 0") echo 'HBM Capacity(MB) : 65536';;
  "info -t board -i 0") echo 'PCIe Bus Info : 0000:C1:00.0'; echo "Chip Fault : $(cat {folder}/faults)";;
  *) echo "unknown: $*"; exit 1;;
esac
"""


class Node:
    """A folder with a fake tool and the file system of a machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "infos" / "ic-device"
        pci = folder / "sys/bus/pci/devices"
        real = folder / "sys/devices/pci0000:c0/0000:c1:00.0"
        real.mkdir(parents=True)
        pci.mkdir(parents=True)
        for name, text in (("vendor", "0x19e5"), ("device", "0xd500"), ("numa_node", "1")):
            (real / name).write_text(f"{text}\n")
        (pci / real.name).symlink_to(real)
        (folder / "dev").mkdir()
        (folder / "dev/davinci0").touch()
        (folder / "faults").write_text("0\n")
        self.tools = folder / "bin"
        self.tools.mkdir()
        (self.tools / "npu-smi").write_text(TOOL.format(folder=folder))
        (self.tools / "npu-smi").chmod(0o755)

    def words(self, *more: str) -> list[str]:
        folders = (f"--sys-dir={self.folder}/sys", f"--dev-dir={self.folder}/dev", f"--host-root={self.folder}/none")
        return [
            sys.executable,
            "-m",
            "koord_devicediscovery",
            *folders,
            f"--prints-output-file={self.output}",
            *more,
        ]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}"}

    def devices(self) -> list[Any] | None:
        return codec.decode(self.output.read_bytes(), list[Any]) if self.output.exists() else None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def daemon(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(node.words("--sleep-interval=50ms"), env=node.environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run_once(node: Node, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(node.words("--oneshot", *more), env=node.environment, capture_output=True, text=True)


def test_oneshot_writes_the_file_and_leaves_it(node: Node) -> None:
    done = run_once(node)
    assert done.returncode == 0, done.stderr
    assert node.devices() == [
        {
            "vendor": "huawei",
            "model": "Ascend-910B4",
            "uuid": "npu-0-0",
            "minor": "0",
            "resources": {
                "koordinator.sh/gpu-memory": "65536Mi",
                "huawei.com/npu-cpu": "7",
                "huawei.com/npu-core": "20",
                "huawei.com/npu-dvpp": "100",
            },
            "topology": {"socketID": "-1", "nodeID": "1", "pcieID": "pci0000:c0", "busID": "0000:c1:00.0"},
            "status": {"healthy": True},
        }
    ]
    assert node.output.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in node.output.parent.iterdir()] == ["ic-device"]


def test_oneshot_fails_if_a_tool_fails_but_writes_what_was_found(node: Node) -> None:
    (node.folder / "broken").touch()
    assert run_once(node).returncode == 1
    assert node.devices() == []


def test_empty_path_prints_the_list(node: Node) -> None:
    done = run_once(node, "--prints-output-file=", "--log-format=json")
    assert done.returncode == 0
    assert '"uuid": "npu-0-0"' in done.stdout
    assert not node.output.exists()


def test_invalid_flag_ends_before_the_first_look(node: Node) -> None:
    done = run_once(node, "--sleep-interval=10")
    assert (done.returncode, node.output.exists()) == (2, False)
    assert "sleep_interval" in done.stderr


def test_daemon_follows_the_tool_and_keeps_its_last_good_answer(node: Node, daemon: subprocess.Popen[bytes]) -> None:
    def healthy() -> list[bool] | None:
        return [device["status"]["healthy"] for device in node.devices() or []]

    until_blocking(lambda: healthy() == [True])
    (node.folder / "faults").write_text("3\n")
    until_blocking(lambda: healthy() == [False])
    (node.folder / "faults").write_text("0\n")
    until_blocking(lambda: healthy() == [True])
    (node.folder / "broken").touch()
    before = node.output.stat().st_mtime_ns
    until_blocking(lambda: node.output.exists() and node.output.stat().st_mtime_ns > before)
    assert healthy() == [True]
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(60) == 0
    assert not node.output.exists()


def is_running(process: str) -> bool:
    """Whether a process exists and has not ended. In a container, maybe nobody collects its status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGQUIT])
def test_the_end_waits_for_no_tool(node: Node, ending: signal.Signals) -> None:
    begun = node.folder / "begun"
    (node.tools / "npu-smi").write_text(
        f"#!/bin/sh\n(sleep 600; true) & echo $! > {begun}.new\nmv {begun}.new {begun}; wait\n"
    )
    process = subprocess.Popen(node.words(), env=node.environment)
    try:
        until_blocking(begun.exists)
        process.send_signal(ending)
        assert process.wait(60) == 0
        assert not node.output.exists()
        child = begun.read_text().strip()
        until_blocking(lambda: not is_running(child), "the tool's child is gone, too")
    finally:
        process.kill()
        process.wait()


def test_sighup_removes_the_file_and_looks_again(node: Node) -> None:
    process = subprocess.Popen(node.words("--sleep-interval=1h"), env=node.environment)
    try:
        until_blocking(node.output.exists)
        leftover = node.output.parent / "ic-device-tmp"
        leftover.mkdir()
        written = node.output.stat().st_ino
        process.send_signal(signal.SIGHUP)
        until_blocking(lambda: node.output.exists() and node.output.stat().st_ino != written)
        until_blocking(lambda: not leftover.exists())
        process.send_signal(signal.SIGQUIT)
        assert process.wait(60) == 0
        assert not node.output.exists()
    finally:
        process.kill()
        process.wait()


def test_reload_keeps_the_file_until_the_new_one_is_written(node: Node) -> None:
    config = node.folder / "config.yaml"
    other, unwritable = node.folder / "infos" / "other", node.folder / "faults" / "file"
    path: Path = node.output

    def configure(text: str) -> None:
        config.write_text(text)
        process.send_signal(signal.SIGHUP)

    def file_is(output: Path) -> str:
        return f"version: v1\nflags: {{kdd: {{printsOutputFile: {output}, sleepInterval: 1h}}}}\n"

    config.write_text(file_is(path))
    log = node.folder / "log"
    words = [word for word in node.words(f"--config-file={config}") if not word.startswith("--prints-output-file")]
    with log.open("wb") as said:
        process = subprocess.Popen(words, env=node.environment, stdout=said, stderr=said)
    try:
        until_blocking(path.exists)
        configure("version: v2\n")
        until_blocking(lambda: "settings_refused" in log.read_text())
        assert path.exists()
        configure(file_is(unwritable))
        until_blocking(lambda: "device_file_not_written" in log.read_text())
        assert node.devices()
        configure(file_is(other))
        until_blocking(lambda: other.exists() and not path.exists())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not other.exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
@pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox-static")
def test_tool_runs_inside_the_root_of_the_host(node: Node) -> None:
    root = node.folder / "hostfs"
    busybox = shutil.which("busybox")
    assert busybox is not None
    for name in ("sh", "printf", "cat", "npu-smi"):
        target = root / "bin" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name == "npu-smi":
            target.write_text(TOOL.format(folder=""))
            target.chmod(0o755)
        else:
            shutil.copy(busybox, target)
    (root / "faults").write_text("0\n")
    (node.tools / "npu-smi").unlink()
    done = run_once(node, f"--host-root={root}")
    assert done.returncode == 0, done.stderr
    assert [device["uuid"] for device in node.devices() or []] == ["npu-0-0"]
