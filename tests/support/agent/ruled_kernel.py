"""A cgroup tree that refuses what a kernel refuses, and that can be told to fail or to kill its writer."""

import posixpath
from collections.abc import Callable

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.host import Vanished, WriteFailed
from koordcore.values.cpuset import parse_cpuset


class Killed(BaseException):
    """kill -9 of the agent in the middle of a write."""


class RuledKernel:
    """Files of cgroup v1 with the ordering rules of cpuset and cpu: a child never has more than its parent.

    before_write   called with every write and its number before it takes effect; may raise
    after_write    likewise afterwards
    """

    def __init__(self, files: dict[CgroupFile, str]) -> None:
        self.files = dict(files)
        self.layout = CgroupLayout(Driver.CGROUPFS)
        self.cgroup_version = 1
        self.writes: list[tuple[CgroupFile, str]] = []
        self.broken_rules: list[str] = []
        self.before_write: Callable[[CgroupFile, int], None] = _nothing
        self.after_write: Callable[[CgroupFile, int], None] = _nothing

    def read(self, file: CgroupFile) -> str | None:
        """Text of a file; None = not there."""
        return self.files.get(file)

    def write(self, file: CgroupFile, value: str) -> None:
        """Give a file a value, by the kernel's rules."""
        number = len(self.writes)
        self.writes.append((file, value))
        self.before_write(file, number)
        if file not in self.files:
            raise Vanished(f"{file.key}: not there")
        broken = self._broken(file, value)
        if broken:
            self.broken_rules.append(broken)
            raise WriteFailed(f"{file.key}: {value!r} not written: {broken}")
        self.files[file] = value
        self.after_write(file, number)

    def _broken(self, file: CgroupFile, value: str) -> str:
        parent = self.files.get(CgroupFile(posixpath.dirname(file.directory), file.resource))
        children = [
            text
            for other, text in self.files.items()
            if other.resource == file.resource and posixpath.dirname(other.directory) == file.directory
        ]
        if file.resource == "cpuset.cpus":
            if parent is not None and not parse_cpuset(value) <= parse_cpuset(parent):
                return "Permission denied"
            if any(not parse_cpuset(child) <= parse_cpuset(value) for child in children):
                return "Device or resource busy"
        elif file.resource == "cpu.cfs_quota_us":
            if parent is not None and _quota(value) > _quota(parent) and value != "-1":
                return "Invalid argument"
            if any(_quota(child) > _quota(value) and child != "-1" for child in children):
                return "Invalid argument"
        return ""


def _quota(text: str) -> float:
    return float("inf") if int(text) < 0 else int(text)


def _nothing(_file: CgroupFile, _number: int) -> None:
    return
