"""Choose free TCP ports on loopback for embedded servers.

Ports are chosen below the kernel's ephemeral range. So no outgoing connection of another program can take the port of a
server that was killed and is restarted.
"""

import random
import socket
import sys

from koordcore.embedded.errors import EmbeddedError, PortInUseError

LOOPBACK = "127.0.0.1"
# Linux hands out 32768..60999 to outgoing connections, macOS 49152..65535.
FIRST_PORT = 15_000
LAST_PORT = 32_000
ATTEMPTS = 500
BLOCK_PORTS = 200
MOST_BLOCKS = 8
"""Largest number of blocks of one process. After that, it uses its blocks again, beginning with the first port."""

_claims: list[socket.socket] = []
_unused: list[int] = []
_given_out: list[int] = []


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

    Other processes that use this function get other ports as long as this process runs. So none of them takes the port
    of a server that is being restarted. The same port is only returned again after 1,600 others.

    Raises:
        EmbeddedError: No free port was found in 500 attempts.
    """
    found: list[int] = []
    for _ in range(ATTEMPTS):
        if len(found) == count:
            break
        port = _next_port()
        if port not in found and is_port_free(port):
            found.append(port)
    if len(found) < count:
        raise EmbeddedError(f"no {count} free ports between {FIRST_PORT} and {LAST_PORT} on {LOOPBACK}")
    return tuple(found)


def _next_port() -> int:
    """Return the next port of the blocks of this process. If all were given out, claim a block or begin again."""
    if not _unused:
        _unused.extend(_claim_block() if len(_claims) < MOST_BLOCKS else ())
    if not _unused:
        _unused.extend(_given_out)
        _given_out.clear()
    _given_out.append(_unused[0])
    return _unused.pop(0)


def _claim_block() -> list[int]:
    """Return the ports of a block that no other process has claimed, in random order.

    A claim is an abstract socket, which the kernel removes with the process. Without such sockets (on other systems
    than Linux), or if all blocks are claimed, a block is returned without a claim, if this process has none yet.
    """
    blocks = [range(first, first + BLOCK_PORTS) for first in range(FIRST_PORT, LAST_PORT, BLOCK_PORTS)]
    random.shuffle(blocks)
    for block in blocks if sys.platform == "linux" else ():
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0koordstream-ports-{block.start}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return random.sample(block, BLOCK_PORTS)
    return [] if _given_out else [port for block in blocks for port in block]


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
