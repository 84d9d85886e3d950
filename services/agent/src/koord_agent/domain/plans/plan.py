"""A plan: one value that a QoS strategy proposes for one kernel file.

Strategies in `qos/` return plans. `executor` turns the winning ones into writes. Source: agent spec, 10.2.
"""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout


class Band(IntEnum):
    """Priority of a plan. Of several plans for one file, only those of the highest band count."""

    EMERGENCY = 100
    SUPPRESS = 80
    ISOLATION = 60
    TUNING = 40
    RECOVER = 20


class Merge(StrEnum):
    """Method with which the first pass loosens a value (agent spec, 9)."""

    NONE = "none"
    LARGER = "larger"
    QUOTA = "quota"
    CPUSET = "cpuset"


MERGED_BY_DEFAULT = {
    "cpu.cfs_quota_us": Merge.QUOTA,
    "cpuset.cpus": Merge.CPUSET,
    "memory.min": Merge.LARGER,
    "memory.low": Merge.LARGER,
    "memory.high": Merge.LARGER,
}


@dataclass(frozen=True, slots=True, order=True)
class CgroupFile:
    """One kernel file: a v1 file name in a directory relative to the root of a hierarchy.

    Attributes:
        device: MAJ:MIN for files with one line per device, else "".
    """

    directory: str
    resource: str
    device: str = ""

    @property
    def key(self) -> str:
        """Name of the file in events, caches and audit: `directory/resource`, with `|MAJ:MIN` for a device."""
        path = posixpath.join(self.directory, self.resource)
        return f"{path}|{self.device}" if self.device else path

    @property
    def level(self) -> int:
        """Depth of the directory. Parents have a smaller one than their children."""
        return self.directory.strip("/").count("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A value that a strategy proposes for one file; it expires ttl_ms after its creation.

    Attributes:
        reason: Reason of the write in the audit log.
        cause: Id of the contention that caused it; "" without one.
    """

    plugin: str
    band: Band
    file: CgroupFile
    value: str
    created_ms: int
    ttl_ms: int
    reason: str = ""
    cause: str = ""

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the strategy has not renewed the plan in time."""
        return now_ms - self.created_ms > self.ttl_ms


class OutsideTree(ValueError):
    """A plan is for a directory that the agent must not write."""


def require_inside(directory: str, trees: Iterable[str]) -> None:
    """Check that a directory is inside the given trees.

    Args:
        directory: Relative, normalised: no empty, `.` or `..` part.
        trees: Directories that may be written, with everything below.

    Raises:
        OutsideTree: It is outside. The message has directory and trees.
    """
    allowed = tuple(trees)
    parts = directory.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise OutsideTree(f"cgroup directory: must be a plain relative path, is {directory!r}")
    if not any(directory == tree or directory.startswith(tree + "/") for tree in allowed):
        raise OutsideTree(f"cgroup directory: must be inside {', '.join(allowed)}, is {directory!r}")


def writable_trees(layout: CgroupLayout, host_application_directories: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the directories that the agent may write: all pods, and configured host applications."""
    return (layout.root, *sorted(directory for directory in host_application_directories if directory))
