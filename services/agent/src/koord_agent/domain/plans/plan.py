"""A plan: one value that a QoS strategy proposes for one kernel file.

Strategies in `qos/` return plans. `arbiter` picks the winning ones, and `executor` turns them into writes. Source:
agent spec, 10.2.
"""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from koord_agent.domain.kernel.cfs_bandwidth import BURST, QUOTA
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout


class Band(IntEnum):
    """Priority of a plan. Of several plans for one file, only those with the highest priority count.

    From high to low: emergency, suppress, isolation, tuning, recover.
    """

    EMERGENCY = 100
    SUPPRESS = 80
    ISOLATION = 60
    TUNING = 40
    RECOVER = 20


class Merge(StrEnum):
    """Rule by which the first pass of a write loosens a value; the second pass sets the exact value (agent spec, 9).

    NONE: not at all. LARGER: the larger of old and new number. QUOTA: the larger quota. CPUSET: the union of both CPU
    lists.
    """

    NONE = "none"
    LARGER = "larger"
    QUOTA = "quota"
    CPUSET = "cpuset"


MERGED_BY_DEFAULT = {
    QUOTA: Merge.QUOTA,
    BURST: Merge.LARGER,
    "cpuset.cpus": Merge.CPUSET,
    "memory.min": Merge.LARGER,
    "memory.low": Merge.LARGER,
    "memory.high": Merge.LARGER,
}


class CgroupFile(NamedTuple):
    """One kernel file, by its name on cgroup v1."""

    directory: str  # Directory, relative to the root of a hierarchy
    resource: str  # Name of the file on cgroup v1
    device: str = ""  # MAJ:MIN for files with one line per device, else ""

    @property
    def key(self) -> str:
        """Name of the file in events, caches and audit: `directory/resource`, with `|MAJ:MIN` for a device."""
        path = posixpath.join(self.directory, self.resource)
        return f"{path}|{self.device}" if self.device else path

    @property
    def level(self) -> int:
        """Depth of the directory; a parent has a smaller number than its children."""
        return self.directory.strip("/").count("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A value that a QoS strategy proposes for one file, with a limited lifetime."""

    plugin: str
    band: Band
    file: CgroupFile
    value: str  # The value in the style of cgroup v1
    created_ms: int
    ttl_ms: int  # Lifetime in milliseconds. A strategy that still wants the value renews the plan.
    reason: str = ""
    cause: str = ""  # Id of the contention that caused it; "" without one

    def is_expired(self, now_ms: int) -> bool:
        return now_ms - self.created_ms > self.ttl_ms


class OutsideTree(ValueError):
    """Raised for a plan about a directory that the agent must not write."""


def require_inside(directory: str, trees: Iterable[str]) -> None:
    """Check that a directory is one of `trees` or below one.

    It is relative and normalised: no empty, `.` or `..` part.

    Raises:
        OutsideTree: The directory is in no tree, or is not a plain relative path. The message has the directory.
    """
    allowed = tuple(trees)
    parts = directory.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise OutsideTree(f"cgroup directory: must be a plain relative path, is {directory!r}")
    if not any(directory == tree or directory.startswith(tree + "/") for tree in allowed):
        raise OutsideTree(f"cgroup directory: must be inside {', '.join(allowed)}, is {directory!r}")


def writable_trees(layout: CgroupLayout, host_application_directories: Iterable[str] = ()) -> tuple[str, ...]:
    """The root of all pods, and the directories of host applications."""
    return (layout.root, *sorted(directory for directory in host_application_directories if directory))
