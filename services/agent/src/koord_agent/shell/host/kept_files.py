"""Files of cgroups that are read in each cycle.

Such a file stays open, because opening takes longer than reading, and its text is parsed only if it changed: most
containers of a node are idle. A file is not even read if another one shows that it cannot have changed.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import Final, Generic, Protocol, TypeVar

from koord_agent.domain.kernel.counters import (
    CgroupCounters,
    MalformedCounter,
    Throttling,
    parse_cgroup_memory,
    parse_cpu_usage_ns,
    parse_throttling,
)
from koord_agent.domain.kernel.numa_usage import parse_numa_stat
from koord_agent.domain.strategies.load_rise import CpuTimes
from koord_agent.shell.host.kernel_files import read_kernel_file

K = TypeVar("K")
T = TypeVar("T", bound="Kept")
V = TypeVar("V")

_LIBC: Final = ctypes.CDLL(None)
_CGROUP_FILE_SYSTEMS: Final = (0x27E0EB, 0x63677270)
"""Types of cgroup v1 and v2 (linux/magic.h)."""
_STATFS_LONGS: Final = 32
_MOST_BYTES: Final = 4096
_SPARE_BYTES: Final = 32
"""Bytes by which a text may grow before its file is read a second time. A large buffer costs more than the read."""
MOST_REUSES: Final = 5
"""Cycles after which a file is read again, whatever others show: a kernel or a mount may be another one than known."""
UNREAD_SECONDS: Final = 60
_PART_OF_LIMIT: Final = 4
_TIME_BYTES: Final = 48
_USAGE_V2: Final = b"usage_usec "


class KeptFile(Generic[V]):
    """A file of which the kernel makes the whole text at once, such as memory.stat.

    It is opened again if its cgroup was created anew. Only one thread may use it.

    Args:
        parse: Turns the text into a value. It may raise MalformedCounter.
    """

    __slots__ = ("_data", "_descriptor", "_parse", "_path", "_size", "changes", "is_there", "value")

    def __init__(self, path: str, parse: Callable[[str], V]) -> None:
        self.is_there = False  # Whether the last read found the file
        self.changes = 0  # Number of reads that found another text than the one before
        self.value: V | None = None  # What the last read returned
        self._path = path
        self._parse = parse
        self._descriptor = -1
        self._size = _MOST_BYTES
        self._data: bytes | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the file is open: it is one of a kernel's cgroup that exists."""
        return self._descriptor >= 0

    def read(self) -> V | None:
        """The present value; None if the file is unreadable or malformed."""
        if self._descriptor >= 0:
            try:
                data = os.pread(self._descriptor, self._size, 0)
                if data == self._data:
                    return self.value
                if len(data) == self._size:
                    data = os.pread(self._descriptor, _MOST_BYTES, 0)
            except OSError:  # the cgroup was removed
                self.close()
            else:
                if len(data) < _MOST_BYTES:
                    return self._take(data)
                self.close()
        return self._read_anew()

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read_anew(self) -> V | None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return self._take(None)
        try:
            data: bytes | None = os.pread(descriptor, _MOST_BYTES, 0)
        except OSError:
            data = None
        if data is not None and len(data) < _MOST_BYTES and _may_stay_open(descriptor):
            self._descriptor = descriptor
        else:
            os.close(descriptor)
            if data is not None and len(data) == _MOST_BYTES:
                text = read_kernel_file(self._path)
                data = None if text is None else text.encode("ascii", "replace")
        return self._take(data)

    def _take(self, data: bytes | None) -> V | None:
        self.is_there = data is not None
        if data is None or data != self._data:
            self._data, self.value = data, None
            self.changes += 1
            if data is not None:
                self._size = min(len(data) + _SPARE_BYTES, _MOST_BYTES)
                with suppress(MalformedCounter):
                    self.value = self._parse(data.decode("ascii", "replace"))
        return self.value


def _may_stay_open(descriptor: int) -> bool:
    """Whether a file is on a cgroup file system, and few are open: descriptors are the lowest free numbers.

    Other files may be replaced, and then the descriptor would stay at the old one.
    """
    limit, _ = getrlimit(RLIMIT_NOFILE)
    if limit != RLIM_INFINITY and descriptor >= limit // _PART_OF_LIMIT:
        return False
    found = (ctypes.c_long * _STATFS_LONGS)()
    return _LIBC.fstatfs(descriptor, found) == 0 and found[0] in _CGROUP_FILE_SYSTEMS


_turns = count()


class CounterFiles:
    """The counters of one cgroup. `path` returns where a file is, by its name on cgroup v1."""

    __slots__ = (
        "_at_ns",
        "_idle",
        "_memory",
        "_memory_of_above",
        "_memory_of_numa",
        "_numa",
        "_still",
        "_throttling",
        "_turn",
        "_usage",
        "_usage_before",
        "_usage_of_above",
    )

    def __init__(self, path: Callable[[str], str], version: int) -> None:
        self._memory = KeptFile(path("memory.stat"), partial(parse_cgroup_memory, version=version))
        self._numa = KeptFile(path("memory.numa_stat"), partial(parse_numa_stat, version=version))
        self._throttling: KeptFile[Throttling] | None = None
        if version == 1:
            self._usage = KeptFile(path("cpuacct.usage"), _usage_of_v1)
            self._throttling = KeptFile(path("cpu.stat"), partial(parse_throttling, version=version))
        else:
            self._usage = KeptFile(path("cpu.stat"), _cpu_of_v2)
        self._at_ns = 0
        self._turn = next(_turns)
        self._idle = 0  # Reads in succession that found the same CPU time
        self._usage_before = -1
        self._still = 0  # Reads in succession before which the directory above had the same CPU time
        self._usage_of_above = self._memory_of_above = self._memory_of_numa = -1

    def read(self, at_ns: int, above: "CounterFiles | None" = None) -> CgroupCounters | None:
        """None if the cgroup does not exist.

        Counters of a cgroup contain those of the cgroups below it. So if the text of the directory above is the same,
        nothing worked here and no memory came or went. Bandwidth periods may pass up to one period longer.

        Args:
            at_ns: The present time.
            above: A directory above this one, which was read before in the same cycle.
        """
        self._turn += 1
        may_reuse = self._turn % MOST_REUSES != 0
        usage, memory = self._usage, self._memory
        if above is None or not above._usage.is_kept:
            self._still = 0
        elif above._usage.changes != self._usage_of_above:
            self._still, self._usage_of_above = 0, above._usage.changes
        else:
            self._still += 1
        if may_reuse and self._still > 1 and usage.is_kept and above is not None:
            self._at_ns = above._at_ns
        else:
            usage.read()
            self._at_ns = at_ns
            self._idle = self._idle + 1 if usage.changes == self._usage_before else 0
            self._usage_before = usage.changes
        is_same = above is not None and above._memory.is_kept and above._memory.changes == self._memory_of_above
        if not (may_reuse and is_same and usage.is_kept and memory.is_kept):
            memory.read()
            self._memory_of_above = -1 if above is None else above._memory.changes
        if not (usage.is_there or memory.is_there):
            return None
        usage_ns, throttling = usage.value or (None, None)
        file = self._throttling
        if file is not None:
            # no period passes while nothing runs, but for the one that had begun
            throttling = file.value if may_reuse and self._idle > 1 and file.is_kept else file.read()
        return CgroupCounters(self._at_ns, usage_ns, memory.value, throttling)

    def cpu_time_ns(self) -> int | None:
        """None if unreadable."""
        usage = self._usage.read()
        return None if usage is None else usage[0]

    def numa_pages(self) -> dict[int, int] | None:
        """NUMA node -> pages; None if unreadable. Pages do not move without an event in the text of memory.stat."""
        memory, numa = self._memory, self._numa
        is_same = memory.is_kept and numa.is_kept and memory.changes == self._memory_of_numa
        if is_same and self._turn % MOST_REUSES != 0:
            return numa.value
        self._memory_of_numa = memory.changes
        return numa.read()

    def close(self) -> None:
        for file in (self._usage, self._memory, self._numa, self._throttling):
            if file is not None:
                file.close()


_Cpu = tuple[int | None, Throttling | None]


def _usage_of_v1(text: str) -> _Cpu:
    return parse_cpu_usage_ns(text, 1), None


def _cpu_of_v2(text: str) -> _Cpu:
    """Both values come from one file; it may lack one of them, such as throttling at the root."""
    usage: int | None = None
    with suppress(MalformedCounter):
        usage = parse_cpu_usage_ns(text, 2)
    with suppress(MalformedCounter):
        return usage, parse_throttling(text, 2)
    return usage, None


class CpuClocks:
    """CPU times of the machine and of a cgroup, which are read several times a second, and so with few steps.

    Args:
        machine: Path of cpuacct.usage (cgroup v1) or cpu.stat (v2) of the machine.
        cgroup: The same of the cgroup.
    """

    __slots__ = ("_descriptors", "_may_keep", "_monotonic_ns", "_paths")

    def __init__(self, machine: str, cgroup: str, monotonic_ns: Callable[[], int]) -> None:
        self._paths = machine, cgroup
        self._monotonic_ns = monotonic_ns
        self._descriptors: tuple[int, int] | None = None
        self._may_keep = False

    def read(self) -> CpuTimes | None:
        """None if a file is unreadable or malformed."""
        try:
            opened = self._descriptors or self._open()
            machine, cgroup = os.pread(opened[0], _TIME_BYTES, 0), os.pread(opened[1], _TIME_BYTES, 0)
            times = CpuTimes(self._monotonic_ns(), _time_ns(machine), _time_ns(cgroup))
        except (OSError, ValueError):  # the cgroup was removed
            times = None
        if times is None or not self._may_keep:
            self.close()
        return times

    def close(self) -> None:
        for descriptor in self._descriptors or ():
            os.close(descriptor)
        self._descriptors = None

    def _open(self) -> tuple[int, int]:
        machine = os.open(self._paths[0], os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._descriptors = machine, os.open(self._paths[1], os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(machine)
            raise
        self._may_keep = all(map(_may_stay_open, self._descriptors))
        return self._descriptors


def _time_ns(data: bytes) -> int:
    """Raises ValueError: The text has another form, also if it has more than a number on cgroup v1."""
    if data.startswith(_USAGE_V2):
        return int(data[len(_USAGE_V2) : data.index(b"\n")]) * 1000
    return int(data)


class Kept(Protocol):
    """Something with open files."""

    def close(self) -> None: ...


class KeptByKey(Generic[K, T]):
    """What is read by its key, such as a directory. What nobody has read for a minute is closed when a new key comes.

    Args:
        make: Returns what belongs to a key.
        monotonic_ns: Returns a monotonic time in nanoseconds.
    """

    def __init__(self, make: Callable[[K], T], monotonic_ns: Callable[[], int]) -> None:
        self._make = make
        self._monotonic_ns = monotonic_ns
        self._read: dict[K, T] = {}
        self._unread: dict[K, T] = {}
        self._since_ns = 0

    def get(self, key: K) -> T:
        """Raises the errors of `make`."""
        return self._read.get(key) or self._take(key)

    def __len__(self) -> int:
        return len(self._read) + len(self._unread)

    def _take(self, key: K) -> T:
        now_ns = self._monotonic_ns()
        if not 0 <= now_ns - self._since_ns < UNREAD_SECONDS * 1_000_000_000:
            for kept in self._unread.values():
                kept.close()
            self._read, self._unread, self._since_ns = {}, self._read, now_ns
        found = self._unread.pop(key, None) or self._make(key)
        self._read[key] = found
        return found
