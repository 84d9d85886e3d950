"""The quota of a node: what it may write at once, what comes back with time, and what a nearly full log leaves."""

import pytest
from koordcore.bus.read.log_size import LogRoom
from koordcore.bus.setup.streams import MIB
from koordcore.bus.work.node_facts import DAY, DEFAULT_QUOTA, REFUSALS_AT_ONCE, NodeQuota, NodeUse, quota_for

LARGEST = MIB


def taken(use: NodeUse, quota: NodeQuota, size: int, *, at: float, tries: int = 100_000) -> int:
    """How many messages of a size pass one after the other at one moment."""
    return next((number for number in range(tries) if use.take(quota, size, at)), tries)


def test_an_agent_that_starts_on_a_node_with_110_pods_is_not_slowed() -> None:
    use = NodeUse(DEFAULT_QUOTA, 0.0)
    assert not use.take(DEFAULT_QUOTA, 300_000, 0.0), "the topology of a large machine"
    assert taken(use, DEFAULT_QUOTA, 1_500, at=0.0, tries=110 * 3 * 4) == 110 * 3 * 4, "hooks of three containers each"


def test_messages_come_back_with_time() -> None:
    quota = NodeQuota(messages=10, messages_per_minute=6)
    use = NodeUse(quota, 0.0)
    assert taken(use, quota, 1, at=0.0) == 10
    assert use.take(quota, 1, 5.0) == "6 messages per minute"
    assert taken(use, quota, 1, at=31.0) == 3
    assert taken(use, quota, 1, at=10_000.0) == 10


@pytest.mark.parametrize("limit", [0, 64 * MIB, 512 * MIB, 2048 * MIB, 64 * 1024 * MIB])
def test_a_node_writes_a_small_part_of_any_log(limit: int) -> None:
    quota = quota_for(DEFAULT_QUOTA, LogRoom(limit=limit), LARGEST)
    use = NodeUse(quota, 0.0)
    written = sum(taken(use, quota, size, at=0.0) * size for size in (100_000, 1000, 10))
    assert written <= max(LARGEST, (limit or 2048 * MIB) // 64)
    hours = 24 * 10
    for hour in range(1, hours):
        written += taken(use, quota, 10_000, at=hour * 3600.0) * 10_000
    assert written <= hours / 24 * quota.bytes_per_day + quota.bytes_per_day
    assert quota.bytes_per_day <= max(LARGEST, (limit or 2048 * MIB) // 32)


def test_the_largest_fact_always_fits_and_a_nearly_full_log_leaves_a_tenth() -> None:
    small = quota_for(DEFAULT_QUOTA, LogRoom(used=60 * MIB, limit=64 * MIB), LARGEST)
    assert small.messages == DEFAULT_QUOTA.messages // 10
    assert not NodeUse(small, 0.0).take(small, LARGEST, 0.0)
    large = quota_for(DEFAULT_QUOTA, LogRoom(used=1900 * MIB, limit=2048 * MIB), LARGEST)
    assert large.bytes_per_day == DEFAULT_QUOTA.bytes_per_day // 10
    assert NodeUse(large, 0.0).take(large, LARGEST, DAY) == ""


def test_a_node_that_does_not_wait_gets_no_answers_until_a_second_later() -> None:
    use = NodeUse(DEFAULT_QUOTA, 0.0)
    for _ in range(REFUSALS_AT_ONCE):
        assert not use.is_silenced(0.0)
        use.refused(0.0)
    assert use.is_silenced(0.0)
    assert not use.is_silenced(1.0)
