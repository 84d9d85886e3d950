"""The device file: written whole or not at all, and removed when discovery ends.

Source: runtime spec, 8.2.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from koord_devicediscovery.domain.xpu import Xpu, file_content

_MODE: Final = 0o644
_SIBLING: Final = "ic-device-tmp"
"""Folder that earlier versions of the reference left beside the file."""


def write_devices(path: Path | None, devices: Sequence[Xpu]) -> None:
    """Write the list of devices.

    The file is replaced by a rename in its folder. The temporary file begins with a dot, so the agent ignores it.

    Args:
        path: The file; None: standard output.
        devices: The devices.

    Raises:
        OSError: The file cannot be written. The old one is unchanged.
    """
    content = file_content(devices)
    if path is None:
        sys.stdout.write(content.decode())
        sys.stdout.flush()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_devices(path: Path | None) -> None:
    """Remove the file and the folder `ic-device-tmp` beside it. No-op for standard output.

    Raises:
        OSError: The file exists and cannot be removed.
    """
    if path is None:
        return
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    remove_leftovers(path)


def remove_leftovers(path: Path) -> None:
    """Remove the folder `ic-device-tmp` beside the file, as far as possible."""
    shutil.rmtree(path.parent / _SIBLING, ignore_errors=True)
