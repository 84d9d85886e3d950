"""A busy node does not flood the log: what is told of suppression and of knobs, and what is left to the audit log."""

from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.plans.arbiter import Loser, Loss, Winner
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.reporting.knob_summary import SAY_AFTER_MS, KnobSummary, KnobWrite
from koord_agent.domain.reporting.suppression_summary import SIGNIFICANT_PERCENT, SuppressionSummary
from koord_agent.domain.strategies.cpu_suppress import Action, Decision
from koordcore.events.nodestate import BeCpuReleased, BeCpuSuppressed

CAPACITY = 100_000
CORE_US = 100_000


def quota(old: int, new: int) -> Decision:
    action = Action.RECOVER if new == -1 else Action.CFS_QUOTA
    return Decision(action=action, reason="because", old_quota_us=old, new_quota_us=new)


def test_the_beginning_a_large_change_and_the_end_are_told_at_once_and_small_ones_together() -> None:
    summary = SuppressionSummary()
    first = summary.written(quota(-1, 50 * CORE_US), 0, CAPACITY)
    assert isinstance(first, BeCpuSuppressed)
    assert (first.old_quota_us, first.new_quota_us, first.writes) == (-1, 50 * CORE_US, 1)
    assert summary.written(quota(50 * CORE_US, 45 * CORE_US), 1_000, CAPACITY) is None
    assert summary.written(quota(45 * CORE_US, 48 * CORE_US), 2_000, CAPACITY) is None
    large = summary.written(quota(48 * CORE_US, 39 * CORE_US), 3_000, CAPACITY)
    assert isinstance(large, BeCpuSuppressed)
    assert (large.old_quota_us, large.new_quota_us) == (50 * CORE_US, 39 * CORE_US)
    assert (large.writes, large.lowest_us, large.highest_us) == (3, 39 * CORE_US, 48 * CORE_US)
    assert summary.written(quota(39 * CORE_US, 40 * CORE_US), 4_000, CAPACITY) is None
    assert summary.due(4_000) is None
    late = summary.due(3_000 + SAY_AFTER_MS)
    assert isinstance(late, BeCpuSuppressed)
    assert late.new_quota_us == 40 * CORE_US
    released = summary.written(quota(40 * CORE_US, -1), 999_999, CAPACITY)
    assert released == BeCpuReleased(old_quota_us=40 * CORE_US, reason="because")


@given(st.lists(st.integers(20, 1_000), min_size=2, max_size=60))
def test_what_was_told_last_is_never_far_from_what_is_in_force(cores: list[int]) -> None:
    summary, told, old = SuppressionSummary(), -1, -1
    for step, tenths in enumerate(cores):
        new = tenths * CORE_US // 10
        fact = summary.written(quota(old, new), step * 1_000, CAPACITY) if new != old else None
        old = new
        if isinstance(fact, BeCpuSuppressed):
            assert fact.old_quota_us == told
            told = fact.new_quota_us
        assert abs(told - new) < CAPACITY * 100 * SIGNIFICANT_PERCENT // 100


def test_writes_to_a_knob_become_one_change_and_a_losing_plan_is_named_once() -> None:
    file, silent = CgroupFile("kubepods/pod", "cpu.cfs_quota_us"), CgroupFile("kubepods/besteffort", "cpu.cfs_quota_us")
    summary = KnobSummary(silent=frozenset((silent,)))
    winner = Winner(file=file, value="2", plugins=("A",), band=Band.SUPPRESS, reason="r", asked="2", causes=("psi",))
    plan = Plan(plugin="B", band=Band.TUNING, file=file, value="9", created_ms=0, ttl_ms=1)
    loser = Loser(plan=plan, loss=Loss.OVERRIDDEN)
    assert summary.due(0) is None
    summary.add([KnobWrite(file=file, before="1", after="2", winner=winner)], failed=0)
    summary.add([KnobWrite(file=file, before="2", after="3", winner=winner)], failed=1)
    summary.add([KnobWrite(file=silent, before="-1", after="7")], failed=0)
    assert summary.lost([loser], {file: winner}) == (loser,)
    assert summary.lost([loser], {file: winner}) == (), "it goes on losing"
    fact = summary.due(SAY_AFTER_MS)
    assert fact is not None
    (change,) = fact.changes
    assert (fact.writes, fact.failed, change.old, change.new, change.writes) == (3, 1, "1", "3", 2)
    assert (change.strategies, change.causes) == (["A"], ["psi"])
    assert [(lost.strategy, lost.value, lost.loss) for lost in change.lost] == [("B", "9", "overridden")]
    assert summary.due(2 * SAY_AFTER_MS) is None, "nothing new"
