"""The executor killed after any step, refused, or overtaken by a pod that ends: nothing is half-applied."""

import errno
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.host.host import Host, Vanished, WriteFailed
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from support.agent.ruled_kernel import Killed, RuledKernel
from support.depth import examples

DIRECTORIES = ("kubepods", "kubepods/podA", "kubepods/podA/c1", "kubepods/podB", "kubepods/podB/c1")
CPUS, QUOTA, MIN = "cpuset.cpus", "cpu.cfs_quota_us", "memory.min"


def executor(kernel: RuledKernel) -> CgroupExecutor:
    """A freshly started executor: what the last one remembered is gone."""
    return CgroupExecutor(cast("Host", kernel), trees=("kubepods",))


Tree = dict[CgroupFile, str]


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Values that the kernel accepts: every directory has at most what its parent has."""
    root_cpus = draw(st.frozensets(st.integers(0, 7), min_size=1))
    root_quota = draw(st.sampled_from([-1, 400_000, 150_000]))
    files: Tree = {}
    cpus: dict[str, frozenset[int]] = {}
    quotas: dict[str, int] = {}
    for directory in DIRECTORIES:
        parent = directory.rpartition("/")[0]
        inside = cpus.get(parent, root_cpus)
        cpus[directory] = inside if not parent else draw(st.frozensets(st.sampled_from(sorted(inside)), min_size=1))
        above = quotas.get(parent, root_quota)
        limited = st.integers(1_000, 900_000 if above < 0 else above)
        quotas[directory] = above if not parent else draw(limited | (st.just(-1) if above < 0 else limited))
        files[CgroupFile(directory, CPUS)] = format_cpuset(cpus[directory])
        files[CgroupFile(directory, QUOTA)] = str(quotas[directory])
        files[CgroupFile(directory, MIN)] = str(draw(st.integers(0, 1 << 30)))
    return files


def plans(wanted: Tree, now_ms: int) -> list[Plan]:
    """One plan per file."""
    return [
        Plan(plugin="t", band=Band.SUPPRESS, file=file, value=value, created_ms=now_ms, ttl_ms=2_000)
        for file, value in wanted.items()
    ]


def is_at_least(file: CgroupFile, value: str, floor: str) -> bool:
    """Whether a limit is no tighter than another."""
    if file.resource == CPUS:
        return parse_cpuset(value) >= parse_cpuset(floor)
    return _amount(file, value) >= _amount(file, floor)


def _amount(file: CgroupFile, text: str) -> float:
    return float("inf") if file.resource == QUOTA and int(text) < 0 else int(text)


def looser(file: CgroupFile, one: str, other: str) -> str:
    """What both limits allow at the same time."""
    if file.resource == CPUS:
        return format_cpuset(parse_cpuset(one) & parse_cpuset(other))
    return min(one, other, key=lambda text: _amount(file, text))


@settings(max_examples=examples(150))
@given(before=trees(), wanted=trees(), step=st.integers(0, 30), took_effect=st.booleans())
def test_killed_after_any_step_it_ends_the_same_and_no_limit_was_tighter_than_before_or_wanted(
    before: Tree, wanted: Tree, step: int, took_effect: bool
) -> None:
    kernel = RuledKernel(before)

    def kill(_file: CgroupFile, number: int) -> None:
        if number == step:
            raise Killed

    if took_effect:
        kernel.after_write = kill
    else:
        kernel.before_write = kill
    try:
        executor(kernel).apply(plans(wanted, 0), 0)
    except Killed:
        for file, value in kernel.files.items():
            assert is_at_least(file, value, looser(file, before[file], wanted[file])), file.key
    kernel.before_write = kernel.after_write = lambda _file, _number: None
    outcomes = executor(kernel).apply(plans(wanted, 1_000), 1_000)
    assert kernel.broken_rules == [], "the order of writes was always one that the kernel accepts"
    assert kernel.files == wanted
    assert all(outcome.held and outcome.result in (Result.WRITTEN, Result.UNCHANGED) for outcome in outcomes)


@settings(max_examples=examples(100))
@given(
    before=trees(),
    wanted=trees(),
    victim=st.sampled_from(DIRECTORIES),
    code=st.sampled_from([errno.EINVAL, errno.EBUSY, errno.ENOSPC]),
)
def test_a_refused_write_holds_back_what_depends_on_it_and_heals_when_the_kernel_takes_it_again(
    before: Tree, wanted: Tree, victim: str, code: int
) -> None:
    kernel = RuledKernel(before)

    def refuse(file: CgroupFile, _number: int) -> None:
        if file.directory == victim and file.resource in (CPUS, QUOTA):
            raise WriteFailed(f"{file.key}: {errno.errorcode[code]}")

    kernel.before_write = refuse
    run = executor(kernel)
    run.apply(plans(wanted, 0), 0)
    assert kernel.broken_rules == [], "nothing was tried that had to fail because of the first refusal"
    for file, value in kernel.files.items():
        assert is_at_least(file, value, looser(file, before[file], wanted[file])), file.key
    kernel.before_write = lambda _file, _number: None
    run.apply(plans(wanted, 1_000), 1_000)
    assert kernel.files == wanted


@settings(max_examples=examples(50))
@given(before=trees(), wanted=trees(), gone_at=st.integers(0, 10))
def test_a_pod_that_ends_in_mid_plan_is_no_failure_and_the_others_get_their_values(
    before: Tree, wanted: Tree, gone_at: int
) -> None:
    kernel = RuledKernel(before)

    def end_pod(_file: CgroupFile, number: int) -> None:
        if number >= gone_at:
            for file in [f for f in kernel.files if f.directory.startswith("kubepods/podA")]:
                del kernel.files[file]

    kernel.before_write = end_pod
    outcomes = executor(kernel).apply(plans(wanted, 0), 0)
    assert {o.result for o in outcomes} <= {Result.WRITTEN, Result.UNCHANGED, Result.IGNORED}
    assert {f: v for f, v in kernel.files.items() if "podA" not in f.directory} == {
        f: v for f, v in wanted.items() if "podA" not in f.directory
    }


def test_files_that_vanish_between_list_and_read_are_ignored_and_looked_at_again() -> None:
    file = CgroupFile("kubepods/podA", QUOTA)
    kernel = RuledKernel({file: "-1"})
    run = executor(kernel)

    def vanish(_file: CgroupFile, _number: int) -> None:
        raise Vanished("gone")

    kernel.before_write = vanish
    (outcome,) = run.apply(plans({file: "100000"}, 0), 0)
    assert outcome.result is Result.IGNORED
    kernel.before_write = lambda _file, _number: None
    (outcome,) = run.apply(plans({file: "100000"}, 1), 1)
    assert outcome.result is Result.WRITTEN


@pytest.mark.parametrize(
    "file",
    [
        CgroupFile("system.slice", QUOTA),
        CgroupFile("kubepods/../system.slice", QUOTA),
        CgroupFile("", QUOTA),
        CgroupFile("/kubepods", QUOTA),
        CgroupFile("kubepodsX/pod", QUOTA),
    ],
)
def test_nothing_outside_the_trees_is_ever_written(file: CgroupFile) -> None:
    kernel = RuledKernel({file: "-1"})
    (outcome,) = executor(kernel).apply(plans({file: "100000"}, 0), 0)
    assert outcome.result is Result.REFUSED
    assert kernel.writes == []


def test_an_empty_cpu_list_is_refused_before_the_kernel_sees_it() -> None:
    file = CgroupFile("kubepods/podA", CPUS)
    kernel = RuledKernel({file: "0-3"})
    (outcome,) = executor(kernel).apply(plans({file: ""}, 0), 0)
    assert outcome.result is Result.REFUSED
    assert kernel.files[file] == "0-3"
