"""Starts the process that folds the facts of a rebuild (`folding`), and sends the facts to it."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence, Set
from contextlib import asynccontextmanager, suppress

import msgspec
from koordcore.events.envelope import HEADER_ID, HEADER_OCCURRED_AT, HEADER_SCHEMA, HEADER_TYPE, StoredEvent

from koord_projector.domain.projection import AUDITED_KINDS
from koord_projector.shell.projecting.folding import Folded, Order, message, read_message


class FoldEnded(Exception):
    """The process that folds has ended without a result. Its messages are in the log of the service."""


class FoldProcess:
    """The running process. Only one task may use it; `fold_process` creates it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, events: Sequence[StoredEvent]) -> bool:
        """Send facts with the headers that a fold reads, and wait until the process takes them.

        Return False if it takes no more facts, because one of them cannot be read, or because it has ended.
        """
        return await self._write([_as_folded(event) for event in events])

    async def finish(self) -> Folded:
        """Tell the process that there are no more facts, and wait until its rows are committed.

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
        """Send the first message."""
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
async def fold_process(dsn: str, skips: Set[int]) -> AsyncGenerator[FoldProcess]:
    """Start a process that folds. It is killed at the end of the block if it still runs.

    Args:
        dsn: Address of Postgres.
        skips: Positions of facts that are skipped if they cannot be read.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "koord_projector.shell.projecting.folding"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        running = FoldProcess(process)
        await running.begin(Order(dsn, sorted(skips)))
        yield running
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _as_folded(event: StoredEvent) -> StoredEvent:
    """Return a fact with the headers that `Projection` reads: four, and all of them if its kind is audited."""
    texts = event.header_texts()
    if texts is None or event.ref.kind in AUDITED_KINDS:
        return event.with_parsed_headers()
    headers = {
        HEADER_ID: texts.event_id,
        HEADER_TYPE: texts.type,
        HEADER_SCHEMA: texts.schema,
        HEADER_OCCURRED_AT: texts.occurred_at,
    }
    return StoredEvent(event.seq, event.ref, headers, event.body)
