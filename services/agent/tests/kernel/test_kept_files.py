"""Files that are read in each cycle: opened and parsed as rarely as the kernel allows, and never an old text."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from koord_agent.domain.kernel.counters import MalformedCounter
from koord_agent.shell.host.kept_files import UNREAD_SECONDS, CounterFiles, KeptByKey, KeptFile
from koord_agent.shell.host.probe import cgroup_version

CGROUP = Path("/sys/fs/cgroup")


class Parser:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        if not text.strip().isdecimal():
            raise MalformedCounter(text)
        return int(text)


def open_files() -> list[str]:
    return [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]


def test_a_text_that_did_not_change_is_parsed_once(tmp_path: Path) -> None:
    path, parse = tmp_path / "usage", Parser()
    path.write_text("7\n")
    kept = KeptFile(str(path), parse)
    assert [kept.read(), kept.read()] == [7, 7]
    assert parse.calls == 1
    path.write_text("8\n")
    assert kept.read() == 8


def test_a_file_that_may_be_replaced_does_not_stay_open(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    path.write_text("7\n")
    kept = KeptFile(str(path), Parser())
    assert kept.read() == 7
    assert str(path) not in open_files()
    (tmp_path / "new").write_text("9\n")
    (tmp_path / "new").replace(path)
    assert kept.read() == 9
    path.unlink()
    assert kept.read() is None
    assert not kept.is_there


def test_malformed_is_there_without_a_value(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    path.write_text("many\n")
    kept = KeptFile(str(path), Parser())
    assert kept.read() is None
    assert kept.is_there


def test_a_long_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "long"
    for size in (4095, 4096, 70_000):
        path.write_text("x" * size)
        assert len(KeptFile(str(path), str).read() or "") == size


def test_a_counter_that_one_version_lacks_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nuser_usec 1\nsystem_usec 4\n")  # of the root: no throttling
    counters = CounterFiles(lambda name: str(tmp_path / {"memory.numa_stat": "numa"}.get(name, name)), 2).read(3)
    assert counters is not None
    assert (counters.at_ns, counters.cpu_usage_ns, counters.memory, counters.throttling) == (3, 5_000, None, None)
    assert CounterFiles(lambda name: str(tmp_path / "none" / name), 2).read(3) is None


class Opened:
    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


def test_what_nobody_reads_is_closed_when_something_new_comes() -> None:
    now_s = [0]
    kept = KeptByKey[str, Opened](lambda _key: Opened(), lambda: now_s[0] * 1_000_000_000)
    pods = {name: kept.get(name) for name in ("stays", "ends")}
    for now_s[0] in range(0, 5 * UNREAD_SECONDS, 10):
        assert kept.get("stays") is pods["stays"]
        kept.get(f"new-{now_s[0]}")
    assert pods["stays"].is_open
    assert not pods["ends"].is_open
    assert len(kept) < 20


@pytest.fixture
def group() -> Iterator[Path]:
    root = CGROUP if cgroup_version(CGROUP) == 2 else CGROUP / "cpuacct"
    if os.geteuid() != 0 or not os.access(root, os.W_OK):
        pytest.skip("needs a cgroup file system that can be written")
    path = root / f"koordtest-kept-{os.getpid()}"
    path.mkdir()
    yield path
    if path.exists():
        path.rmdir()


@pytest.mark.root
def test_a_kernels_file_stays_open_until_its_cgroup_is_gone(group: Path) -> None:
    path = group / "cgroup.procs"
    kept = KeptFile(str(path), str)
    assert kept.read() == ""
    assert str(path) in open_files()
    group.rmdir()
    assert kept.read() is None
    assert not kept.is_there
    assert str(path) not in open_files()
    group.mkdir()  # as the kubelet does with the folder of a class
    assert kept.read() == ""
    kept.close()
    assert str(path) not in open_files()
