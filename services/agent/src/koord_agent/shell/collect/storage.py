"""The disks of this machine, from lsblk, vgs, lvs, findmnt and sysfs.

The commands run in a thread of their own, so a disk that hangs delays only the next look-up.

Source: agent spec, 6.11.
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from koord_agent.domain.kernel.storage_info import KUBELET_DIR, StorageInfo, parse_storage

REFRESH_MS = 60_000
COMMAND_SECONDS = 5
COMMANDS: Mapping[str, Sequence[str]] = {
    "lsblk": ("lsblk", "-P", "-o", "NAME,TYPE,MAJ:MIN"),
    "vgs": ("vgs", "--readonly", "--noheadings", "--options", "vg_name,pv_count,pv_name"),
    "lvs": ("lvs", "--readonly", "--noheadings", "--options", "lv_name,vg_name"),
    "findmnt": ("findmnt", "-P", "-o", "TARGET,SOURCE"),
}


def output_of(command: Sequence[str]) -> str:
    """Empty if the command does not exist, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def in_thread(work: Callable[[], None]) -> None:
    """A daemon thread, which is not waited for."""
    Thread(target=work, name="storage", daemon=True).start()


@dataclass(slots=True)
class Looks:
    """Numbers of successful and failed look-ups of the machine's disks, for the metrics."""

    succeeded: int = 0
    failed: int = 0

    def count(self, *, succeeded: bool) -> None:
        if succeeded:
            self.succeeded += 1
        else:
            self.failed += 1


class Storage:
    """The disks of one machine, looked up with machine tools in a thread.

    Args:
        block_devices: Folder `class/block` of sysfs.
        run: Runs a command and returns its output; "" if it failed.
        start: Starts a function without waiting for it.
        refresh_ms: Milliseconds after which the disks are looked up again.
    """

    def __init__(
        self,
        block_devices: Path,
        kubelet: Path = Path(KUBELET_DIR),
        *,
        run: Callable[[Sequence[str]], str] = output_of,
        start: Callable[[Callable[[], None]], None] = in_thread,
        refresh_ms: int = REFRESH_MS,
    ) -> None:
        self._block_devices = block_devices
        self._kubelet = kubelet
        self._run = run
        self._start = start
        self._refresh_ms = refresh_ms
        self._info: StorageInfo | None = None
        self._asked_ms: int | None = None
        self._is_looking = False
        self.looks = Looks()

    def known(self, now_ms: int) -> StorageInfo | None:
        """The disks that the last look-up found; None until it has ended. A new look-up begins if one is due."""
        is_fresh = self._asked_ms is not None and 0 <= now_ms - self._asked_ms < self._refresh_ms
        if not is_fresh and not self._is_looking:
            self._asked_ms, self._is_looking = now_ms, True
            try:
                self._start(self._look)
            except RuntimeError:  # the machine has no room for another thread; the next look-up tries again
                self._is_looking = False
                self.looks.count(succeeded=False)
        return self._info

    def _look(self) -> None:
        try:
            texts = {name: self._run(command) for name, command in COMMANDS.items()}
            self._info = parse_storage(**texts, parents=self._parents(), kubelet_dir=str(self._kubelet))
        except Exception:
            self.looks.count(succeeded=False)
            raise
        else:
            self.looks.count(succeeded=bool(texts["lsblk"]))
        finally:
            self._is_looking = False

    def _parents(self) -> dict[str, str]:
        found: dict[str, str] = {}
        try:
            for entry in self._block_devices.iterdir():
                if (entry / "partition").exists():
                    found[entry.name] = entry.resolve().parent.name
        except OSError:
            return found
        return found
