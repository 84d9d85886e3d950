"""The queue of facts on disk after its process was killed at an unlucky moment."""

import asyncio
import contextlib
from pathlib import Path

from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.events.agents.nodestate import PodsStarted
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.service.outbox.fact_file import FactFile, sealed
from koordcore.service.outbox.fact_queue import FactQueue
from koordcore.service.telemetry.logging import logger

NODE = AggregateRef("nodestate", "n")


async def send(folder: Path, log: MemoryEventLog, *uids: str, keeps: bool = False) -> int:
    """Run a process that queues a fact per uid and sends all facts. Return the number that it could not send.

    With `keeps`, it is killed after the log has stored them, and before it removes them from its file.
    """

    async def reached() -> MemoryEventLog:
        return log

    file = FactFile(folder, name="facts.db")
    if keeps:
        file.remove = lambda facts: None
    origin = Origin(causation_id="c", correlation_id="n", actor="agent", occurred_at="2026-01-01T00:00:00.000000Z")
    with file.transaction():
        file.insert(sealed(NODE, PodsStarted(pods=[uid]), origin) for uid in uids)
    queue = FactQueue(file, reached, logger("test"))
    running = asyncio.create_task(queue.run())
    await queue.flush(5.0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    file.close()
    return len(queue)


async def test_a_fact_that_the_log_has_already_is_not_sent_again_after_a_kill(tmp_path: Path) -> None:
    log = MemoryEventLog(MemoryLog())
    await send(tmp_path, log, "a", keeps=True)
    assert await send(tmp_path, log, "b") == 0
    assert [b'"a"' in stored.body for stored in await log.read_aggregate(NODE)] == [True, False]
