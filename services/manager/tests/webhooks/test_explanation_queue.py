"""Decisions are told in order, each once, whatever becomes of one of them."""

import asyncio

from koord_manager.shell.webhooks.handlers import MAX_PENDING, ExplanationQueue, Publish
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs


def telling_of(told: list[int], number: int) -> Publish:
    async def tell() -> None:
        if number == 1:
            raise LookupError("gone")
        told.append(number)

    return tell


async def test_a_verdict_that_cannot_be_told_is_named_in_the_log_and_the_others_are_told() -> None:
    told: list[int] = []
    queue = ExplanationQueue(logger("test"))
    for number in range(4):
        queue.add(telling_of(told, number))
    with capture_logs() as lines:
        await queue.flush()
    assert told == [0, 2, 3]
    assert [(line["event"], line["error"]) for line in lines] == [("explanation_not_published", "LookupError: gone")]
    await queue.flush()
    assert told == [0, 2, 3]


async def test_what_is_left_by_a_round_that_was_cut_off_is_told_at_the_end() -> None:
    told: list[int] = []
    queue = ExplanationQueue(logger("test"))
    for number in (0, 2, 3, 4):
        queue.add(telling_of(told, number))
    round_ = asyncio.create_task(queue.flush())
    await asyncio.sleep(0)
    round_.cancel()
    await asyncio.gather(round_, return_exceptions=True)
    assert len(told) < 4
    await queue.flush()
    assert told == [0, 2, 3, 4]


async def test_what_is_left_is_bounded_though_many_answers_go_between() -> None:
    told = 0
    queue = ExplanationQueue(logger("test"))

    async def tell() -> None:
        nonlocal told
        told += 1

    async def connection() -> None:
        for _ in range(100):
            queue.add(tell)
            await asyncio.sleep(0)

    connections = [asyncio.create_task(connection()) for _ in range(64)]
    await asyncio.sleep(0)
    round_ = asyncio.create_task(queue.flush())
    await asyncio.gather(*connections)
    assert told >= 64 * 100 - MAX_PENDING - 64
    await round_
    assert told == 64 * 100
