"""Compare the copies of a stream that the servers of a cluster hold, message by message.

A consumer with one replica runs on one of these servers and reads the copy of this server. The server chooses where, so
consumers are created until each copy was read.

Source: event-bus spec, 9.2: flipped or truncated bytes on a minority of servers lose committed data unnoticed.
"""

import asyncio
import hashlib
from typing import Final

import msgspec
from nats.nuid import NUID

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.read.completeness import Completeness, missing_text
from koordcore.bus.read.feed import DEFAULTS, Feed
from koordcore.bus.read.stream_reader import StreamReader, patient_api
from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import LogHead

# Number of positions whose messages have one digest. A difference is located up to so many positions.
BLOCK: Final = 1000
_BATCH: Final = 500
# Consumers that are created for each copy. With five copies, one is missed in less than one of 100 million checks.
_ATTEMPTS_PER_COPY: Final = 30
SILENT_SECONDS: Final = 10.0  # Time after which a copy that sends no further message counts as incomplete
_RETRY_SECONDS: Final = 0.2  # Pause after a consumer that failed, for example because its server has just started
_SECOND: Final = 1_000_000_000


class CopyDigest(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of a stream on one server."""

    server: str  # Name of the server
    messages: int  # Number of its messages
    # Positions that it lacks, ascending, without those that a restore has left out. A copy that sends nothing for a
    # while before the last position lacks the rest.
    missing: list[range] = []
    # Number of a block of `BLOCK` positions -> digest of its messages: positions, subjects, headers, bodies.
    blocks: dict[int, str]


class _Peer(msgspec.Struct):
    """A server that holds a copy, as the JetStream API names it."""

    name: str


class _Cluster(msgspec.Struct):
    leader: str = ""
    replicas: list[_Peer] = []


class _Clustered(msgspec.Struct):
    cluster: _Cluster | None = None


def difference(copies: list[CopyDigest]) -> str:
    """Return the first difference between the copies as a sentence; empty if they are equal. If most servers have equal
    copies at this place, the sentence names one of these servers, so that the wrong copy is known. `copies`: at least
    one copy.
    """
    for block in sorted({block for copy in copies for block in copy.blocks}):
        servers: dict[str | None, list[str]] = {}
        for copy in copies:
            servers.setdefault(copy.blocks.get(block), []).append(copy.server)
        common, *others = sorted(servers.values(), key=len, reverse=True)
        if not others:
            continue
        positions = f"{block * BLOCK} to {(block + 1) * BLOCK - 1}"
        found = f"{common[0]} and {others[0][0]} differ in the positions {positions}"
        is_majority = 2 * len(common) > len(copies)
        return f"{found}; {len(common)} of {len(copies)} servers have the copy of {common[0]}" if is_majority else found
    return ""


def losses(copies: list[CopyDigest]) -> str:
    """Return which facts the first incomplete copy lacks, as a sentence; empty if every copy has all facts."""
    for copy in copies:
        if copy.missing:
            return f"the copy of server {copy.server or '-'}: {missing_text(copy.missing)}"
    return ""


async def read_copies(
    connection: BusConnection, stream: str, prefix: str, *, silent_seconds: float = SILENT_SECONDS
) -> list[CopyDigest]:
    """Read the copy of each server up to the last message that the leader has now, in order of the servers' names. A
    copy that could not be read, because its server did not get a consumer in 30 attempts, has 0 messages and lacks all.

    Args:
        connection: Connection of a user that may follow the stream.
        silent_seconds: Real seconds after which a copy that sends no further message counts as incomplete.

    Raises:
        ApiError: The server refused a consumer.
        NoAnswer: No server answers.
    """
    head = await StreamReader(connection, stream, prefix).head()
    servers = await _servers(connection, stream)
    copies: dict[str, CopyDigest] = {}
    for _ in range(_ATTEMPTS_PER_COPY * len(servers)):
        if len(copies) == len(servers):
            break
        feed = Feed(connection, stream, prefix, head.first_seq - 1, DEFAULTS)
        await feed.subscribe()
        try:
            found, name = await _create_consumer(connection, stream, head.first_seq)
            server = found if len(servers) > 1 else servers[0]
            if server in copies:
                await patient_api(connection, f"$JS.API.CONSUMER.DELETE.{stream}.{name}", b"")
                continue
            feed.open(name)
            copy = await _digest(feed, server, head, silent_seconds)
        finally:
            await feed.close()
        if copy is None:
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            copies[server] = copy
    lost = [] if head.is_empty else [range(head.first_seq, head.last_seq + 1)]
    return [copies.get(name, CopyDigest(server=name, messages=0, missing=lost, blocks={})) for name in servers]


async def _servers(connection: BusConnection, stream: str) -> list[str]:
    """Return the names of the servers with a copy; the name of a server without a cluster may be empty."""
    info = msgspec.json.decode(await patient_api(connection, f"$JS.API.STREAM.INFO.{stream}", b""), type=_Clustered)
    if info.cluster is None or not info.cluster.replicas:
        return [_leader(info)]
    return sorted([info.cluster.leader, *(peer.name for peer in info.cluster.replicas)])


async def _create_consumer(connection: BusConnection, stream: str, begin: int) -> tuple[str, str]:
    """Create a consumer with one replica, and return the name of its server and its own."""
    name = f"c-{bytes(NUID().next()).decode()}"
    config = {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": begin,
        "inactive_threshold": int(DEFAULTS.inactive_seconds * _SECOND),
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "max_waiting": 64,
    }
    asked = msgspec.json.encode({"stream_name": stream, "config": config, "action": "create"})
    answer = await patient_api(connection, f"$JS.API.CONSUMER.CREATE.{stream}.{name}", asked)
    return _leader(msgspec.json.decode(answer, type=_Clustered)), name


def _leader(answer: _Clustered) -> str:
    return "" if answer.cluster is None else answer.cluster.leader


async def _digest(feed: Feed, server: str, head: LogHead, silent_seconds: float) -> CopyDigest | None:
    """Read a copy up to the end of the stream. A copy that sends nothing for a while ends there, although the server
    sends heartbeats: it cannot read the next message. Return None if the consumer failed, because then the rest of the
    copy is unknown.
    """
    blocks: dict[int, str] = {}
    messages = position = block = 0
    hasher, found, last = hashlib.sha256(), Completeness(head.first_seq - 1), head.last_seq
    while position < last:
        try:
            async with asyncio.timeout(silent_seconds):
                events = await feed.next_batch(_BATCH)
        except TimeoutError:
            break
        if events is None:
            return None
        for event in events:
            position = event.seq
            if position > last:
                break
            messages += 1
            found.see(event)
            if position // BLOCK != block:
                blocks[block] = hasher.hexdigest()
                block, hasher = position // BLOCK, hashlib.sha256()
            hasher.update(_content(event))
        blocks[block] = hasher.hexdigest()
    found.end(last)
    return CopyDigest(server=server, messages=messages, missing=found.missing, blocks=blocks)


def _content(event: StoredEvent) -> bytes:
    return msgspec.msgpack.encode((event.seq, str(event.ref), sorted(event.headers.items()), event.body))
