"""What CPI remembers stays small: samples of a workload, and workloads that are no more."""

from koord_agent.domain.qos.contention.cpi_baselines import DAY_MS, MINUTE_MS, MOST_SAMPLES, Baselines, Workload

WEB = Workload("ReplicaSet/web", "main")


def test_a_workload_of_a_former_release_is_forgotten_after_a_week() -> None:
    learnt = Baselines()
    for release in range(30):
        learnt.add(Workload(f"ReplicaSet/web-{release}", "main"), "t", 1.0, release * DAY_MS)
        learnt.forget_silent(release * DAY_MS)
    assert len(learnt) == 7


def test_old_samples_and_tasks_give_way_to_new_ones_and_the_baseline_follows() -> None:
    learnt = Baselines()
    for minute in range(2 * MOST_SAMPLES):
        value = 1.0 if minute < MOST_SAMPLES else 2.0
        learnt.add(WEB, f"task-{minute % 5 + minute // MOST_SAMPLES * 5}", value, minute * MINUTE_MS)
    assert learnt.threshold(WEB, 2 * MOST_SAMPLES * MINUTE_MS, 2.0) == 2.0


def test_without_enough_tasks_nothing_is_judged() -> None:
    learnt = Baselines()
    for minute in range(1_000):
        learnt.add(WEB, "only", 1.0, minute * MINUTE_MS)
    assert learnt.threshold(WEB, 1_000 * MINUTE_MS, 2.0) is None
    assert learnt.threshold(Workload("other", "main"), 0, 2.0) is None
