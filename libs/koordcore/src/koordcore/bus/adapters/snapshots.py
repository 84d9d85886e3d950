# pyright: reportUnknownMemberType=false
# nats-py's object store is only partly annotated.
"""Snapshots of folds in object stores, as `<fold>/<sequence>`; the newest five of each fold are kept.

Each service has a store in a stream of its own, so that no other one can delete or replace its snapshots (decision
0075). A snapshot of a fold in the store of another service does not count: it would be a way to let a service begin
with a false state. Earlier releases have all stores in one stream, from which snapshots are still read.

Source: event-bus spec, 2 (koord_snap), 6.
"""

import asyncio
import base64
import contextlib
import hashlib
import io
import logging
from collections.abc import Generator, Iterator
from typing import Final, cast

import msgspec
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError
from nats.js.api import Header, RawStreamMsg
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError
from nats.js.kv import MSG_ROLLUP_SUBJECT
from nats.js.object_store import ObjectStore

from koordcore.bus.adapters.snapshot_format import EncodedSnapshot, decode_snapshot
from koordcore.bus.client.connection import BusConnection, Denied, NoAnswer, NotConnected
from koordcore.bus.names import SAVED_FOLDS, BusNames
from koordcore.bus.read.direct import DirectMessage, messages_of
from koordcore.bus.read.stream_reader import stream_info
from koordcore.ports.snapshots import KEPT_SNAPSHOTS, Snapshot, SnapshotHead, is_usable
from koordcore.values.override import override

log = logging.getLogger("koordcore.bus")

# Attempts to read a snapshot whose pieces are not all there, because a server may be behind, and the pause between.
_ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 0.3
# Error code of a stream that did not store a message, and the text if it is full.
_NOT_STORED: Final = 10077
_FULL: Final = "maximum bytes exceeded"
_PIECES_AT_ONCE: Final = 32  # Number of pieces of 128 KiB in one request


class _Entry(msgspec.Struct):
    """An entry of the object store, as far as a reader needs it."""

    name: str
    nuid: str = ""  # Part of the subject of its pieces
    size: int = 0
    chunks: int = 0
    digest: str | None = None  # `SHA-256=` and the digest in URL-safe base64
    deleted: bool | None = None
    bucket: str = ""  # Store that it is in. The subject tells it, not the entry.
    stream: str = ""


_decode_entry = msgspec.json.Decoder(_Entry).decode


class _SnapshotStream(JetStreamContext):
    """Requests about one stream. Stores of earlier releases are in one with another name than the library computes."""

    stream = ""

    @override
    async def get_last_msg(self, stream_name: str, subject: str, direct: bool | None = False) -> RawStreamMsg:
        return await super().get_last_msg(self.stream, subject, direct)

    @override
    async def purge_stream(
        self, name: str, seq: int | None = None, subject: str | None = None, keep: int | None = None
    ) -> bool:
        """Replace the messages of a subject by an empty one.

        NATS cannot limit the subjects of a purge, so a service that may purge can delete the snapshots of all. What
        replaces is a message on the own subject, as every other one.
        """
        assert subject is not None, "the object store deletes the pieces of one object"
        await self.publish(subject, b"", headers={Header.ROLLUP: MSG_ROLLUP_SUBJECT})
        return True


class UnreadableSnapshot(Exception):
    """The pieces of a snapshot are gone, or have changed."""


class _NoRoom(NoAnswer):
    """The stream lacks room for the snapshot. Old ones were deleted meanwhile, so another attempt may succeed."""


class JetStreamSnapshotStore:
    """Snapshots in an object store of the NATS server. One writer per fold at a time."""

    def __init__(self, connection: BusConnection, names: BusNames) -> None:
        self._connection = connection
        self._names = names

    async def save(self, snapshot: Snapshot) -> None:
        """Store the snapshot as the object `<fold>/<seq>`. If the fold has more than five, delete the oldest ones."""
        try:
            await self._put(snapshot.head, EncodedSnapshot(snapshot.head, iter(snapshot.state), snapshot.digest))
        except _NoRoom:
            await self._put(snapshot.head, EncodedSnapshot(snapshot.head, iter(snapshot.state), snapshot.digest))

    async def save_pieces(self, head: SnapshotHead, pieces: Iterator[bytes]) -> None:
        """As `save`. The object exists once its entry is stored, which is the last of it. The pieces can be taken only
        once: if the stream lacks room, this snapshot is not stored, and old ones are deleted for the next one.
        """
        await self._put(head, EncodedSnapshot(head, pieces))

    async def _put(self, head: SnapshotHead, encoded: EncodedSnapshot) -> None:
        own = self._names.snapshot_bucket_of(self._connection.settings.user)
        store = self._store(own, f"OBJ_{own}")
        with _as_no_answer(own):
            await self._keep(store, own, head, KEPT_SNAPSHOTS - 1)
            try:
                await store.put(f"{head.fold}/{head.seq}", cast("io.BufferedIOBase", encoded))
                return
            except APIError as error:
                if error.err_code != _NOT_STORED or _FULL not in (error.description or ""):
                    raise
                refused = error
            await self._keep(store, own, head, 1)
        raise _NoRoom(
            f"{own}: no room for the snapshot at {head.seq}: {refused.description}. All older ones but the newest are"
            " deleted, so that the next one fits"
        ) from refused

    async def _keep(self, store: ObjectStore, own: str, head: SnapshotHead, number: int) -> None:
        """Delete the oldest snapshots of a fold in the own store, until a number of them is left. The one that is being
        saved does not count.
        """
        stored = await self._entries_of(head.fold)
        seqs = sorted(seq for seq, entry in stored.items() if entry.bucket == own and seq != head.seq)
        for seq in seqs[:-number]:
            # Another instance may have dropped it meanwhile.
            with contextlib.suppress(NotFoundError):
                await store.delete(f"{head.fold}/{seq}")

    async def delete_after(self, position: int) -> None:
        """Delete the snapshots of all folds that contain events after a position."""
        for entry in await self._entries():
            seq = entry.name.rpartition("/")[2]
            if seq.isdigit() and int(seq) > position:
                await self._store(entry.bucket, entry.stream).delete(entry.name)

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        """Return the newest snapshot of a fold up to position `at_most` with this schema; None if there is none. A
        snapshot that cannot be read is skipped, so an older one is used.

        Raises:
            NoAnswer: The server does not answer, or stops to answer.
        """
        entries = await self._entries_of(fold)
        for seq in sorted(entries, reverse=True):
            if at_most is not None and seq > at_most:
                continue
            try:
                snapshot = decode_snapshot((await self._read(entries[seq])).getbuffer())
            except (UnreadableSnapshot, msgspec.DecodeError) as error:
                log.warning("snapshot_unreadable fold=%s seq=%d error=%r", fold, seq, error)
                continue
            if is_usable(snapshot, schema_fingerprint):
                return snapshot
        return None

    async def sequences(self, fold: str) -> list[int]:
        """Return the positions of the stored snapshots of a fold, ascending; none if the object store is empty.

        Raises:
            NoAnswer: The server does not answer.
        """
        return sorted(await self._entries_of(fold))

    async def _entries_of(self, fold: str) -> dict[int, _Entry]:
        """Return position -> entry of the stored snapshots of a fold."""
        found: dict[int, _Entry] = {}
        names = self._names
        earlier = {bucket: SAVED_FOLDS.get(service, ()) for bucket, service in names.earlier_snapshot_buckets.items()}
        of_service = {names.snapshot_bucket_of(service): folds for service, folds in SAVED_FOLDS.items()}
        for entry in await self._entries():
            name, _, seq = entry.name.rpartition("/")
            if name != fold or not seq.isdigit():
                continue
            if fold in of_service.get(entry.bucket, ()):
                found[int(seq)] = entry
            elif fold in earlier.get(entry.bucket, ()) or entry.bucket == names.snapshot_bucket:
                found.setdefault(int(seq), entry)
        return found

    async def _entries(self) -> list[_Entry]:
        """Return the entries of all snapshots. An entry that cannot be read is left out."""
        found: dict[tuple[str, str], _Entry] = {}
        for stream in self._names.with_snapshots:
            with _as_no_answer(stream):
                for message in await self._messages_of_entries(stream):
                    try:
                        entry = _decode_entry(message.data)
                    except msgspec.DecodeError as error:
                        log.warning("snapshot_entry_unreadable stream=%s seq=%d error=%s", stream, message.seq, error)
                        continue
                    entry.bucket, entry.stream = message.headers["Nats-Subject"].split(".")[1], stream
                    found[entry.bucket, entry.name] = entry
        return [entry for entry in found.values() if not entry.deleted]

    async def _messages_of_entries(self, stream: str) -> list[DirectMessage]:
        """Return the entries of a stream; none if the servers do not know the stream yet."""
        try:
            try:
                return [message async for message in messages_of(self._connection, stream, "$O.*.M.>")]
            except NoAnswer as error:
                if not await self._is_missing(stream):
                    raise error from None
        except Denied:  # the servers have the rights of the release before until they read their configuration again
            if stream == self._names.snapshots:
                raise
            log.warning("snapshots_not_readable stream=%s", stream)
        return []  # or the stream is missing: the bootstrap job has not run yet, or the log is from an older backup

    async def _is_missing(self, stream: str) -> bool:
        """Whether the servers say that there is no such stream."""
        try:
            return await stream_info(self._connection, stream) is None
        except NoAnswer:
            return False

    async def _read(self, entry: _Entry) -> io.BytesIO:
        """Return the content of an object.

        Raises:
            UnreadableSnapshot: The pieces are not all there, or are not those that were stored.
            NoAnswer: The server does not answer, or stops to answer.
        """
        subject = f"$O.{entry.bucket}.C.{entry.nuid}"
        attempt = 1
        while True:
            read, hasher, pieces = io.BytesIO(), hashlib.sha256(), 0
            with _as_no_answer(entry.name):
                async for message in messages_of(self._connection, entry.stream, subject, batch=_PIECES_AT_ONCE):
                    read.write(message.data)
                    hasher.update(message.data)
                    pieces += 1
            if f"SHA-256={base64.urlsafe_b64encode(hasher.digest()).decode()}" == entry.digest:
                return read
            if attempt == _ATTEMPTS:
                found = f"{pieces} of {entry.chunks} pieces, {read.tell()} of {entry.size} bytes"
                raise UnreadableSnapshot(f"{entry.name}: {found}")
            attempt += 1
            await asyncio.sleep(_PAUSE_SECONDS)

    def _store(self, bucket: str, stream: str) -> ObjectStore:
        context = _SnapshotStream(self._connection.client, prefix=self._connection.api_prefix)
        context.stream = stream
        return ObjectStore(name=bucket, stream=stream, js=context)


@contextlib.contextmanager
def _as_no_answer(what: str) -> Generator[None]:
    """Raise NoAnswer for errors about a server that does not answer, or has no leader at this moment."""
    try:
        yield
    except (NotFoundError, ConnectionClosedError):
        raise
    except (NatsError, NotConnected, OSError) as error:  # TimeoutError is an OSError
        raise NoAnswer(f"{what}: {error or type(error).__name__}") from error
