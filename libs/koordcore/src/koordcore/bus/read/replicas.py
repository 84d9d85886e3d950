"""Compare the copies of a stream that the servers of a cluster hold, message by message.

Any server with a copy may answer a direct get, and the answer does not name it. So each part of the stream is read so
often that a copy which differs is missed in less than one of a thousand cases. Only the copy of the leader has a name:
the leader alone answers `STREAM.MSG.GET`. No consumer is made (decision 0044).

Source: event-bus spec, 9.2: flipped or truncated bytes on a minority of servers lose committed data unnoticed.
"""

import asyncio
import hashlib
from typing import Final, NamedTuple

import msgspec

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.read.completeness import Completeness, missing_text
from koordcore.bus.read.direct import SILENT_SECONDS, Ask, DirectMessage, Part, ask_for
from koordcore.bus.read.stream_reader import StreamReader, patient_api
from koordcore.events.envelope import AggregateRef, StoredEvent

# Number of positions whose messages have one digest. A difference is located up to so many positions.
BLOCK: Final = 1000
# Reads of each part for each further server. With three copies, one that differs is missed in (2/3)^18 of the cases.
_READS_PER_COPY: Final = 9
_AT_ONCE: Final = 3  # Reads at the same time
_AGAIN_SECONDS: Final = 1.0  # Pause before a difference is looked at again: a server may only have been behind
_PATIENCE_SECONDS: Final = 30.0  # Time after which a read that is not answered is given up
_OF_THE_ANSWER: Final = frozenset(("Nats-Num-Pending", "Nats-Last-Sequence"))  # Headers about the answer


class CopyDigest(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of a stream on one server."""

    # Name of the server. If copies differ, it is only known of the leader. The others are "one of ...".
    server: str
    messages: int  # Number of its messages
    # Positions that it lacks, ascending, without those that a restore has left out.
    missing: list[range] = []
    # Number of a block of `BLOCK` positions -> digest of its messages: positions, subjects, headers, bodies.
    blocks: dict[int, str]


class _Peer(msgspec.Struct):
    """A server that holds a copy, as the JetStream API names it."""

    name: str
    current: bool = False  # Whether its copy is up to date
    offline: bool = False


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
    """Read the copies of all servers up to the last message that the leader has now.

    Args:
        connection: Connection of a user that may follow the stream.
        silent_seconds: Real seconds without a message after which a read is repeated.

    Raises:
        ApiError: The server refused to tell about the stream.
        NoAnswer: No server answers.
    """
    reader = StreamReader(connection, stream, prefix)
    head = await reader.head()
    servers, absent, leader = await _servers(connection, stream)
    chains = [_Chain(prefix, head.first_seq - 1) for _ in servers]
    names = servers
    reading = _Reading(connection, stream, len(servers), silent_seconds)
    position = head.first_seq
    while position <= head.last_seq:
        end = min(head.last_seq, (position // BLOCK + 1) * BLOCK - 1)
        answers = await reading.answers(position, end)
        shared = _shared(answers, len(servers))
        for chain, answer in zip(chains, shared, strict=True):
            chain.add(position // BLOCK, answer)
        if len(answers) > 1 and names is servers:
            names = await _named(reader, servers, leader, shared)
        position = shared[0].end + 1
    read = [chain.digest(name, head.last_seq) for chain, name in zip(chains, names, strict=True)]
    lost = [] if head.is_empty else [range(head.first_seq, head.last_seq + 1)]
    unread = [CopyDigest(server=name, messages=0, missing=lost, blocks={}) for name in absent]
    return sorted([*read, *unread], key=lambda copy: copy.server)


class _Answer(NamedTuple):
    """What a server has from the beginning of a part up to its end."""

    messages: list[DirectMessage]
    end: int  # Last position of the part
    digest: bytes


class _Reading:
    """Reads parts of one stream from servers that do not tell who they are."""

    def __init__(self, connection: BusConnection, stream: str, copies: int, silent_seconds: float) -> None:
        self._connection = connection
        self._stream = stream
        self._reads = max(1, _READS_PER_COPY * (copies - 1))
        self._silent_seconds = silent_seconds
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def answers(self, position: int, end: int) -> list[tuple[int, _Answer]]:
        """Return how often each different answer about a part came, the most frequent one first."""
        found = await self._read(position, end)
        if len(found) > 1:
            await asyncio.sleep(_AGAIN_SECONDS)
            found = await self._read(position, end)
        return found

    async def _read(self, position: int, end: int) -> list[tuple[int, _Answer]]:
        asked = Ask(position, end - position + 1)
        parts = await asyncio.gather(*(self._once(asked) for _ in range(self._reads)))
        # A part may end before its last position, because of its size. The most frequent end counts.
        ends = [part.messages[-1].seq if part.has_more and part.messages else end for part in parts]
        common = min(max(set(ends), key=ends.count), end)
        found: dict[bytes, tuple[int, _Answer]] = {}
        for part in parts:
            answer = _answer(part, common)
            found[answer.digest] = (found.get(answer.digest, (0, answer))[0] + 1, answer)
        return sorted(found.values(), key=lambda each: (each[0], len(each[1].messages)), reverse=True)

    async def _once(self, asked: Ask) -> Part:
        async with self._gate:
            return await self._connection.patiently(
                lambda: ask_for(self._connection, self._stream, asked, silent_seconds=self._silent_seconds),
                self._stream,
                deadline=_PATIENCE_SECONDS,
            )


class _Chain:
    """Collects what one copy has."""

    def __init__(self, prefix: str, after: int) -> None:
        self._prefix = prefix
        self._found = Completeness(after)
        self._messages = 0
        self._blocks: dict[int, str] = {}
        self._hasher, self._block = hashlib.sha256(), -1

    def add(self, block: int, answer: _Answer) -> None:
        if block != self._block:
            self._hasher, self._block = hashlib.sha256(), block
        for message in answer.messages:
            kind, _, id_ = message.headers["Nats-Subject"].removeprefix(self._prefix).partition(".")
            self._found.see(StoredEvent(message.seq, AggregateRef(kind, id_), message.headers, message.data))
        self._messages += len(answer.messages)
        self._hasher.update(answer.digest)
        self._blocks[block] = self._hasher.hexdigest()

    def digest(self, server: str, last: int) -> CopyDigest:
        self._found.end(last)
        return CopyDigest(server=server, messages=self._messages, missing=self._found.missing, blocks=self._blocks)


def _answer(part: Part, end: int) -> _Answer:
    hasher, messages = hashlib.sha256(), [message for message in part.messages if message.seq <= end]
    for message in messages:
        hasher.update(msgspec.msgpack.encode((message.seq, *_content(message))))
    return _Answer(messages, end, hasher.digest())


def _content(message: DirectMessage) -> tuple[list[tuple[str, str]], bytes]:
    """Return headers and body as far as they are equal on every server."""
    return sorted(pair for pair in message.headers.items() if pair[0] not in _OF_THE_ANSWER), message.data


def _shared(answers: list[tuple[int, _Answer]], copies: int) -> list[_Answer]:
    """Return one answer for each copy: as many of each as fits how often it came, at least one."""
    total = sum(count for count, _ in answers)
    most, *others = answers[:copies]
    shared = [answer for count, answer in others for _ in range(max(1, round(count * copies / total)))]
    shared = shared[: copies - 1]
    return [most[1]] * (copies - len(shared)) + shared


async def _named(reader: StreamReader, servers: list[str], leader: str, shared: list[_Answer]) -> list[str]:
    """Return the names of the copies from which these different answers are. The leader is asked for the first message
    that differs.
    """
    contents = [{message.seq: _content(message)[1] for message in answer.messages} for answer in shared]
    seqs = sorted({seq for content in contents for seq in content})
    first = next((seq for seq in seqs if len({content.get(seq) for content in contents}) > 1), None)
    others = [server for server in servers if server != leader]
    anyone = f"one of {', '.join(others)}" if len(others) > 1 else others[0]
    found = None if first is None else await reader.at(first)
    body = None if found is None else found.body
    at = next((at for at, content in enumerate(contents) if first is not None and content.get(first) == body), 0)
    return [leader if index == at else anyone for index in range(len(shared))]


async def _servers(connection: BusConnection, stream: str) -> tuple[list[str], list[str], str]:
    """Return the names of the servers that can answer, of those with a copy that cannot, and of the leader. A name may
    be empty without a cluster.
    """
    info = msgspec.json.decode(await patient_api(connection, f"$JS.API.STREAM.INFO.{stream}", b""), type=_Clustered)
    cluster = info.cluster or _Cluster()
    present = [peer.name for peer in cluster.replicas if peer.current and not peer.offline]
    absent = [peer.name for peer in cluster.replicas if peer.name not in present]
    return sorted([cluster.leader, *present]), absent, cluster.leader
