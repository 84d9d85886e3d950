"""Protocol between the CRI proxy and the agent of a node: the agent appends the proxy's facts to the log.

So a proxy without a key of the log needs none. The calls are unary gRPC on a unix socket, and their messages are JSON.

| call | request | answer |
|---|---|---|
| Append | `NewEvent` | `AppendAnswer` |
| LastOf | empty | `LastAnswer`: about the aggregate of the node's proxy |
"""

from pathlib import Path
from typing import Final

import msgspec

from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import AppendOutcome

SERVICE: Final = "koordstream.ProxyFacts"
APPEND: Final = "Append"
LAST_OF: Final = "LastOf"
KIND: Final = "criproxy"  # Kind of the only aggregate whose facts can be appended
LARGEST_FACT: Final = 1024 * 1024  # Largest request in bytes
# Socket of the agent in an installation on Kubernetes.
HOST_SOCKET: Final = Path("/var/run/koordlet/criproxy-facts.sock")


class AppendAnswer(msgspec.Struct, frozen=True):
    """Outcome of the append of one fact. If it is `Appended`, the proxy may forget the fact."""

    outcome: AppendOutcome


class LastAnswer(msgspec.Struct, frozen=True):
    """Newest fact of the node's proxy; None if the log has none. The answer may be old."""

    event: StoredEvent | None
