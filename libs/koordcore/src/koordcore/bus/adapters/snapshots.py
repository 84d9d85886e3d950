# pyright: reportUnknownMemberType=false
# nats-py's object store is only partly annotated.
"""Snapshots of folds in the object store, as `<fold>/<sequence>`; the newest five of each fold are kept.

Source: event-bus spec, 2 (koord_snap), 6.
"""

import asyncio
import contextlib
import io
import logging
from collections.abc import Generator, Iterator
from itertools import chain
from typing import Final, cast

import msgspec
from nats.errors import ConnectionClosedError
from nats.errors import Error as NatsError
from nats.js.client import JetStreamContext
from nats.js.errors import BadObjectMetaError, DigestMismatchError, NotFoundError
from nats.js.manager import JetStreamManager
from nats.js.object_store import ObjectStore

from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.names import BusNames
from koordcore.ports.snapshots import KEPT_SNAPSHOTS, Snapshot, is_usable

log = logging.getLogger("koordcore.bus")

# Time without a byte after which a read is given up. The library itself waits without end.
SILENT_SECONDS: Final = 15.0

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Snapshot).decode
_MAP_OF_ALL = bytes([0x80 | len(Snapshot.__struct_fields__)])
_ARRAY = b"\xdd"


class _Encoded(io.BufferedIOBase):
    """A snapshot as a readable MessagePack file. It is encoded in pieces, so the state is not copied as a whole."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._parts = _parts(snapshot)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True. The NATS client asks before it reads the snapshot from this object."""
        return True

    def readinto(self, buffer: object) -> int:
        """Copy the next bytes of the encoded snapshot into `buffer`. Return their number; 0 at the end."""
        into, filled = memoryview(cast(bytearray, buffer)), 0
        while filled < len(into):
            if not self._rest:
                self._rest = memoryview(next(self._parts, b""))
                if not self._rest:
                    break
            taken = self._rest[: len(into) - filled]
            into[filled : filled + len(taken)] = taken
            filled, self._rest = filled + len(taken), self._rest[len(taken) :]
        return filled


def _parts(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield a map of all fields, the state last, as an array of its pieces."""
    head = {name: getattr(snapshot, name) for name in Snapshot.__struct_fields__ if name != "state"}
    yield _MAP_OF_ALL + _encode(head)[1:] + _encode("state") + _ARRAY + len(snapshot.state).to_bytes(4, "big")
    yield from chain(map(_encode, snapshot.state))


class _SnapshotStream(JetStreamContext):
    """A subscription that knows its stream. The library would look it up, which needs a permission."""

    stream = ""

    @property
    def _jsm(self) -> JetStreamManager:
        return self

    async def find_stream_name_by_subject(self, subject: str) -> str:
        """Return the name of the stream with snapshots, for every subject. The NATS client then sends no request for
        it.
        """
        return self.stream


class JetStreamSnapshotStore:
    """Snapshots in an object store of the NATS server. One writer per fold at a time."""

    def __init__(self, connection: BusConnection, names: BusNames) -> None:
        self._connection = connection
        self._names = names
        self._opened: ObjectStore | None = None

    async def save(self, snapshot: Snapshot) -> None:
        """Store the snapshot as the object `<fold>/<seq>`. If the fold has more than five, delete the oldest ones."""
        store = await self._store()
        await store.put(f"{snapshot.fold}/{snapshot.seq}", _Encoded(snapshot))
        for seq in (await self.sequences(snapshot.fold))[:-KEPT_SNAPSHOTS]:
            # Another instance may have dropped it meanwhile.
            with contextlib.suppress(NotFoundError):
                await store.delete(f"{snapshot.fold}/{seq}")

    async def delete_after(self, position: int) -> None:
        """Delete the snapshots of all folds that contain events after a position."""
        store = await self._store()
        try:
            entries = await store.list()
        except NotFoundError:
            return
        for entry in entries:
            seq = (entry.name or "").rpartition("/")[2]
            if entry.name and not entry.deleted and seq.isdigit() and int(seq) > position:
                await store.delete(entry.name)

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        """Return the newest snapshot of a fold up to position `at_most` with this schema; None if there is none. A
        snapshot that cannot be read is skipped, so an older one is used.

        Raises:
            NoAnswer: The server does not answer, or stops to answer.
        """
        for seq in reversed(await self.sequences(fold)):
            if at_most is not None and seq > at_most:
                continue
            try:
                snapshot = _decode((await self._read(f"{fold}/{seq}")).getbuffer())
            except NotFoundError:  # another instance has dropped it meanwhile
                continue
            except (BadObjectMetaError, DigestMismatchError, msgspec.DecodeError) as error:
                log.warning("snapshot_unreadable fold=%s seq=%d error=%r", fold, seq, error)
                continue
            if is_usable(snapshot, schema_fingerprint):
                return snapshot
        return None

    async def _read(self, name: str) -> io.BytesIO:
        """Return the content of an object. Give up if nothing comes for a while, however large it is."""
        store = await self._store()
        read = io.BytesIO()  # without it the library copies what it has read so far with every piece that comes
        getting = asyncio.ensure_future(store.get(name, writeinto=read))
        try:
            while not getting.done():
                before = read.tell()
                await asyncio.wait((getting,), timeout=SILENT_SECONDS)
                if not getting.done() and read.tell() == before:
                    raise NoAnswer(f"{name}: nothing came for {SILENT_SECONDS:g} s")
            with _as_no_answer(name):
                await getting
        finally:
            getting.cancel()
        return read

    async def sequences(self, fold: str) -> list[int]:
        """Return the positions of the stored snapshots of a fold, ascending; none if the object store is empty.

        Raises:
            NoAnswer: The server does not answer.
        """
        store = await self._store()
        try:
            with _as_no_answer(self._names.snapshot_bucket):
                async with asyncio.timeout(SILENT_SECONDS):
                    entries = await store.list()
        except NotFoundError:
            return []
        found: list[int] = []
        for entry in entries:
            name, _, seq = (entry.name or "").rpartition("/")
            if name == fold and seq.isdigit() and not entry.deleted:
                found.append(int(seq))
        return sorted(found)

    async def _store(self) -> ObjectStore:
        if self._opened is None:
            context = _SnapshotStream(self._connection.client)
            context.stream = self._names.snapshots
            with _as_no_answer(self._names.snapshot_bucket):
                self._opened = await context.object_store(self._names.snapshot_bucket)
        return self._opened


@contextlib.contextmanager
def _as_no_answer(what: str) -> Generator[None]:
    """Raise NoAnswer for the library's errors about a server that does not answer, or has no leader at this moment."""
    try:
        yield
    except (NotFoundError, BadObjectMetaError, DigestMismatchError, ConnectionClosedError):
        raise
    except (NatsError, OSError) as error:  # TimeoutError is an OSError
        raise NoAnswer(f"{what}: {error or type(error).__name__}") from error
