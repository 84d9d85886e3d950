"""The disks of this machine, from sysfs and the mounts of its first process. No program of the machine is run.

The files are read in a thread of its own, so a disk that hangs delays only the next look-up.

Source: agent spec, 6.11.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from koord_agent.domain.kernel.storage_info import KUBELET_DIR, BlockDevice, StorageInfo, parse_mounts, storage_of
from koord_agent.shell.host.kernel_files import read_kernel_file

REFRESH_MS = 60_000


def in_thread(work: Callable[[], None]) -> None:
    """A daemon thread, which is not waited for."""
    Thread(target=work, name="storage", daemon=True).start()


def read_block_devices(folder: Path) -> list[BlockDevice]:
    """`folder` is `class/block` of sysfs. Empty if it does not exist; devices that vanish are left out."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [device for entry in entries if (device := _block_device(entry)) is not None]


def _block_device(entry: Path) -> BlockDevice | None:
    def text(name: str) -> str:
        return (read_kernel_file(str(entry / name)) or "").strip()

    number = text("dev")
    if not number:
        return None
    try:
        slaves = tuple(sorted(slave.name for slave in (entry / "slaves").iterdir()))
    except OSError:  # a partition has none
        slaves = ()
    parent = entry.resolve().parent.name if (entry / "partition").exists() else ""
    return BlockDevice(
        name=entry.name,
        number=number,
        parent=parent,
        slaves=slaves,
        mapped_name=text("dm/name"),
        mapped_uuid=text("dm/uuid"),
    )


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
    """The disks of one machine, looked up in a thread.

    Args:
        block_devices: Folder `class/block` of sysfs.
        mounts: File with the mounts of the machine, `/proc/1/mountinfo`.
        start: Starts a function without waiting for it.
        refresh_ms: Milliseconds after which the disks are looked up again.
    """

    def __init__(
        self,
        block_devices: Path,
        mounts: Path,
        kubelet: Path = Path(KUBELET_DIR),
        *,
        start: Callable[[Callable[[], None]], None] = in_thread,
        refresh_ms: int = REFRESH_MS,
    ) -> None:
        self._block_devices = block_devices
        self._mounts = mounts
        self._kubelet = kubelet
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
            devices = read_block_devices(self._block_devices)
            mounts = parse_mounts(read_kernel_file(str(self._mounts)) or "", devices)
            self._info = storage_of(devices, mounts, str(self._kubelet))
        except Exception:
            self.looks.count(succeeded=False)
            raise
        else:
            self.looks.count(succeeded=bool(devices))
        finally:
            self._is_looking = False
