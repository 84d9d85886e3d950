"""Leveled writes: what an interruption after any step leaves behind, and what needs no write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.kernel.cgroup_files import is_in_force
from koord_agent.domain.plans.arbiter import arbitrate
from koord_agent.domain.plans.executor import Update, Why, levels_of, plan_writes
from koord_agent.domain.plans.plan import Band, CgroupFile, Merge, Plan
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
    for write in plan_writes(levels, files).writes:
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
        for write in plan_writes(levels, files).writes[:last]:
            files[write.update.file] = write.value
            assert parse_cpuset(files[LISTS[1]]) <= parse_cpuset(files[LISTS[0]])
    assert (files[LISTS[0]], files[LISTS[1]]) == wanted


def test_what_needs_no_write_says_why() -> None:
    updates = {
        Why.EQUAL: Update(file=CgroupFile("a", "cpu.idle"), value="0"),
        Why.MISSING: Update(file=CgroupFile("b", "cpu.idle"), value="0"),
        Why.UNPARSABLE: Update(file=CgroupFile("c", "cpuset.cpus"), value="0", merge=Merge.CPUSET),
    }
    files = {CgroupFile("a", "cpu.idle"): "0\n", CgroupFile("c", "cpuset.cpus"): "what\n"}
    plan = plan_writes([list(updates.values())], files)
    assert plan.writes == ()
    assert {why: update for update, why in plan.skipped} == updates


@pytest.mark.parametrize(
    ("current", "asked", "parent", "written"),
    [
        ("5000", "5000", "3000", False), ("5000", "8000", "3000", False), ("2000", "8000", "3000", True),
        ("5000", "4000", "3000", True), ("-1", "4000", "3000", True),
    ],
)  # fmt: skip
def test_a_parent_that_reads_lower_cuts_a_raise_but_is_no_reason_to_tighten(
    current: str, asked: str, parent: str, written: bool
) -> None:
    plan = Plan(plugin="t", band=Band.TUNING, file=CHILD, value=asked, created_ms=0, ttl_ms=1_000)
    levels = levels_of(arbitrate([plan], 0, {PARENT: parent}).winners.values())
    done = plan_writes(levels, {CHILD: current})
    assert [write.value for write in done.writes] == ([parent] if written else [])
    assert [why for _, why in done.skipped] == ([] if written else [Why.UNASKED])


@pytest.mark.parametrize("current", ["9000", "-1"])
def test_an_unlimited_child_stays_unlimited_when_its_parent_falls(current: str) -> None:
    """As a number it would keep a parent of cgroup v1 from falling further."""
    plans = [
        Plan(plugin="t", band=Band.SUPPRESS, file=file, value=value, created_ms=0, ttl_ms=1_000)
        for file, value in ((PARENT, "3000"), (CHILD, "-1"))
    ]
    files = {PARENT: "9000", CHILD: current}
    for write in plan_writes(levels_of(arbitrate(plans, 0, {}).winners.values()), files).writes:
        files[write.update.file] = write.value
    assert files == {PARENT: "3000", CHILD: "-1"}
    (alone,) = arbitrate(plans[1:], 0, {PARENT: "3000"}).winners.values()
    assert alone.value == "-1", "also if the parent has no plan of its own"


def test_a_parent_that_is_lowered_in_the_same_round_lowers_its_children() -> None:
    plans = [
        Plan(plugin="t", band=Band.SUPPRESS, file=file, value=value, created_ms=0, ttl_ms=1_000)
        for file, value in ((PARENT, "3000"), (CHILD, "5000"))
    ]
    levels = levels_of(arbitrate(plans, 0, {}).winners.values())
    done = plan_writes(levels, {PARENT: "9000", CHILD: "5000"})
    assert [(write.update.file, write.value) for write in done.writes] == [(CHILD, "3000"), (PARENT, "3000")]


def test_cpus_that_a_parent_reads_without_are_not_taken_from_who_asked_for_them() -> None:
    plan = Plan(plugin="t", band=Band.TUNING, file=LISTS[1], value="0-7", created_ms=0, ttl_ms=1_000)
    levels = levels_of(arbitrate([plan], 0, {LISTS[0]: "0-1"}).winners.values())
    assert plan_writes(levels, {LISTS[1]: "0-3"}).writes == ()
    assert plan_writes(levels, {LISTS[1]: "1"}).writes[-1].value == "0-1"


@pytest.mark.parametrize(
    ("value", "plausible"), [("-1", True), ("1000", True), ("999", False), ("-2", False), ("", False)]
)
def test_a_quota_that_no_kernel_takes_is_not_in_force(value: str, plausible: bool) -> None:
    assert is_in_force("cpu.cfs_quota_us", value) is plausible
    assert is_in_force("cpuset.cpus", value)
