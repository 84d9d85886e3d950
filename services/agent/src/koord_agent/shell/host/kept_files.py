"""Files of cgroups that are read in each cycle.

Such a file stays open, because opening takes longer than reading, and its text is parsed only if it changed: most
containers of a node are idle.
"""

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
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
from koord_agent.shell.host.kernel_files import read_kernel_file

K = TypeVar("K")
T = TypeVar("T", bound="Kept")
V = TypeVar("V")

_LIBC: Final = ctypes.CDLL(None)
_CGROUP_FILE_SYSTEMS: Final = (0x27E0EB, 0x63677270)
"""Types of cgroup v1 and v2 (linux/magic.h)."""
_STATFS_LONGS: Final = 32
_MOST_BYTES: Final = 4096
UNREAD_SECONDS: Final = 60
_PART_OF_LIMIT: Final = 4


class KeptFile(Generic[V]):
    """A file of which the kernel makes the whole text at once, such as memory.stat.

    It is opened again if its cgroup was created anew. Only one thread may use it.

    Args:
        parse: Turns the text into a value. It may raise MalformedCounter.
    """

    __slots__ = ("_data", "_descriptor", "_parse", "_path", "_value", "is_there")

    def __init__(self, path: str, parse: Callable[[str], V]) -> None:
        self.is_there = False  # Whether the last read found the file
        self._path = path
        self._parse = parse
        self._descriptor = -1
        self._data: bytes | None = None
        self._value: V | None = None

    def read(self) -> V | None:
        """The present value; None if the file is unreadable or malformed."""
        if self._descriptor >= 0:
            try:
                data = os.pread(self._descriptor, _MOST_BYTES, 0)
            except OSError:  # the cgroup was removed
                self.close()
            else:
                if data == self._data:
                    return self._value
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
            self._data, self._value = data, None
            if data is not None:
                with suppress(MalformedCounter):
                    self._value = self._parse(data.decode("ascii", "replace"))
        return self._value


def _may_stay_open(descriptor: int) -> bool:
    """Whether a file is on a cgroup file system, and few are open: descriptors are the lowest free numbers.

    Other files may be replaced, and then the descriptor would stay at the old one.
    """
    limit, _ = getrlimit(RLIMIT_NOFILE)
    if limit != RLIM_INFINITY and descriptor >= limit // _PART_OF_LIMIT:
        return False
    found = (ctypes.c_long * _STATFS_LONGS)()
    return _LIBC.fstatfs(descriptor, found) == 0 and found[0] in _CGROUP_FILE_SYSTEMS


class CounterFiles:
    """The counters of one cgroup. `path` returns where a file is, by its name on cgroup v1."""

    __slots__ = ("_files", "_memory", "_numa", "_throttling", "_usage")

    def __init__(self, path: Callable[[str], str], version: int) -> None:
        self._memory = KeptFile(path("memory.stat"), partial(parse_cgroup_memory, version=version))
        self._numa = KeptFile(path("memory.numa_stat"), partial(parse_numa_stat, version=version))
        self._throttling: KeptFile[Throttling] | None = None
        if version == 1:
            self._usage = KeptFile(path("cpuacct.usage"), _usage_of_v1)
            self._throttling = KeptFile(path("cpu.stat"), partial(parse_throttling, version=version))
        else:
            self._usage = KeptFile(path("cpu.stat"), _cpu_of_v2)

    def read(self, at_ns: int) -> CgroupCounters | None:
        """None if the cgroup does not exist. `at_ns` is the present time."""
        usage, memory = self._usage.read(), self._memory.read()
        if not (self._usage.is_there or self._memory.is_there):
            return None
        usage_ns, throttling = usage or (None, None)
        if self._throttling is not None:
            throttling = self._throttling.read()
        return CgroupCounters(at_ns=at_ns, cpu_usage_ns=usage_ns, memory=memory, throttling=throttling)

    def numa_pages(self) -> dict[int, int] | None:
        """NUMA node -> pages; None if unreadable."""
        return self._numa.read()

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
