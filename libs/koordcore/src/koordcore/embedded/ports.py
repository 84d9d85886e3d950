"""Choose free TCP ports on loopback for embedded servers.

A server that was killed and is restarted needs its port again, so no other program may take it meanwhile:

- The ports lie below the range from which the kernel takes ports for outgoing connections.
- They are divided into blocks of 200. A process uses only ports of blocks that it has claimed, and a claim holds until
  the process ends. So two processes that use this module never choose the same port.
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
BLOCK_PORTS = 200  # Number of ports in a block
# Largest number of blocks that one process claims. When it has given out all their ports, it begins again with the
# first one.
MOST_BLOCKS = 8

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
    """Return `count` different free loopback ports. As long as this process runs, this function returns other ports in
    other processes. In this process, it returns a port again only after 1,600 others (`MOST_BLOCKS` blocks).

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
    """Return a port of this process that was not given out yet, or was given out the longest ago. If all ports were
    given out and the process has fewer than `MOST_BLOCKS` blocks, claim one more block first.
    """
    if not _unused:
        _unused.extend(_claim_block() if len(_claims) < MOST_BLOCKS else ())
    if not _unused:
        _unused.extend(_given_out)
        _given_out.clear()
    _given_out.append(_unused[0])
    return _unused.pop(0)


def _claim_block() -> list[int]:
    """Claim a block that no process has claimed, and return its ports in random order.

    To claim a block, the process binds a Unix socket with the name of the block. The kernel removes the socket when the
    process ends. On other systems than Linux, such names do not exist, and on Linux all blocks may be claimed. Then a
    process without a block gets all ports, and may choose the same port as another process. A process that has a block
    gets an empty list.
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
    """Check that a loopback port is free before a server is started on it. `owner`: name of the server, for the error.

    Raises:
        PortInUseError: The port is in use.
    """
    if not is_port_free(port):
        raise PortInUseError(owner=owner, port=port)
