"""Back up the streams of a NATS server, and restore them on an empty one, also the log as it was at a position or time.

    backup.json                        the manifest (`Backup`), written last: a place without one is no complete backup
    KOORD_EV_<cluster>.tar.s2 ...      the streams, in the format of the NATS server

    server -> chunks of a compressed archive -> file          `take_backup`, while writers go on
    file -> chunks -> an empty server                         `restore_stream`

Positions stay the same, also those of gaps. So snapshots, explanations and causes in the log still refer to the right
facts. A restore up to an earlier moment:

    1. the streams, as they were copied          3. later facts, explanations and snapshots are deleted
    2. the position of the wanted moment         4. `LogRestored` tells readers which facts are missing

The desired states of nodes are left out of an earlier moment. The next leader of the managers writes them again.
"""

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final, Literal, cast

import msgspec

from koordcore.bus.adapters.logs import JetStreamEventLog
from koordcore.bus.adapters.snapshots import JetStreamSnapshotStore
from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.client.wire import Reply, pub
from koordcore.bus.folds.replay import position_at_time
from koordcore.bus.names import BusNames
from koordcore.bus.read.completeness import require_complete
from koordcore.bus.read.stream_reader import ApiError, StreamReader, api, stream_info
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Draft, Origin
from koordcore.events.log import LOG, LogRestored
from koordcore.place import CHUNK, Place, PlaceTrouble
from koordcore.ports.eventlog import Appended
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339, unix_nanos

MANIFEST: Final = "backup.json"
LARGEST_MANIFEST: Final = 1 << 20
"""Size in bytes above which a manifest is refused. It has about 2 KiB for each of the streams."""


class InvalidBackup(Exception):
    """A place has no complete backup, or one of its files, or the manifest, has changed since the backup."""


class StreamCopy(msgspec.Struct, frozen=True, kw_only=True):
    """Entry of a backup's manifest about one stream and the file with its copy."""

    stream: str
    file: str  # Name of its file
    size: int  # Number of bytes of the file
    sha256: str  # Hash of the file, hexadecimal
    messages: int  # Number of messages
    first: int  # Position of its first message; 0 if it has none
    last: int  # Position of its last message; 0 if it never had one
    config: dict[str, Any]  # Configuration of the stream, as JSON of the JetStream API
    state: dict[str, Any]  # State of the stream at the time of the copy, as JSON of the JetStream API


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    cluster: str
    taken_at: str  # RFC 3339 time at which the backup began
    server: str  # Version of the NATS server
    # The streams, in the order in which they were copied. The stream of facts is the last one.
    streams: list[StreamCopy]
    # SHA-256 of the rest of the manifest, hexadecimal (`digest_of`); "" in a backup of an earlier version.
    digest: str = ""

    @property
    def position(self) -> int:
        """Position of the last fact in the backup."""
        return self.streams[-1].last

    @property
    def reserved_bytes(self) -> int:
        """Bytes that a server reserves for the streams, however few of them are used."""
        return sum(copy.config.get("max_bytes", 0) for copy in self.streams)


def digest_of(document: Mapping[str, Any]) -> str:
    """Return the SHA-256, hexadecimal, of a manifest without its field `digest`: of its canonical JSON.

    It stands for the whole backup, because the manifest has the hash of each file. Fields that this version does not
    know count, too. So another version, whose manifests have more or fewer fields, finds the same digest.
    """
    rest = {name: value for name, value in document.items() if name != "digest"}
    return hashlib.sha256(codec.encode_canonical(rest)).hexdigest()


async def write_manifest(place: Place, backup: Backup) -> Backup:
    """Write the manifest `backup.json` of a backup with its digest, and return it.

    Call it after all other files are complete.

    Raises:
        PlaceTrouble: It cannot be written.
    """
    sealed = msgspec.structs.replace(backup, digest=digest_of(codec.to_builtins(backup)))
    await place.write(MANIFEST, msgspec.json.format(codec.encode(sealed)) + b"\n")
    return sealed


def name_of(copy: StreamCopy) -> str:
    """Return the name of the file of a stream. A manifest cannot name a file of another folder."""
    return PurePosixPath(copy.file).name


async def read_backup(place: Place) -> Backup:
    """Read the manifest of a backup, and compare it with its digest, and the size and hash of each file with it.

    Raises:
        InvalidBackup: There is no valid manifest, it or a file differs, or a file is missing. The message names it.
        PlaceTrouble: The place does not answer.
    """
    file = place.path_of(MANIFEST)
    if MANIFEST not in await place.files():
        raise InvalidBackup(f"{file}: no such file; this is not a complete backup")
    try:
        text = await place.read(MANIFEST, most=LARGEST_MANIFEST)
        backup, document = codec.decode(text, Backup), codec.decode(text, dict[str, Any])
    except codec.DecodeError as error:
        raise InvalidBackup(f"{file}: {error}") from error
    if backup.digest and (found := digest_of(document)) != backup.digest:
        raise InvalidBackup(f"{file}: digest: must be {backup.digest}, got {found}; the manifest was changed")
    if not backup.streams:
        raise InvalidBackup(f"{file}: streams: must have at least one entry, got 0")
    for copy in backup.streams:
        await _check(place, copy)
    return backup


async def _check(place: Place, copy: StreamCopy) -> None:
    name, digest, size = name_of(copy), hashlib.sha256(), 0
    try:
        async for chunk in place.chunks(name):
            digest.update(chunk)
            size += len(chunk)
    except PlaceTrouble as error:
        raise InvalidBackup(str(error)) from error
    _require_same(place, copy, size, digest.hexdigest())


def _require_same(place: Place, copy: StreamCopy, size: int, sha256: str) -> None:
    """Raise InvalidBackup if what was read of a file is not what the manifest says."""
    file = place.path_of(name_of(copy))
    if size != copy.size:
        raise InvalidBackup(f"{file}: size: must be {copy.size} bytes, got {size}")
    if sha256 != copy.sha256:
        raise InvalidBackup(f"{file}: sha256: must be {copy.sha256}, got {sha256}")


_ANSWER_SECONDS: Final = 60.0  # Time in which the server must send the next chunk, or accept one
_NO_STREAM: Final = 10059  # Error code of the server if a stream does not exist
_COMPLETE: Final = ("", "204")  # Status codes of the message without payload that ends a copy without an error

# Called with the name of a stream and the number of bytes that were copied since the last call.
Progress = Callable[[str, int], None]


class StreamExists(Exception):
    """A stream of the backup already exists on the NATS server, so the backup is not restored there."""


async def take_backup(
    connection: BusConnection, names: BusNames, place: Place, taken_at: str, progress: Progress
) -> Backup:
    """Copy the streams of a cluster to an empty place while its services run, and return the manifest. Each stream is
    copied as of one moment; the moments of two streams differ. A stream of snapshots that does not exist is left out:
    after an upgrade, the bootstrap job may not have created it yet.

    Args:
        connection: Connection of the user `backup`.
        place: An empty place.
        taken_at: RFC 3339 time at which the backup begins.
        progress: Called after each chunk.

    Raises:
        ApiError: The server refused the copy of a stream.
        NoAnswer: The server stopped sending.
        PlaceTrouble: A file cannot be written.
    """
    copies: list[StreamCopy] = []
    for stream in names.in_backup:
        try:
            copies.append(await _take(connection, stream, place, progress))
        except ApiError as error:
            if error.err_code != _NO_STREAM or stream not in names.with_snapshots:
                raise
    backup = Backup(cluster=names.cluster, taken_at=taken_at, server=connection.server_version, streams=copies)
    return await write_manifest(place, backup)


async def _take(connection: BusConnection, stream: str, place: Place, progress: Progress) -> StreamCopy:
    chunks: asyncio.Queue[tuple[str, Reply]] = asyncio.Queue()
    subject = f"{connection.settings.inbox_prefix}.{secrets.token_hex(8)}"

    def arrived(_: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        chunks.put_nowait((reply.decode(), Reply(header, payload)))

    name = f"{stream}.tar.s2"
    digest, size = hashlib.sha256(), 0

    async def content() -> AsyncIterator[bytes]:
        nonlocal size
        while (chunk := await _next(chunks, stream, connection)).data:
            digest.update(chunk.data)
            size += len(chunk.data)
            progress(stream, len(chunk.data))
            yield chunk.data
        if chunk.status not in _COMPLETE:
            raise ApiError(int(chunk.status), 0, f"the copy of {stream} was broken off by the server")

    subscription = await connection.client.subscribe_sink(subject, arrived)
    try:
        asked = {"deliver_subject": subject, "no_consumers": True, "chunk_size": CHUNK}
        described = await api(connection, f"$JS.API.STREAM.SNAPSHOT.{stream}", json.dumps(asked).encode())
        await place.write(name, content())
    finally:
        await connection.client.unsubscribe_sink(subscription)
    found = cast("dict[str, Any]", json.loads(described))
    state = found["state"]
    return StreamCopy(
        stream=stream,
        file=name,
        size=size,
        sha256=digest.hexdigest(),
        messages=state["messages"],
        first=state["first_seq"],
        last=state["last_seq"],
        config=found["config"],
        state=state,
    )


async def _next(chunks: asyncio.Queue[tuple[str, Reply]], stream: str, connection: BusConnection) -> Reply:
    """Return the next chunk of a copy, and tell the server that it has arrived."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            acknowledge, chunk = await chunks.get()
    except TimeoutError as error:
        raise NoAnswer(f"no further part of {stream} within {_ANSWER_SECONDS:g} s") from error
    if acknowledge:
        connection.write(pub(acknowledge, "", b""))
    return chunk


async def restore_stream(
    connection: BusConnection, copy: StreamCopy, place: Place, progress: Progress, config: dict[str, Any]
) -> None:
    """Create one stream of a backup on a server that does not have it.

    The server creates a stream at the end of its archive. So the last chunk is sent once the file was found to be the
    one of the manifest. A forged archive may end earlier, and then there is a stream although this raises.

    Args:
        connection: Connection of the user `bootstrap`.
        progress: Called after each chunk.
        config: Configuration of the stream, as JSON of the JetStream API.

    Raises:
        ApiError: The server refused the stream.
        NoAnswer: The server stopped answering.
        PlaceTrouble: The file cannot be read.
        InvalidBackup: The file is not the one of the manifest.
    """
    digest, size = hashlib.sha256(), 0
    asked = json.dumps({"config": config, "state": copy.state}).encode()
    answer = json.loads(await api(connection, f"$JS.API.STREAM.RESTORE.{copy.stream}", asked))
    held = b""

    async def send() -> None:
        if held:
            _require_accepted(await connection.request(answer["deliver_subject"], held, timeout=_ANSWER_SECONDS))
            progress(copy.stream, len(held))

    async for part in place.chunks(name_of(copy)):
        digest.update(part)
        size += len(part)
        # A place chooses the size of its parts, and a message must be below the server's limit.
        for begin in range(0, len(part), CHUNK):
            await send()
            held = part[begin : begin + CHUNK]
    _require_same(place, copy, size, digest.hexdigest())
    await send()
    _require_accepted(await connection.request(answer["deliver_subject"], timeout=_ANSWER_SECONDS))


async def require_absent(connection: BusConnection, streams: Sequence[str]) -> None:
    """Check that a NATS server has none of these streams.

    Raises:
        StreamExists: The server has one of the streams.
    """
    for stream in streams:
        if await stream_info(connection, stream) is not None:
            raise StreamExists(f"the server has a stream {stream} already; a backup is restored on an empty server")


def _require_accepted(reply: Reply) -> None:
    """Raise ApiError if the server refused a chunk."""
    error = cast("dict[str, Any]", json.loads(reply.data)).get("error") if reply.data else None
    if error:
        raise ApiError(error["code"], error.get("err_code", 0), error.get("description", ""))


HEADER_BATCH: Final = "Nats-Batch-Id"
_DELETES_AT_ONCE: Final = 200
_DELETE_SECONDS: Final = 60.0
_NO_MESSAGE: Final = (10043, 10057)  # Error codes of the server when it deletes a position without a message


class NotInBackup(Exception):
    """The backup does not contain the wanted position."""


async def require_facts(connection: BusConnection, backup: Backup, *, upto: int | None = None) -> None:
    """Read the facts of a backup on the server that it was taken from or restored to. The counts of the server do not
    show messages that its disk has lost. `upto`: position of the last restored fact; None: that of the backup.

    Raises:
        FactsMissing: The server lacks some of them.
        HistoryGone: The server has dropped some of them meanwhile.
    """
    facts = backup.streams[-1]
    last = facts.last if upto is None else upto
    if facts.first <= last:
        await require_complete(JetStreamEventLog(connection, BusNames(backup.cluster)), facts.first, last)


async def restore_backup(
    connection: BusConnection,
    backup: Backup,
    place: Place,
    progress: Progress,
    *,
    replicas: int | None = None,
    upto: int | datetime | None = None,
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Create the streams of a backup on a server that has none of them, and return the position of their last fact.
    With `upto`, later facts, explanations, dead letters and snapshots are deleted, and the desired states of nodes are
    not restored. If facts were left out, the fact `LogRestored` is appended; the returned position does not count it.

    Args:
        connection: Connection of the user `bootstrap`.
        backup: The manifest, as `read_backup` has checked it.
        progress: Called after each chunk, and after each deleted message with 0 bytes.
        replicas: Number of servers that store each stream; None: as many as when the backup was taken.
        upto: Position of the last wanted fact, or the time by the clock of the server after which facts were stored
            that are left out (`position_at_time`). Facts that were appended together are kept or left out together.
            None: everything.
        metadata: Names and values that every stream carries on the server, besides its own.

    Raises:
        NotInBackup: The backup does not contain the position, so nothing was changed; or it has no fact up to the time.
        StreamExists: The server has one of the streams. Nothing was changed.
        ApiError: The server refused a stream.
        NoAnswer: The server stopped answering.
        PlaceTrouble: A file cannot be read.
        InvalidBackup: A file has changed since `read_backup`. The server has the streams before it, so empty it.
    """
    names = BusNames(backup.cluster)
    facts = backup.streams[-1]
    if isinstance(upto, int) and not facts.first <= upto <= facts.last:
        raise NotInBackup(f"position {upto}: the backup has the facts {facts.first} to {facts.last}")
    await require_absent(connection, [copy.stream for copy in backup.streams])
    for copy in backup.streams:
        if upto is not None and copy.stream == names.desired:
            continue
        # The server wrote the copy without compression, whatever the stream had (decision 0045).
        config = {**copy.config, "compression": "none", "metadata": {**copy.config.get("metadata", {}), **metadata}}
        if replicas is not None:
            config["num_replicas"] = replicas
        # A stream that once denied to delete messages always does.
        loose = {**config, "deny_delete": False} if upto is not None and copy is facts else config
        await restore_stream(connection, copy, place, progress, loose)
        if copy is facts and upto is not None:
            last = await _cut(connection, names, upto, progress)
            await api(connection, f"$JS.API.STREAM.UPDATE.{copy.stream}", json.dumps(config).encode())
            if last < facts.last:
                await _record(connection, names, backup, last, upto)
            return last
    return facts.last


async def _cut(connection: BusConnection, names: BusNames, upto: int | datetime, progress: Progress) -> int:
    """Delete everything that is later than the wanted moment. Return the position of the last fact that stays."""
    reader = StreamReader(connection, names.ev, names.prefix("ev"))
    head = await reader.head()
    last = (
        upto
        if isinstance(upto, int)
        else await position_at_time(JetStreamEventLog(connection, names), unix_nanos(upto))
    )
    last = await _whole_append(reader, last, head.first_seq)
    if last < head.first_seq:
        raise NotInBackup(f"{upto}: the backup has no complete append up to it; its first fact is {head.first_seq}")
    if last >= head.last_seq:
        return last
    first_left_out = await reader.at(last + 1)
    await _delete(connection, names.ev, range(head.last_seq, last, -1), progress)
    if first_left_out is not None:
        moment = datetime.fromtimestamp(first_left_out.stored_at_ns / 1e9, UTC)
        for stream in (names.explanations, names.dlq):
            await _delete_since(connection, stream, moment, progress)
    await JetStreamSnapshotStore(connection, names).delete_after(last)
    return last


async def _whole_append(reader: StreamReader, position: int, first: int) -> int:
    """Return the last position at or below `position` that does not separate facts of one append."""
    following = await reader.at(position + 1)
    batch = following.headers.get(HEADER_BATCH) if following is not None else None
    if not batch:
        return position
    while position >= first:
        stored = await reader.at(position)
        if stored is None or stored.headers.get(HEADER_BATCH) != batch:
            break
        position -= 1
    return position


async def _delete_since(connection: BusConnection, stream: str, moment: datetime, progress: Progress) -> None:
    reader = StreamReader(connection, stream, "")
    head = await reader.head()
    first = await reader.since(">", moment)
    if first is not None:
        await _delete(connection, stream, range(head.last_seq, first.seq - 1, -1), progress)


async def _delete(connection: BusConnection, stream: str, positions: Iterable[int], progress: Progress) -> None:
    """Delete messages, the newest first. Positions without a message are passed over."""
    reader = StreamReader(connection, stream, "")
    waiting = iter(positions)

    async def delete_next() -> None:
        for position in waiting:
            asked = json.dumps({"seq": position, "no_erase": True}).encode()
            try:
                await api(connection, f"$JS.API.STREAM.MSG.DELETE.{stream}", asked, timeout=_DELETE_SECONDS)
            except ApiError as error:
                if error.err_code not in _NO_MESSAGE or await reader.at(position) is not None:
                    raise
            progress(stream, 0)

    async with asyncio.TaskGroup() as group:
        for _ in range(_DELETES_AT_ONCE):
            group.create_task(delete_next())


async def _record(connection: BusConnection, names: BusNames, backup: Backup, last: int, upto: int | datetime) -> None:
    """Append the fact that tells readers which facts are missing, and why. Services then fold up to it."""
    log = JetStreamEventLog(connection, names)
    head, before = await log.head(), await log.last_of(LOG)
    event = LogRestored(
        position=last,
        left_out_to=head.last_seq,
        asked=str(upto) if isinstance(upto, int) else rfc3339(upto),
        backup_taken_at=backup.taken_at,
    )
    origin = Origin(
        causation_id=f"restore/{backup.taken_at}/{last}",
        correlation_id=str(LOG),
        actor="koord/restore",
        occurred_at=rfc3339(datetime.now(UTC)),
    )
    outcome = await log.append(CATALOGUE.seal([Draft(LOG, event, before.seq if before is not None else 0)], origin))
    if not isinstance(outcome, Appended):
        raise ApiError(503, 0, f"the log refused the fact LogRestored: {outcome}")
