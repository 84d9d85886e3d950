"""Retries: which errors are repeated, for how long, and how delays grow."""

import pytest
from koordcore.retry import Backoff, retry
from support.until import until

FAST = 0.0001


class Flaky:
    """Fails `failures` times, then returns the number of calls."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise TimeoutError(f"call {self.calls}")
        return self.calls


def fast() -> Backoff:
    return Backoff(FAST, FAST)


async def test_a_call_is_repeated_until_it_succeeds():
    told: list[str] = []
    assert await retry(Flaky(3), TimeoutError, backoff=fast(), on_retry=lambda error, _: told.append(str(error))) == 4
    assert told == ["call 1", "call 2", "call 3"]


async def test_other_errors_are_raised_at_once():
    flaky = Flaky(1)
    with pytest.raises(TimeoutError, match="call 1"):
        await retry(flaky, ConnectionError, backoff=fast())
    with pytest.raises(TimeoutError, match="call 1"):
        await retry(Flaky(1), TimeoutError, backoff=fast(), retry_if=lambda _: False)
    assert flaky.calls == 1


async def test_the_last_error_is_raised_after_the_deadline():
    async def was_repeated() -> bool:
        flaky = Flaky(1_000_000)
        with pytest.raises(TimeoutError) as raised:
            await retry(flaky, TimeoutError, backoff=fast(), deadline_seconds=0.05)
        assert str(raised.value) == f"call {flaky.calls}"
        return flaky.calls > 1

    await until(was_repeated)


def test_delays_double_up_to_the_largest_and_start_again():
    backoff = Backoff(1.0, 4.0)
    for nominal in (1.0, 2.0, 4.0, 4.0):
        assert 0.5 * nominal <= backoff.seconds() <= 1.5 * nominal
    backoff.reset()
    assert backoff.seconds() <= 1.5
    assert backoff.seconds(at_least=60.0) == 60.0
