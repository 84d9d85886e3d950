"""Suppression decisions: order of checks, explanation, and what no decision may do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.plans.plan import Band, require_inside
from koord_agent.domain.strategies.be_cpuset import CpuOwners, choose_be_cpus, select_cpus
from koord_agent.domain.strategies.cpu_suppress import (
    Action,
    BeCgroup,
    NodeView,
    PodCpu,
    SuppressMemory,
    decide,
    next_quota_us,
)
from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.values.topology import CpuPlace

BE_ROOT = "kubepods/besteffort"
QUOTA = ThresholdStrategy(enable=True, cpu_suppress_threshold_percent=65, cpu_suppress_policy="cfsQuota")
CPUSET = ThresholdStrategy(enable=True, cpu_suppress_threshold_percent=65, cpu_suppress_policy="cpuset")
ALL_CPUS = frozenset(range(20))
OWNERS = CpuOwners(cpus=tuple(CpuPlace(cpu=i, core=i // 2, socket=0, node=0) for i in range(20)))


def view(*, ls: float = 8.0, be: float = 2.0, node: float | None = 11.0, quota: int | None = -1) -> NodeView:
    """A node of 20 cores with one pod of each class, 1 core of system."""
    return NodeView(
        now_ms=1_000,
        capacity_milli=20_000,
        reserved_milli=0,
        node_cpu_used_cores=node,
        pods=(
            PodCpu(is_best_effort=False, cpu_used_cores=ls),
            PodCpu(is_best_effort=True, cpu_used_cores=be),
        ),
        be_root=BE_ROOT,
        be_quota_us=quota,
    )


def test_the_decision_carries_its_formula_and_says_what_it_does() -> None:
    decision = decide(view(quota=800_000), QUOTA)
    assert decision.terms is not None
    assert decision.terms.budget_milli == 20_000 * 65 // 100 - 8_000 - 1_000
    assert (decision.old_quota_us, decision.new_quota_us) == (800_000, 400_000)
    assert decision.reason == (
        "BE may use 4 cores = 20 x 65% - pods 8 - host applications 0 - system 1 (reserved 0);"
        " quota 8 cores -> 4 cores (target)"
    )
    (plan,) = decision.plans
    assert (plan.file.key, plan.value, plan.band) == ("kubepods/besteffort/cpu.cfs_quota_us", "400000", Band.SUPPRESS)


@pytest.mark.parametrize(
    ("changed", "policy", "reason"),
    [
        ({}, None, "no valid suppression policy"),
        ({"capacity_milli": 0}, QUOTA, "capacity is unknown"),
        ({"pods": ()}, QUOTA, "no pods"),
        ({"node_cpu_used_cores": None}, QUOTA, "no recent sample"),
        ({"node_cpu_used_cores": float("nan")}, QUOTA, "no recent sample"),
        ({"node_cpu_used_cores": float("inf")}, QUOTA, "no recent sample"),
        ({"be_quota_us": None}, QUOTA, "unreadable"),
        ({"be_quota_us": -7}, QUOTA, "unreadable"),
        ({}, CPUSET, "topology"),
    ],
)
def test_a_round_without_its_inputs_changes_nothing_and_says_why(
    changed: dict[str, object], policy: ThresholdStrategy | None, reason: str
) -> None:
    decision = decide(replace(view(quota=500_000), **changed), policy)
    assert decision.action is Action.NONE
    assert decision.plans == ()
    assert reason in decision.reason


def test_switched_off_it_gives_back_what_it_took_once() -> None:
    off = ThresholdStrategy(enable=False)
    held = replace(
        view(quota=300_000), be_cgroups=(BeCgroup(directory=BE_ROOT, cpuset=frozenset({0, 1})),), owners=OWNERS
    )
    first = decide(held, off)
    assert first.action is Action.RECOVER
    assert {plan.file.resource: plan.value for plan in first.plans} == {"cpu.cfs_quota_us": "-1", "cpuset.cpus": "0-19"}
    assert all(plan.band is Band.RECOVER for plan in first.plans)
    # somebody else's quota, set after the recovery, stays
    restored = replace(held, be_cgroups=(BeCgroup(directory=BE_ROOT, cpuset=ALL_CPUS),))
    assert decide(restored, off, first.memory).plans == ()


def test_switching_to_quota_gives_the_cpu_lists_back() -> None:
    pod = f"{BE_ROOT}/pod1"
    held = replace(
        view(),
        be_cgroups=(
            BeCgroup(directory=BE_ROOT, cpuset=frozenset({0, 1})),
            BeCgroup(directory=pod, cpuset=frozenset({0, 1})),
        ),
        owners=replace(OWNERS, by_qos_label={5: "LSE"}),
    )
    decision = decide(held, QUOTA)
    assert {plan.file.key: plan.value for plan in decision.plans} == {
        f"{BE_ROOT}/cpu.cfs_quota_us": "400000",
        f"{BE_ROOT}/cpuset.cpus": "0-4,6-19",
        f"{pod}/cpuset.cpus": "0-4,6-19",
    }


def test_switching_to_cpuset_lifts_the_quota_once() -> None:
    held = replace(view(quota=300_000), be_cgroups=(BeCgroup(directory=BE_ROOT, cpuset=ALL_CPUS),), owners=OWNERS)
    first = decide(held, CPUSET, SuppressMemory())
    assert [plan.value for plan in first.plans if plan.file.resource == "cpu.cfs_quota_us"] == ["-1"]
    assert not [plan for plan in decide(held, CPUSET, first.memory).plans if plan.file.resource == "cpu.cfs_quota_us"]


@pytest.mark.parametrize("is_topology_known", [True, False])
def test_on_two_cpus_the_quota_takes_the_place_of_cpu_lists(is_topology_known: bool) -> None:
    cpus = OWNERS.cpus[:2]
    of_two = replace(
        view(node=1.9, quota=-1),
        capacity_milli=2_000,
        pods=(PodCpu(is_best_effort=True, cpu_used_cores=1.4), PodCpu(is_best_effort=False, cpu_used_cores=0.5)),
        owners=replace(OWNERS, cpus=cpus) if is_topology_known else None,
        be_cgroups=(BeCgroup(directory=BE_ROOT, cpuset=frozenset(cpu.cpu for cpu in cpus)),),
    )
    decision = decide(of_two, CPUSET)
    assert {plan.file.resource: plan.value for plan in decision.plans} == {"cpu.cfs_quota_us": "80000"}
    assert decision.reason.endswith("; by quota, because a CPU list has at least 2 CPUs")
    assert decide(replace(of_two, be_quota_us=80_000), CPUSET).plans == ()


@pytest.mark.parametrize(
    ("lse", "reserved", "chosen", "said"),
    [
        # BE has 0-7 of 16 CPUs; koordinator#234
        (range(12), (), "12-15", "10 wanted, no other is left"),
        (range(12), (13, 15), "12,14", "10 wanted, no other is left"),
        (range(15), (), "15", "10 wanted, no other is left"),
        (range(16), (), None, "no CPU is left for best effort"),
        (range(6), (), "6-15", "CPUs 0-7 -> 6-15"),
    ],
)
def test_best_effort_takes_what_is_left(lse: range, reserved: tuple[int, ...], chosen: str | None, said: str) -> None:
    """CPUs of LSE pods are exclusive: best effort leaves them at once, also if fewer CPUs than wanted are left."""
    owners = CpuOwners(cpus=OWNERS.cpus[:16], by_qos_label=dict.fromkeys(lse, "LSE"), reserved=frozenset(reserved))
    seen = replace(
        view(node=0.0),
        capacity_milli=16_000,
        pods=(PodCpu(is_best_effort=True, cpu_used_cores=0.0),),
        be_cgroups=(BeCgroup(directory=BE_ROOT, cpuset=frozenset(range(8))),),
        owners=owners,
    )
    decision = decide(seen, CPUSET)
    assert decision.want_cpus == 10
    written = [plan.value for plan in decision.plans if plan.file.resource == "cpuset.cpus"]
    assert written == ([] if chosen is None else [chosen])
    assert said in decision.reason


def test_a_usage_that_is_no_number_counts_as_no_sample() -> None:
    seen = replace(view(node=2.0), pods=(PodCpu(is_best_effort=False, cpu_used_cores=1.0),))
    broken = (*seen.pods, PodCpu(is_best_effort=False, cpu_used_cores=float("nan")))
    assert decide(replace(seen, pods=broken), QUOTA).terms == decide(seen, QUOTA).terms


def test_a_cpu_that_is_listed_twice_counts_once() -> None:
    twice = OWNERS.cpus[:3] + OWNERS.cpus[:1]
    assert select_cpus(3, twice) == {cpu.cpu for cpu in OWNERS.cpus[:3]}
    assert select_cpus(4, twice) == frozenset(), "there are three"


def test_under_a_static_kubelet_only_containers_are_narrowed() -> None:
    container = f"{BE_ROOT}/pod1/c"
    held = replace(
        view(),
        kubelet_static=True,
        owners=OWNERS,
        be_cgroups=(
            BeCgroup(directory=BE_ROOT, cpuset=ALL_CPUS),
            BeCgroup(directory=f"{BE_ROOT}/pod1", cpuset=ALL_CPUS),
            BeCgroup(directory=container, cpuset=ALL_CPUS, is_container=True),
        ),
    )
    values = {plan.file.directory: plan.value for plan in decide(held, CPUSET).plans}
    assert values == {BE_ROOT: "0-19", f"{BE_ROOT}/pod1": "0-19", container: "0-3"}


budgets = st.integers(-500_000, 500_000)
quotas = st.one_of(st.just(-1), st.integers(0, 10**8))


@given(budget=budgets, current=quotas, cores=st.integers(1, 256))
def test_quota_is_never_below_the_floor_and_never_jumps_up(budget: int, current: int, cores: int) -> None:
    quota, _ = next_quota_us(budget, current, cores * 1000)
    target = max(budget * 100, 2_000)
    if quota != current:
        assert quota >= 2_000
    if current >= 0:
        assert quota - current <= cores * 10_000
    if target < current - cores * 1_000:
        assert quota == target, "lowering is immediate"


@given(budget=budgets, cores=st.integers(1, 256), start=quotas)
def test_repeated_rounds_settle_at_the_target(budget: int, cores: int, start: int) -> None:
    """A steady budget is reached within the dead band, in at most ten steps of 10 % plus one of lowering."""
    budget = min(budget, cores * 1000)
    current = start
    for _ in range(12):
        current, _ = next_quota_us(budget, current, cores * 1000)
    target = max(budget * 100, 2_000)
    assert current == target or abs(current - target) < cores * 1_000


usages = st.one_of(st.none(), st.floats(0, 300))


@given(
    pods=st.lists(st.builds(PodCpu, is_best_effort=st.booleans(), cpu_used_cores=usages), max_size=6),
    node=usages,
    quota=st.one_of(st.none(), quotas),
    policy=st.builds(
        ThresholdStrategy,
        enable=st.booleans(),
        cpu_suppress_threshold_percent=st.integers(0, 100),
        cpu_suppress_min_percent=st.one_of(st.none(), st.integers(0, 100)),
        cpu_suppress_policy=st.sampled_from(["cpuset", "cfsQuota"]),
    ),
    old=st.frozensets(st.integers(0, 19)),
    labels=st.dictionaries(st.integers(0, 19), st.sampled_from(["LSE", "LSR", "LS", ""])),
    reserved=st.frozensets(st.integers(0, 19), max_size=6),
)
def test_no_plan_leaves_the_best_effort_tree(
    pods: list[PodCpu],
    node: float | None,
    quota: int | None,
    policy: ThresholdStrategy,
    old: frozenset[int],
    labels: dict[int, str],
    reserved: frozenset[int],
) -> None:
    owners = replace(OWNERS, by_qos_label=labels, reserved=reserved)
    looked_at = replace(
        view(node=node, quota=quota),
        pods=tuple(pods),
        owners=owners,
        be_cgroups=(BeCgroup(directory=BE_ROOT, cpuset=old), BeCgroup(directory=f"{BE_ROOT}/pod1", cpuset=old)),
    )
    decision = decide(looked_at, policy)
    assert decide(looked_at, policy) == decision, "a pure function"
    for plan in decision.plans:
        require_inside(plan.file.directory, [BE_ROOT])
        if plan.file.resource == "cpu.cfs_quota_us":
            assert int(plan.value) == -1 or int(plan.value) >= 2_000
        else:
            assert plan.value, "an empty CPU list would stop every best-effort pod"


@given(want=st.integers(0, 30), labels=st.dictionaries(st.integers(0, 19), st.sampled_from(["LSE", "LSR", "LS"])))
def test_chosen_cpus_never_touch_lse_nor_reserved_ones(want: int, labels: dict[int, str]) -> None:
    owners = replace(OWNERS, by_qos_label=labels, reserved=frozenset({3, 4}))
    chosen = choose_be_cpus(want, owners)
    assert len(chosen) <= want
    assert not chosen & {3, 4}
    assert not chosen & {cpu for cpu, label in labels.items() if label == "LSE"}


@given(count=st.integers(0, 40))
def test_selection_gives_exactly_what_is_asked_or_nothing(count: int) -> None:
    chosen = select_cpus(count, OWNERS.cpus)
    assert len(chosen) == (count if count <= 20 else 0)
