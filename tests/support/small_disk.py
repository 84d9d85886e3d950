"""A disk of a few megabytes, which tests fill and enlarge: a file system in memory. Only root may mount one."""

import contextlib
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

MIB: Final = 1 << 20
_BALLAST: Final = "ballast"


class SmallDisk:
    """A mounted file system."""

    def __init__(self, path: Path) -> None:
        self.path = path  # Its folder

    @property
    def free(self) -> int:
        """Free bytes."""
        return shutil.disk_usage(self.path).free

    def fill(self) -> None:
        """Leave no free byte."""
        with contextlib.suppress(OSError), (self.path / _BALLAST).open("ab", buffering=0) as ballast:
            while True:
                ballast.write(b"x" * min(MIB, self.free or 1))

    def empty(self) -> None:
        """Remove what `fill` has written."""
        (self.path / _BALLAST).unlink()

    def resize(self, mebibytes: int) -> None:
        """Change its size."""
        _mount("-o", f"remount,size={mebibytes}m", str(self.path))


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Generator[SmallDisk]:
    """Mount a disk on a new folder, and remove it afterwards. Skip the test where this user may not mount."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    try:
        _mount("-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system in memory")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)
