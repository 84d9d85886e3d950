"""Starts the process that folds the facts of a rebuild (`folding`), and sends the facts to it."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence, Set
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
from koordcore.events.envelope import StoredEvent

from koord_projector.domain.projection import AUDITED_KINDS
from koord_projector.shell.postgres.copytext import SCHEMA_MAX
from koord_projector.shell.projecting.folding import Folded, Order, SentFact, message, read_message

_SENT_AHEAD_BYTES: Final = 16 << 20
"""Bytes of facts that wait for the process before `send` waits, too."""
_NO_HEADERS: Final = dict[str, str]()


class FoldEnded(Exception):
    """The process that folds has ended without a result. Its messages are in the log of the service."""


class FoldProcess:
    """The running process. Only one task may use it; `fold_process` creates it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, events: Sequence[StoredEvent]) -> bool:
        """Send facts with the headers that a fold reads. If many facts wait for the process, wait until it takes some.

        Return False if it takes no more facts, because one of them cannot be read, or because it has ended.
        """
        return await self._write([as_sent(event) for event in events])

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
        assert process.stdin is not None, "it is a pipe"
        process.stdin.transport.set_write_buffer_limits(_SENT_AHEAD_BYTES)
        await running.begin(Order(dsn, sorted(skips)))
        yield running
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def as_sent(event: StoredEvent) -> SentFact:
    """Return a fact with the headers that `Projection` reads."""
    texts = event.header_texts()
    if texts is None or event.ref.kind in AUDITED_KINDS:
        parsed = event.with_parsed_headers()
        return SentFact(
            *(parsed.seq, parsed.ref, parsed.headers, parsed.body, 0),
            *(parsed.type, min(parsed.schema, SCHEMA_MAX), parsed.event_id, parsed.occurred_at),
        )
    return SentFact(
        *(event.seq, event.ref, _NO_HEADERS, event.body, 0),
        *(texts.type, int(texts.schema), texts.event_id, texts.occurred_at),
    )
