"""What kind of machine this is: cgroup version, directory names, clock tick; asked at start (agent spec, 1, 3.1)."""

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from koord_agent.domain.cgroup_layout import CgroupLayout, detect_driver

CGROUP2_MAGIC = 0x63677270
STATFS_BYTES = 256
DEFAULT_JIFFY_NS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoots:
    """Where the machine's file systems are; a container sees them elsewhere, a test brings its own."""

    cgroup: Path = Path("/sys/fs/cgroup")
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


def filesystem_magic(path: Path) -> int:
    """`f_type` of statfs(2), which the standard library does not expose.

    raises    OSError
    """
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(STATFS_BYTES)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(path))
    # f_type is the first field, one machine word
    return int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], "little") & 0xFFFFFFFF


def cgroup_version(root: Path) -> int:
    """2 if the file system at the cgroup root is cgroup2, else 1."""
    return 2 if filesystem_magic(root) == CGROUP2_MAGIC else 1


def cgroup_layout(root: Path, version: int) -> CgroupLayout:
    """Directory names by what exists below the cpu hierarchy; systemd names if nothing does.

    source    agent spec, 3.1 (1, 3); the kubelet's own arguments are asked by the states part
    """
    hierarchy = root / "cpu" if version == 1 else root
    names = [entry.name for entry in os.scandir(hierarchy) if entry.is_dir()] if hierarchy.is_dir() else []
    return CgroupLayout(detect_driver(names, None))


def jiffy_ns() -> int:
    """Length of a clock tick; 10 ms if the system does not say."""
    try:
        ticks = os.sysconf("SC_CLK_TCK")
    except (ValueError, OSError):
        return DEFAULT_JIFFY_NS
    return 1_000_000_000 // ticks if ticks > 0 else DEFAULT_JIFFY_NS
