"""Usage from counters: the first reading, counters that fall, intervals that do not pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.kernel import counters
from koord_agent.domain.kernel.counters import (
    CgroupCounters,
    MalformedCounter,
    MemInfo,
    NodeCounters,
    Stall,
    Throttling,
)
from koord_agent.domain.kernel.numa_usage import numa_cores_of_ticks
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import BestEffortReading, HostReading, NodeMonitor
from koord_agent.domain.metrics.series import Sample, SeriesStore
from koord_agent.domain.metrics.usage import (
    cgroup_cpu_cores,
    cgroup_usage,
    node_cpu_cores,
    node_usage,
    throttled_ratio,
)


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


SECOND = 1_000_000_000
NOTHING = MemInfo(total_bytes=0, free_bytes=0, available_bytes=0)


def node(second: int, ticks: int, cpus: int = 2) -> NodeCounters:
    """After some seconds; a tick is 10 ms."""
    return NodeCounters(at_ns=second * SECOND, busy_ticks=ticks, jiffy_ns=10_000_000, memory=NOTHING, cpus=cpus)


def group(second: int, used_ns: int) -> CgroupCounters:
    return CgroupCounters(at_ns=second * SECOND, cpu_usage_ns=used_ns, memory=None)


@pytest.mark.parametrize(
    ("ticks", "cores"),
    [(100, 1.0), (200, 2.0), (203, 2.0), (230, None), (1_000_295, None), (2**60, None)],
    ids=["half", "full", "inexact time", "above", "counter back from 0", "jump"],
)
def test_a_usage_above_the_cpus_of_the_node_is_no_sample(ticks: int, cores: float | None) -> None:
    assert node_usage(node(0, 0), node(1, ticks)) == cores
    assert cgroup_usage(group(0, 0), group(1, ticks * 10_000_000), 2) == cores


def test_a_cpu_that_went_offline_may_have_worked() -> None:
    assert node_usage(node(0, 0, 4), node(1, 350, 2)) == 3.5
    assert node_usage(node(0, 0, 0), node(1, 350, 0)) == 3.5, "the number is unknown"


@given(counts=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=12), short=st.booleans())
def test_counters_that_jump_leave_only_samples_that_are_possible(counts: list[int], short: bool) -> None:
    """Node, pod and best-effort class, whatever their counters do."""
    store = SeriesStore()
    monitor = NodeMonitor(collect_interval_ms=1_000, store=store)
    for second, count in enumerate(counts):
        used = group(second, count)
        reading = HostReading(
            node=node(second, count // 10_000_000 if short else count),
            pods={"a": used},
            best_effort=BestEffortReading(counters=used, quota_us=-1),
        )
        latest = monitor.observe(reading, second * 1_000)
        assert all(
            value is None or 0 <= value <= 2 for value in (latest.node_cpu_cores, *latest.pod_cpu_cores.values())
        )
    for kind, of, most in ((Kind.NODE_CPU, "", 2), (Kind.POD_CPU, "a", 2), (Kind.BE_CPU_USAGE, "", 2_200)):
        assert all(0 <= value <= most for value in store.between(kind, 0, 20_000, of).values)


def test_a_jump_on_one_cpu_does_not_count_for_its_numa_node() -> None:
    used = numa_cores_of_ticks(
        {0: 0, 1: 0, 2: 0}, {0: 100, 1: 10**9, 2: 50}, {0: 0, 1: 0, 2: 1}, interval_ns=SECOND, jiffy_ns=10_000_000
    )
    assert used == {0: 1.0, 1: 0.5}


def test_used_memory_is_never_negative() -> None:
    found = counters.parse_node_memory("MemTotal: 1000 kB\nMemFree: 1200 kB\nMemAvailable: 1400 kB\n")
    assert (found.used_bytes, found.with_page_cache_bytes) == (0, 0)


def test_more_throttled_periods_than_periods_are_no_ratio() -> None:
    none, some = Throttling(nr_periods=0, nr_throttled=0), Throttling(nr_periods=5, nr_throttled=9)
    assert throttled_ratio(none, some) is None


def test_a_stall_cannot_be_longer_than_its_interval() -> None:
    assert counters.stall_ratio(Stall(), Stall(total_us=1_050_000), SECOND) == 1
    assert counters.stall_ratio(Stall(), Stall(total_us=5_000_000), SECOND) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_not_stored(value: float) -> None:
    store = SeriesStore()
    store.append(Kind.NODE_CPU, 1_000, value)
    store.append_all([Sample(Kind.NODE_CPU, 2_000, 1.0), Sample(Kind.NODE_CPU, 3_000, value)])
    assert list(store.between(Kind.NODE_CPU, 0, 4_000).values) == [1.0]


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
