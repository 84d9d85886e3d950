"""The unix sockets of the proxy: the one that it serves is for its owner and group only, and both must answer.

Source: runtime spec, 5.1, 5.8.
"""

import contextlib
import os
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Final

SOCKET_MODE: Final = 0o660


@contextlib.contextmanager
def private_socket(path: Path) -> Generator[None]:
    """Context manager in whose body a server creates a unix socket that only its owner and group may use.

    Before the body, create the folder and remove a stale socket. After it, set the permissions of the new socket.

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


def refusal(path: Path) -> str | None:
    """Return the reason why a unix socket does not accept connections now; None if it does. It never waits.

    A server that has too many new connections to accept counts as one that accepts them.

    Args:
        path: Path of the socket.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except BlockingIOError:
            return None
        except OSError as error:
            return f"{path}: {error.strerror or error}"
    return None
