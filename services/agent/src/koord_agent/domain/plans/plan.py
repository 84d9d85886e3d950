"""What a QoS strategy hands over instead of writing: one wanted value for one kernel file.

Strategies in `qos/` return plans. `executor` turns the winning ones into writes. Source: agent spec, 10.2.
"""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout


class Band(IntEnum):
    """Precedence of plans. Of several plans for one file only the highest band present counts."""

    EMERGENCY = 100
    SUPPRESS = 80
    ISOLATION = 60
    TUNING = 40
    RECOVER = 20


class Merge(StrEnum):
    """How pass 1 of a leveled write loosens a value first (agent spec, 9)."""

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
    """One knob: a resource (v1 name) of a directory (relative to the hierarchy root).

    Attributes:
        device: MAJ:MIN for files that hold one line per device, else "".
    """

    directory: str
    resource: str
    device: str = ""

    @property
    def key(self) -> str:
        """`directory/resource`, with `|MAJ:MIN` for a device: how events, caches and audit name the knob."""
        path = posixpath.join(self.directory, self.resource)
        return f"{path}|{self.device}" if self.device else path

    @property
    def level(self) -> int:
        """Depth of the directory: parents come before children."""
        return self.directory.strip("/").count("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A strategy's wish for one knob, alive for ttl_ms after its creation.

    Attributes:
        reason: The audit reason of the write.
        cause: Id of the fact that led to it (a contention), "" without one.
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
    """A plan for a directory that the agent must not touch."""


def require_inside(directory: str, trees: Iterable[str]) -> None:
    """Refuse directories outside the given trees.

    Args:
        directory: Relative, normalised: no empty, `.` or `..` part.
        trees: Directories that may be written, with everything below.

    Raises:
        OutsideTree: The message names directory and trees.
    """
    allowed = tuple(trees)
    parts = directory.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise OutsideTree(f"cgroup directory: must be a plain relative path, is {directory!r}")
    if not any(directory == tree or directory.startswith(tree + "/") for tree in allowed):
        raise OutsideTree(f"cgroup directory: must be inside {', '.join(allowed)}, is {directory!r}")


def writable_trees(layout: CgroupLayout, host_application_directories: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the trees that the agent may write: all pods, and the directories of configured host applications."""
    return (layout.root, *sorted(directory for directory in host_application_directories if directory))
