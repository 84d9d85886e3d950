"""Token buckets: the burst, the refill, and that one subject does not pay for another."""

from hypothesis import given
from hypothesis import strategies as st
from koordcore.service.access.closed_gate import MOST_BUCKETS, TokenBuckets
from koordcore.service.access.configuration import Limits

LIMITS = Limits(requests_per_second=10, burst=5)


def test_a_full_bucket_gives_the_burst_and_then_the_seconds_to_wait() -> None:
    buckets = TokenBuckets()
    assert [buckets.take("a", 1, 0.0, LIMITS) for _ in range(6)] == [0, 0, 0, 0, 0, 1]
    assert buckets.take("b", 1, 0.0, LIMITS) == 0
    assert buckets.take("a", 1, 0.1, LIMITS) == 0
    assert buckets.take("a", 1, 0.1, LIMITS) == 1


def test_a_request_that_costs_more_than_a_bucket_takes_a_full_one() -> None:
    buckets = TokenBuckets()
    assert buckets.take("a", 1, 0.0, LIMITS) == 0
    assert buckets.take("a", 100, 0.0, LIMITS) == 1
    assert buckets.take("a", 100, 0.1, LIMITS) == 0


def test_buckets_are_bounded() -> None:
    buckets = TokenBuckets()
    for number in range(MOST_BUCKETS + 10):
        buckets.take(str(number), 1, 0.0, LIMITS)
    assert len(buckets) == MOST_BUCKETS


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 5)), max_size=60))
def test_never_more_is_given_than_the_burst_and_the_refill(steps: list[tuple[float, float]]) -> None:
    buckets, now, given_out = TokenBuckets(), 0.0, 0.0
    for pause, cost in steps:
        now += pause
        if buckets.take("a", cost, now, LIMITS) == 0:
            given_out += cost
    assert given_out <= LIMITS.burst + now * LIMITS.requests_per_second + 1e-6
