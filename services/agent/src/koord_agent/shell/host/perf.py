"""Hardware counters of a cgroup with perf_event_open(2): cycles and instructions on every CPU.

If kernel, CPU or permissions do not allow a counter, it is absent and not zero. Descriptors are closed on every path.

Source: agent spec, 6.7.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from koord_agent.domain.metrics.cpi import Counted, CpuCounters, scale_counters

_SYSCALL: Final = {"x86_64": 298, "aarch64": 241}
_TYPE_HARDWARE: Final = 0
_CYCLES, _INSTRUCTIONS = 0, 1
_ATTRIBUTES: Final = struct.Struct("=IIQQQQQIIQ")
"""Layout of the attributes: PERF_ATTR_SIZE_VER0, from type to config1, which every kernel accepts."""
_READ_FORMAT: Final = 0x1 | 0x2
"""Flags for reading total time enabled and total time running."""
_FLAG_PID_CGROUP: Final = 0x4
_FLAG_CLOEXEC: Final = 0x8
_READING: Final = struct.Struct("=QQQ")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


_Reading: TypeAlias = tuple[int, int, int]
"""Value, time enabled and time running in nanoseconds."""


class CountersAbsent(Exception):
    """The message is the kernel's reason."""


class CycleCounters:
    """Do not call `read` after `close`."""

    def __init__(self, descriptors: Sequence[tuple[int, int]]) -> None:
        self._descriptors = list(descriptors)

    @property
    def open_descriptors(self) -> int:
        return 2 * len(self._descriptors)

    def read(self) -> Counted:
        """A CPU counts if both counters are readable and counted for a part of the same time."""
        return scale_counters(
            CpuCounters(
                cycles=cycles[0],
                instructions=instructions[0],
                time_enabled_ns=cycles[1],
                time_running_ns=cycles[2],
            )
            for cycles, instructions in self._pairs()
        )

    def _pairs(self) -> Iterator[tuple[_Reading, _Reading]]:
        for cycles, instructions in self._descriptors:
            first, second = _reading(cycles), _reading(instructions)
            # a counter that got no hardware, because others hold it, is 0 beside one that counted
            if first is not None and second is not None and bool(first[2]) == bool(second[2]):
                yield first, second

    def close(self) -> None:
        """No-op if they are closed."""
        descriptors, self._descriptors = self._descriptors, []
        for pair in descriptors:
            for descriptor in pair:
                os.close(descriptor)


def open_cgroup_counters(directory: str, cpus: Sequence[int]) -> CycleCounters:
    """`directory` is absolute, in the hierarchy perf_event (v1) or the unified one (v2).

    Raises:
        CountersAbsent: The kernel refuses them.
        OSError: The directory does not exist, or too many files are open.
    """
    cgroup = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened: list[int] = []
    try:
        for cpu in cpus:
            opened.extend(_open(config, cgroup, cpu) for config in (_CYCLES, _INSTRUCTIONS))
    except BaseException:
        for descriptor in opened:
            os.close(descriptor)
        raise
    finally:
        os.close(cgroup)
    return CycleCounters(list(zip(opened[::2], opened[1::2], strict=True)))


def _open(config: int, cgroup: int, cpu: int) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise CountersAbsent(f"perf_event_open is not known for {platform.machine()}")
    attributes = _ATTRIBUTES.pack(_TYPE_HARDWARE, _ATTRIBUTES.size, config, 0, 0, _READ_FORMAT, 0, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attributes)
    descriptor: int = _LIBC.syscall(number, buffer, cgroup, cpu, -1, _FLAG_PID_CGROUP | _FLAG_CLOEXEC)
    if descriptor < 0:
        code = ctypes.get_errno()
        if code in (errno.EMFILE, errno.ENFILE):
            raise OSError(code, os.strerror(code))
        name = "cycles" if config == _CYCLES else "instructions"
        raise CountersAbsent(f"{name} on cpu {cpu}: {os.strerror(code)}")
    return descriptor


def _reading(descriptor: int) -> _Reading | None:
    try:
        data = os.read(descriptor, _READING.size)
    except OSError:
        return None
    return _READING.unpack(data) if len(data) == _READING.size else None
