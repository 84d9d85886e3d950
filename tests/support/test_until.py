"""The one helper that waits: it returns what came true, and its failure shows what did not."""

import asyncio
from collections.abc import Iterator

import pytest
from support.until import until, until_blocking


async def test_first_true_answer_is_returned_by_both_forms() -> None:
    assert await until(iter([0, "", "there"]).__next__, every=0) == "there"
    assert until_blocking(iter([0, "", "there"]).__next__, every=0) == "there"


async def test_coroutine_function_is_awaited_at_each_look() -> None:
    answers = iter([None, [], [1]])

    async def answer() -> list[int] | None:
        await asyncio.sleep(0)
        return next(answers)

    assert await until(answer, every=0) == [1]


async def test_failure_shows_the_condition_its_last_value_and_the_names_that_it_uses() -> None:
    found = [1, 2]
    with pytest.raises(AssertionError) as caught:
        await until(lambda: len(found) - 2, seconds=0)
    with pytest.raises(AssertionError) as blocked:
        until_blocking(lambda: len(found) - 2, seconds=0)
    for message in (str(caught.value), str(blocked.value)):
        assert "lambda: len(found) - 2" in message
        assert "last value: 0" in message
        assert "where found = [1, 2]" in message


async def test_coroutine_that_hangs_is_cancelled_at_the_deadline() -> None:
    with pytest.raises(AssertionError, match="the answer"):
        await until(asyncio.Event().wait, "the answer", seconds=0)


async def test_timeout_of_the_condition_itself_is_not_taken_for_the_deadline() -> None:
    async def slow() -> bool:
        raise TimeoutError("of the server")

    with pytest.raises(TimeoutError, match="of the server"):
        await until(slow)


async def test_check_ends_a_wait_that_is_in_vain() -> None:
    ended: Iterator[bool] = iter([False, True])

    def check() -> None:
        if next(ended):
            raise RuntimeError("the process ended")

    with pytest.raises(RuntimeError, match="the process ended"):
        await until(lambda: False, check=check, every=0)
