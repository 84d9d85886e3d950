"""Which disks this machine has, from lsblk, vgs, lvs, findmnt and sysfs, looked up beside the cycles.

The commands run in a thread of their own: a disk that hangs holds up nothing but the newest news about disks.

Source: agent spec, 6.11.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from koord_agent.domain.kernel.storage_info import StorageInfo, parse_storage

REFRESH_MS = 60_000
COMMAND_SECONDS = 5
COMMANDS: Mapping[str, Sequence[str]] = {
    "lsblk": ("lsblk", "-P", "-o", "NAME,TYPE,MAJ:MIN"),
    "vgs": ("vgs", "--readonly", "--noheadings", "--options", "vg_name,pv_count,pv_name"),
    "lvs": ("lvs", "--readonly", "--noheadings", "--options", "lv_name,vg_name"),
    "findmnt": ("findmnt", "-P", "-o", "TARGET,SOURCE"),
}


def output_of(command: Sequence[str]) -> str:
    """Return what a command of the host prints. "" if it is not there, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def in_thread(work: Callable[[], None]) -> None:
    """Do it beside whatever goes on. It is left behind when the process ends."""
    Thread(target=work, name="storage", daemon=True).start()


@dataclass(slots=True)
class Looks:
    """How many looks at something of the machine went well, and how many did not."""

    succeeded: int = 0
    failed: int = 0

    def count(self, *, succeeded: bool) -> None:
        """Count one look."""
        if succeeded:
            self.succeeded += 1
        else:
            self.failed += 1


class Storage:
    """The disks of one machine as they were looked up last. None before the first look-up has ended.

    Attributes:
        run: Output of a command. "" means it failed or is not there.
        start: Does the work of a look-up.
        refresh_ms: Between look-ups.
    """

    def __init__(
        self,
        block_devices: Path,
        *,
        run: Callable[[Sequence[str]], str] = output_of,
        start: Callable[[Callable[[], None]], None] = in_thread,
        refresh_ms: int = REFRESH_MS,
    ) -> None:
        self._block_devices = block_devices
        self._run = run
        self._start = start
        self._refresh_ms = refresh_ms
        self._info: StorageInfo | None = None
        self._asked_ms: int | None = None
        self._is_looking = False
        self.looks = Looks()

    def known(self, now_ms: int) -> StorageInfo | None:
        """Return what is known. Begins a new look-up when it is time. None means nothing yet."""
        is_fresh = self._asked_ms is not None and 0 <= now_ms - self._asked_ms < self._refresh_ms
        if not is_fresh and not self._is_looking:
            self._asked_ms, self._is_looking = now_ms, True
            self._start(self._look)
        return self._info

    def _look(self) -> None:
        try:
            texts = {name: self._run(command) for name, command in COMMANDS.items()}
            self._info = parse_storage(**texts, parents=self._parents())
            self.looks.count(succeeded=bool(texts["lsblk"]))
        finally:
            self._is_looking = False

    def _parents(self) -> dict[str, str]:
        """Return the partition -> disk, by where the kernel keeps the one below the other."""
        found: dict[str, str] = {}
        try:
            for entry in self._block_devices.iterdir():
                if (entry / "partition").exists():
                    found[entry.name] = entry.resolve().parent.name
        except OSError:
            return found
        return found
