"""What CPI remembers stays small: samples of a workload, and workloads that are no more."""

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metric_kinds import CYCLES, INSTRUCTIONS, Kind
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.strategies.contention.cpi_detection import (
    DAY_MS,
    MINUTE_MS,
    MOST_SAMPLES,
    Baselines,
    CpiDetection,
    Workload,
)
from koordcore.events.nodestate import InterferenceDetected, InterferenceEnded
from koordcore.protocol.config.node_strategies import CpiDetector

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


def web(number: int, container: str) -> AgentPod:
    return agent_pod_from_json(
        {
            "metadata": {"name": f"web-{number}", "uid": f"web-{number}", "labels": {"koordinator.sh/qosClass": "LS"}},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"containerStatuses": [{"name": "main", "containerID": f"containerd://{container}"}]},
        }
    )


def test_contention_of_a_container_ends_when_another_one_takes_its_place() -> None:
    store, detection, facts = SeriesStore(), CpiDetection(), list[object]()
    for minute in range(112):
        now_ms, is_disturbed, container = minute * MINUTE_MS, minute >= 105, "c0" if minute < 111 else "next"
        pods = (web(0, container), *(web(number, f"c{number}") for number in range(1, 5)))
        for pod in pods:
            identity = pod.containers[0].container_id
            cycles = 4.0 if is_disturbed and identity == "containerd://c0" else 1.0 + minute % 2 / 10
            store.append(Kind.POD_CPU, now_ms, 1.0, pod.uid)
            store.append(Kind.CONTAINER_CPI, now_ms, cycles, (pod.uid, identity, CYCLES))
            store.append(Kind.CONTAINER_CPI, now_ms, 1.0, (pod.uid, identity, INSTRUCTIONS))
        look = NodeLook(
            now_ms=now_ms,
            node="n",
            layout=CgroupLayout(Driver.CGROUPFS),
            cgroup_version=1,
            metrics=Metrics(store=store, now_ms=now_ms, interval_ms=MINUTE_MS),
            pods=pods,
        )
        facts.extend(detection.take(look, CpiDetector(enable=True), lambda _: None))
    began, ended = facts
    assert isinstance(began, InterferenceDetected)
    assert isinstance(ended, InterferenceEnded)
    assert (began.contention, "the container is gone") == (ended.contention, ended.reason)
