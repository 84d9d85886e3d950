"""Signals to processes of tests."""

import asyncio
import signal

from support.scheduler.processes import send

CHILDREN = 40


async def test_a_signal_takes_the_status_of_no_process_away() -> None:
    statuses: set[int] = set()
    for _ in range(CHILDREN):
        child = await asyncio.create_subprocess_exec("true")
        while child.returncode is None:
            send(child, signal.SIGCONT)
            await asyncio.sleep(0)
        statuses.add(child.returncode)
    assert statuses == {0}
