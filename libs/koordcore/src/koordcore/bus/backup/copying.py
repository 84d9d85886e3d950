"""Copy streams between a NATS server and files, with the server's own snapshot and restore requests.

    server -> chunks of a compressed archive -> file          `take_backup`, while writers go on
    file -> chunks -> an empty server                         `restore_stream`

Positions stay the same, also those of gaps. So snapshots, explanations and causes in the log still refer to the right
facts. Read `restoring` next.
"""

import asyncio
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, cast

from koordcore.bus.backup.files import Backup, StreamCopy, name_of, write_manifest
from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.client.wire import Reply, pub
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import ApiError, api, stream_info
from koordcore.place import CHUNK, Place

_ANSWER_SECONDS: Final = 60.0
"""Time in which the server must send the next chunk, or accept one."""
_COMPLETE: Final = ("", "204")
"""Status codes of the message without payload that ends a copy without an error."""

Progress = Callable[[str, int], None]
"""Called with the name of a stream and the number of bytes that were copied since the last call."""


class StreamExists(Exception):
    """A stream of the backup already exists on the NATS server, so the backup is not restored there."""


async def take_backup(
    connection: BusConnection, names: BusNames, place: Place, taken_at: str, progress: Progress
) -> Backup:
    """Copy the streams of a cluster to an empty place while its services run, and return the manifest.

    Each stream is copied as of one moment; the moments of two streams differ.

    Args:
        connection: Connection of the user `backup`.
        names: Names of the cluster's streams.
        place: An empty place.
        taken_at: RFC 3339 time at which the backup begins.
        progress: Called after each chunk.

    Raises:
        ApiError: The server refused the copy of a stream.
        NoAnswer: The server stopped sending.
        PlaceTrouble: A file cannot be written.
    """
    copies = [await _take(connection, stream, place, progress) for stream in names.in_backup]
    backup = Backup(cluster=names.cluster, taken_at=taken_at, server=connection.server_version, streams=copies)
    await write_manifest(place, backup)
    return backup


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

    Args:
        connection: Connection of the user `bootstrap`.
        copy: Entry of the manifest.
        place: Place of the backup.
        progress: Called after each chunk.
        config: Configuration of the stream, as JSON of the JetStream API.

    Raises:
        ApiError: The server refused the stream.
        NoAnswer: The server stopped answering.
        PlaceTrouble: The file cannot be read.
    """
    asked = json.dumps({"config": config, "state": copy.state}).encode()
    answer = json.loads(await api(connection, f"$JS.API.STREAM.RESTORE.{copy.stream}", asked))
    async for part in place.chunks(name_of(copy)):
        # A place chooses the size of its parts, and a message must be below the server's limit.
        for begin in range(0, len(part), CHUNK):
            chunk = part[begin : begin + CHUNK]
            _require_accepted(await connection.request(answer["deliver_subject"], chunk, timeout=_ANSWER_SECONDS))
            progress(copy.stream, len(chunk))
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
