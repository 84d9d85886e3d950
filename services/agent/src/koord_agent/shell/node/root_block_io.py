"""Latency goals and cost model of block IO for the whole machine: files of the hierarchy's root.

What to write comes from `domain.hooks.blkio`. cgroup v1 with the kernel's extensions only. Source: agent spec, 16.
"""

from collections.abc import Callable, Mapping
from typing import Any

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.blkio import ROOT_FILES, blocks_of, disk_of, io_plan, settings_of
from koord_agent.domain.kernel.cgroup_files import is_equal
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.plans.plan import CgroupFile


class RootBlockIo:
    """Writes the latency goals and cost models of block IO for one whole machine."""

    def __init__(
        self,
        *,
        read: Callable[[CgroupFile], str | None],
        write: Callable[[str, str], None],
        disks: Callable[[int], StorageInfo | None],
    ) -> None:
        """Create the writer for the root of the blkio hierarchy.

        Args:
            read: Returns the text of a file; None if this kernel does not have it.
            write: Writes a line to a file of the root. It may raise OSError.
            disks: Returns the disks at a time in milliseconds; None while they are unknown.
        """
        self._read = read
        self._write = write
        self._disks = disks

    def apply(self, section: Mapping[str, Any], now_ms: int) -> list[str]:
        """Write the lines that differ from the configured block-IO goals.

        Args:
            section: `resourceQOSStrategy` of the NodeSLO as JSON.
            now_ms: Time in milliseconds.

        Returns:
            Errors, one sentence each.
        """
        settings = settings_of(section, "cgroupRoot")
        current = {name: text for name in ROOT_FILES if (text := self._read(CgroupFile("", name))) is not None}
        if not current:
            return []
        disks = self._disks(now_ms) or StorageInfo()
        try:
            blocks = blocks_of(settings)
        except InvalidInput as error:
            return [f"NodeSLO: {error}"]
        lines = io_plan(
            blocks,
            is_root=True,
            enable=bool(settings.get("enable")),
            disk_of=lambda block: disk_of(disks, block, ""),
            current=current,
        )
        problems: list[str] = []
        for line in lines or ():
            if line.file in current and not is_equal(line.file, current[line.file], line.value, 1):
                try:
                    self._write(line.file, line.value)
                except OSError as error:
                    problems.append(f"{line.file}: {line.value!r} not written: {error.strerror}")
        return problems
