"""Choose free TCP ports on loopback for embedded servers.

Ports are chosen below the kernel's ephemeral range. So no outgoing connection of another program can take the port of a
server that was killed and is restarted.
"""

import secrets
import socket

from koordcore.embedded.errors import EmbeddedError, PortInUseError

LOOPBACK = "127.0.0.1"
# Linux hands out 32768..60999 to outgoing connections, macOS 49152..65535.
FIRST_PORT = 15_000
LAST_PORT = 32_000
ATTEMPTS = 500

_given_out: set[int] = set()


def is_port_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now. Connections in TIME_WAIT do not count as use."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> tuple[int, ...]:
    """Return `count` different free loopback ports.

    A port is returned only once in a process, so concurrent callers never share one.

    Raises:
        EmbeddedError: No free port was found in 500 attempts.
    """
    found: list[int] = []
    for _ in range(ATTEMPTS):
        if len(found) == count:
            break
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        if port not in _given_out and is_port_free(port):
            _given_out.add(port)
            found.append(port)
    if len(found) < count:
        raise EmbeddedError(f"no {count} free ports between {FIRST_PORT} and {LAST_PORT} on {LOOPBACK}")
    return tuple(found)


def require_free_port(port: int, *, owner: str) -> None:
    """Check that a loopback port is free before a server is started on it.

    Args:
        port: The port.
        owner: Name of the server, for the error.

    Raises:
        PortInUseError: The port is in use.
    """
    if not is_port_free(port):
        raise PortInUseError(owner=owner, port=port)
