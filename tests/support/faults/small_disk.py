"""A file system of a given size, which can be full or read-only. Only root can make one."""

import contextlib
import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")


class SmallDisk:
    """A tmpfs.

    Args:
        folder: Where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self, free_bytes: int) -> None:
        """Take the space with another file, except a rest."""
        found = os.statvfs(self.folder)
        size = found.f_bavail * found.f_frsize - free_bytes
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink()

    def read_only(self, value: bool) -> None:
        """Let it be written, or not. No file may be open for writing."""
        subprocess.run(["mount", "-o", f"remount,{'ro' if value else 'rw'}", str(self.folder)], check=True)


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Generator[SmallDisk]:
    """Mount a file system inside the block."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "koord-test", str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
