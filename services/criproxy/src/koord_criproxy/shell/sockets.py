"""The unix socket that the proxy serves: only its owner and group may use it.

Source: runtime spec, 5.1.
"""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import Final

SOCKET_MODE: Final = 0o660


@contextlib.contextmanager
def private_socket(path: Path) -> Generator[None]:
    """Make the folder of a socket, remove a stale socket, and give the one that the body makes its mode.

    Args:
        path: Path of the socket.

    Raises:
        OSError: The folder cannot be made, or the stale socket cannot be removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    path.unlink(missing_ok=True)
    umask = os.umask(0o777 & ~SOCKET_MODE)
    try:
        yield
    finally:
        os.umask(umask)
    path.chmod(SOCKET_MODE)
