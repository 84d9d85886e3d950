"""The process that folds the facts of a rebuild and writes the folded rows: both of its ends.

    standard input     Order, lists of facts, an empty list
    standard output    Folded, after the rows are committed

Each message is MessagePack, after its length in 8 bytes. If the input ends before the empty list, no row is kept.
Messages are read ahead, so that the process need not wait for facts while the service does other work.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, Sequence, Set
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import msgspec
from koordcore.events.envelope import HEADER_TYPE, WRITTEN_BY_NODES, StoredEvent
from koordcore.events.registry import UnreadableEvent

from koord_projector.fold.projection import AUDITED_KINDS, Projection
from koord_projector.store.compared_tables import folded_tables
from koord_projector.store.copytext import SCHEMA_MAX
from koord_projector.store.database import REFUSED
from koord_projector.store.digests import Digests, FoldedDigests
from koord_projector.store.shadow import ShadowRows

T = TypeVar("T")

_LENGTH_BYTES: Final = 8
_WITHOUT_PAUSE: Final = 250
"""Number of facts that are folded before input is read ahead, and before rows of the facts before may be sent."""
_READ_AHEAD_BYTES: Final = 8 << 20
_ROWS_AFTER: Final = 10_000
"""Number of facts whose rows are sent together. Sending takes several pauses, so it must not end before the next."""
_encode = msgspec.msgpack.Encoder().encode


class Order(msgspec.Struct, frozen=True):
    dsn: str  # Address of Postgres, as libpq reads it. It is a secret, so it is no argument of the process.
    skips: list[int]  # Positions of facts that are skipped if they cannot be read
    # Snapshot of Postgres whose tables are compared with the fold; "": the rows of the fold become new tables.
    snapshot: str = ""
    end: int = 0  # Position up to which facts were dropped from the compared tables


class SentFact(StoredEvent, frozen=True, gc=False, array_like=True):
    """A fact in a message, where it is an array. What each fold reads of its headers are fields, so it needs no others.

    `headers` has all of them if the fact may be a modification by the descheduler (`AUDITED_KINDS`), or if a node wrote
    it (`Catalogue.read` checks them); else the type alone, which says that it is a fact.
    """

    type: str = ""  # type: ignore[assignment]  # in place of the property
    schema: int = 0  # type: ignore[assignment]
    event_id: str = ""  # type: ignore[assignment]
    occurred_at: str = ""  # type: ignore[assignment]


class Folded(msgspec.Struct, frozen=True):
    """The answer of the process."""

    # Position of the last fact that was folded or skipped. The next fact cannot be read, or there is none.
    position: int
    event_id: str  # Id of this fact
    skipped: list[int]  # Positions of the skipped facts
    # Reason why there are no rows: Postgres refuses one, or the fold of a fact fails. "" if they are committed.
    refused: str = ""
    found: Digests = {}  # Digests of the compared tables
    expected: Digests = {}  # Digests that the fold gives


class _FoldFails(Exception):
    """The fold of a fact raises an error that is none of decoding."""


_decode_facts = msgspec.msgpack.Decoder(list[SentFact]).decode


def message(content: object) -> bytes:
    data = _encode(content)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read_message(stream: asyncio.StreamReader) -> bytes:
    """Return the MessagePack of the next message.

    Raises:
        IncompleteReadError: The stream ended.
    """
    return await stream.readexactly(int.from_bytes(await stream.readexactly(_LENGTH_BYTES), "big"))


async def fold(facts: asyncio.StreamReader) -> Folded:
    """Fold facts from position 0 on until an empty list or a fact that cannot be read, and commit their rows.

    Raises:
        IncompleteReadError: The input ended before the empty list. Nothing is committed.
        WRITE_ERRORS: Postgres is unavailable.
    """
    order = msgspec.msgpack.decode(await read_message(facts), type=Order)
    if order.snapshot:
        return await _compare(order, facts)
    projection, skips, skipped = Projection(), frozenset(order.skips), list[int]()
    rows = await ShadowRows.open(order.dsn)
    try:
        is_readable, taken, writing = True, 0, asyncio.create_task(asyncio.sleep(0))
        while is_readable and (events := _decode_facts(await read_message(facts))):
            is_readable = await _apply(projection, events, skips, skipped)
            if projection.position - taken >= _ROWS_AFTER:
                await writing
                writing, taken = asyncio.create_task(rows.add(projection.take_history())), projection.position
        await writing
        await rows.add(projection.take_rest())
        await rows.commit()
    except (*REFUSED, _FoldFails) as error:
        return Folded(0, "", [], refused=(str(error).splitlines() or [type(error).__name__])[0])
    finally:
        await rows.close()
    return Folded(projection.position, projection.event_id, skipped)


async def _compare(order: Order, facts: asyncio.StreamReader) -> Folded:
    """As `fold`, but compare the rows of the fold with tables. Facts of `order.skips` are skipped in any case."""
    projection, skips, expected = Projection(), frozenset(order.skips), FoldedDigests(order.end)
    taken = 0
    try:
        while events := _decode_facts(await read_message(facts)):
            for event in events:
                if event.seq in skips:
                    projection.skip(event)
                elif not await _apply(projection, [event], skips, []):
                    return Folded(projection.position, "", [], refused=f"fact {event.seq} cannot be read")
            if projection.position - taken >= _ROWS_AFTER:
                expected.add(projection.take_history())
                taken = projection.position
    except _FoldFails as error:
        return Folded(projection.position, "", [], refused=str(error))
    expected.add(projection.take_rest())
    found = await folded_tables(order.dsn, order.snapshot, order.end)
    return Folded(projection.position, projection.event_id, [], found=found, expected=expected.finish())


async def _apply(projection: Projection, events: Sequence[StoredEvent], skips: Set[int], skipped: list[int]) -> bool:
    """Stop before a fact that is unreadable and not skipped; return whether there was none."""
    for count, event in enumerate(events, 1):
        try:
            projection.apply(event)
        except UnreadableEvent:
            if event.seq not in skips:
                return False
            projection.skip(event)
            skipped.append(event.seq)
        except Exception as error:
            raise _FoldFails(f"the fold of fact {event.seq} fails: {type(error).__name__}: {error}") from error
        if count % _WITHOUT_PAUSE == 0:
            await asyncio.sleep(0)
    return True


async def _main() -> None:
    facts = asyncio.StreamReader(_READ_AHEAD_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(facts), sys.stdin)
    try:
        folded = await fold(facts)
    except asyncio.IncompleteReadError:
        sys.exit("the rebuild ended before its last fact")
    sys.stdout.buffer.write(message(folded))


_SENT_AHEAD_BYTES: Final = 16 << 20
"""Bytes of facts that wait for the process before `send` waits, too."""


class FoldEnded(Exception):
    """The process that folds has ended without a result. Its messages are in the log of the service."""


class FoldProcess:
    """One task uses it; `fold_process` creates it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, events: Sequence[StoredEvent]) -> bool:
        """Send facts. If many wait for the process, wait until it takes some.

        False if it takes no more, because one of them cannot be read, or because it has ended.
        """
        return await self._write([as_sent(event) for event in events])

    async def finish(self) -> Folded:
        """There are no more facts: wait until the rows are committed.

        Raises:
            FoldEnded: The process has failed.
        """
        await self._write([])
        assert self._process.stdout is not None, "it is a pipe"
        try:
            return msgspec.msgpack.decode(await read_message(self._process.stdout), type=Folded)
        except asyncio.IncompleteReadError as cause:
            raise FoldEnded(f"the process that folds ended with status {await self._process.wait()}") from cause

    async def begin(self, order: Order) -> None:
        await self._write(order)

    async def _write(self, content: object) -> bool:
        stdin = self._process.stdin
        assert stdin is not None, "it is a pipe"
        try:
            stdin.write(message(content))
            await stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True


@asynccontextmanager
async def fold_process(dsn: str, skips: Set[int], snapshot: str = "", end: int = 0) -> AsyncGenerator[FoldProcess]:
    """Start a process that folds. It is killed at the end of the block if it still runs.

    Args:
        skips: Positions of facts that are skipped if they cannot be read.
        snapshot: Snapshot of Postgres whose tables are compared with the fold; "": it writes new tables.
        end: Position up to which facts were dropped from the compared tables.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "koord_projector.projecting.fold_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        running = FoldProcess(process)
        assert process.stdin is not None, "it is a pipe"
        process.stdin.transport.set_write_buffer_limits(_SENT_AHEAD_BYTES)
        await running.begin(Order(dsn, sorted(skips), snapshot, end))
        yield running
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def as_sent(event: StoredEvent) -> SentFact:
    """Return a fact with the headers that `Projection` reads."""
    texts = event.header_texts()
    if texts is None or event.ref.kind in AUDITED_KINDS or event.ref.kind in WRITTEN_BY_NODES:
        parsed = event.with_parsed_headers()
        return SentFact(
            *(parsed.seq, parsed.ref, parsed.headers, parsed.body, 0),
            *(parsed.type, min(parsed.schema, SCHEMA_MAX), parsed.event_id, parsed.occurred_at),
        )
    return SentFact(
        *(event.seq, event.ref, {HEADER_TYPE: texts.type}, event.body, 0),
        *(texts.type, int(texts.schema), texts.event_id, texts.occurred_at),
    )


if __name__ == "__main__":
    gc.disable()  # states are in no cycle, and the process ends with the rebuild
    asyncio.run(_main())
