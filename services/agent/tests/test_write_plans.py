"""Leveled writes: what an interruption after any step leaves behind, and what the cache suppresses."""

from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.executor import Update, Why, WriteCache, plan_writes
from koord_agent.domain.plan import CgroupFile, Merge
from koordcore.values.cpuset import format_cpuset, parse_cpuset

PARENT, CHILD = CgroupFile("be", "cpu.cfs_quota_us"), CgroupFile("be/pod", "cpu.cfs_quota_us")
LISTS = (CgroupFile("be", "cpuset.cpus"), CgroupFile("be/pod", "cpuset.cpus"))
limits = st.integers(1_000, 50_000)
cpusets = st.frozensets(st.integers(0, 9), min_size=1)


@given(old=st.tuples(limits, limits), new=st.tuples(limits, limits))
def test_a_child_quota_never_exceeds_its_parent_at_any_step(old: tuple[int, int], new: tuple[int, int]) -> None:
    (old_parent, old_child), (new_parent, new_child) = (max(old), min(old)), (max(new), min(new))
    files = {PARENT: str(old_parent), CHILD: str(old_child)}
    levels = [
        [Update(file=PARENT, value=str(new_parent), merge=Merge.QUOTA)],
        [Update(file=CHILD, value=str(new_child), merge=Merge.QUOTA)],
    ]
    for write in plan_writes(levels, files, WriteCache(), now_ms=0).writes:
        files[write.update.file] = write.value
        assert int(files[CHILD]) <= int(files[PARENT])
    assert files == {PARENT: str(new_parent), CHILD: str(new_child)}


@given(old=st.tuples(cpusets, cpusets), new=st.tuples(cpusets, cpusets), stop=st.integers(0, 4))
def test_cpu_lists_stay_nested_and_a_restart_after_any_step_ends_the_same(
    old: tuple[frozenset[int], frozenset[int]], new: tuple[frozenset[int], frozenset[int]], stop: int
) -> None:
    files = {LISTS[0]: format_cpuset(old[0] | old[1]), LISTS[1]: format_cpuset(old[1])}
    wanted = (format_cpuset(new[0] | new[1]), format_cpuset(new[1]))
    levels = [[Update(file=file, value=value, merge=Merge.CPUSET)] for file, value in zip(LISTS, wanted, strict=True)]
    for last in (stop, None):
        for write in plan_writes(levels, files, WriteCache(), now_ms=0).writes[:last]:
            files[write.update.file] = write.value
            assert parse_cpuset(files[LISTS[1]]) <= parse_cpuset(files[LISTS[0]])
    assert (files[LISTS[0]], files[LISTS[1]]) == wanted


def test_the_cache_suppresses_for_a_minute_and_is_purged_after_two() -> None:
    cache, update = WriteCache(), Update(file=PARENT, value="5000")
    cache.remember(update, now_ms=0)
    assert cache.suppresses(update, 59_999)
    assert not cache.suppresses(update, 60_000)
    assert not cache.suppresses(Update(file=PARENT, value="6000"), 1)
    assert not cache.suppresses(Update(file=PARENT, value="5000", cacheable=False), 1)
    cache.purge(120_000)
    assert cache.entries == {}


def test_what_needs_no_write_says_why() -> None:
    cache = WriteCache()
    updates = {
        Why.EQUAL: Update(file=CgroupFile("a", "cpu.idle"), value="0"),
        Why.MISSING: Update(file=CgroupFile("b", "cpu.idle"), value="0"),
        Why.UNPARSABLE: Update(file=CgroupFile("c", "cpuset.cpus"), value="0", merge=Merge.CPUSET),
        Why.CACHED: Update(file=CgroupFile("d", "cpu.idle"), value="1"),
    }
    cache.remember(updates[Why.CACHED], now_ms=0)
    files = {CgroupFile("a", "cpu.idle"): "0\n", CgroupFile("c", "cpuset.cpus"): "what\n"}
    plan = plan_writes([list(updates.values())], files, cache, now_ms=1)
    assert plan.writes == ()
    assert {why: update for update, why in plan.skipped} == updates
