"""Usage from counters: the first reading, counters that fall, intervals that do not pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.kernel import counters
from koord_agent.domain.kernel.counters import MalformedCounter, Throttling
from koord_agent.domain.metrics.usage import cgroup_cpu_cores, node_cpu_cores, throttled_ratio


def test_a_counter_that_fell_gives_no_sample() -> None:
    assert cgroup_cpu_cores(2_000, 1_999, interval_ns=1_000) is None
    assert node_cpu_cores(100, 99, interval_ns=1_000, jiffy_ns=10) is None
    assert throttled_ratio(Throttling(nr_periods=9, nr_throttled=1), Throttling(nr_periods=8, nr_throttled=1)) is None


@pytest.mark.parametrize("interval_ns", [0, -1])
def test_an_interval_that_did_not_pass_gives_no_sample(interval_ns: int) -> None:
    assert cgroup_cpu_cores(1, 2, interval_ns=interval_ns) is None
    assert node_cpu_cores(1, 2, interval_ns=interval_ns, jiffy_ns=10) is None


@given(before=st.integers(0, 2**62), used=st.integers(0, 2**40), interval_ns=st.integers(1, 2**40), wrap=st.booleans())
def test_usage_is_never_negative_nor_wrapped(before: int, used: int, interval_ns: int, wrap: bool) -> None:
    after = before + used if not wrap else used % (before + 1)
    cores = cgroup_cpu_cores(before, after, interval_ns=interval_ns)
    assert cores is None if after < before else cores == (after - before) / interval_ns


@pytest.mark.parametrize(
    "stat", ["", "cpu0 1 2 3 4 5 6 7\n", "cpu  1 2 3 4 5 6\n", "cpu  1 2 x 4 5 6 7\n", "cpu -1 2 3 4 5 6 7\n"]
)
def test_a_stat_without_seven_numbers_is_refused(stat: str) -> None:
    with pytest.raises(MalformedCounter):
        counters.parse_busy_ticks(stat)


@pytest.mark.parametrize("missing", ["MemTotal", "MemFree", "MemAvailable"])
def test_meminfo_names_the_missing_entry(missing: str) -> None:
    entries = {"MemTotal": 100, "MemFree": 50, "MemAvailable": 70}
    del entries[missing]
    text = "".join(f"{name}: {value} kB\n" for name, value in entries.items())
    with pytest.raises(MalformedCounter, match=missing):
        counters.parse_node_memory(text)


@pytest.mark.parametrize("missing", ["total_cache", "total_rss", "total_active_anon", "total_unevictable"])
def test_memory_stat_without_a_needed_key_is_refused(missing: str) -> None:
    names = ("cache", "rss", "inactive_anon", "active_anon", "unevictable", "inactive_file", "active_file")
    text = "".join(f"total_{name} 1\n" for name in names if f"total_{name}" != missing)
    with pytest.raises(MalformedCounter, match=missing):
        counters.parse_cgroup_memory(text, 1)
