"""Traps that the reference fell into or lays (scheduler-core spec, 16), through the whole scheduler.

Those that one function decides have their tests there, or a vector:

    1, 2, 4, 5     test_quota_accounting, test_quota_properties, vectors elasticquota_runtime
    3, 6           test_quota_decisions, vectors elasticquota_admission and elasticquota_revoke
    7              gang.test_gangs (members of a NonStrict gang keep waiting)
    12 to 15       vectors loadaware_filter, loadaware_score, loadaware_estimate, test_loadaware_columns
    16             vectors gang_spec
    17, 18         test_config_effective (the shipped profile; a ConfigMap by either key)
    19             test_gang_cache (the debug view has the fields of today)
    20             test_gang_jobs (costs of unlabelled pods), and below
"""

from typing import Any

import msgspec
import pytest
from koord_scheduler.domain.loop.cycle.deciding import gated
from koordcore.events import CATALOGUE
from koordcore.events.explanations import PodGated
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata


def scheduler_of(*nodes: str, cpu: str = "8") -> Scheduler:
    log = SmallLog()
    for name in nodes:
        log.add_node(node(name, cpu=cpu))
    return Scheduler(log)


def submit(scheduler: Scheduler, *pods: Pod, now: float = 0.0) -> list[str]:
    """Returns who has a node."""
    for each in pods:
        scheduler.log.add_pod(each)
    scheduler.run(now)
    return sorted(uid for uid, record in scheduler.state.pods.items() if record.node)


def pod_group(log: SmallLog, name: str, least: int, **annotations: str) -> None:
    ref = custom_ref("podgroups", "default", name)
    document: dict[str, Any] = {
        "metadata": {"namespace": "default", "name": name, "annotations": annotations},
        "spec": {"minMember": least},
    }
    log.say(ref.kind, ref.id, CustomObjectObserved(object=document))


def of_group(uid: str, name: str = "g", cpu: str = "1", **spec: Any) -> Pod:
    return with_metadata(pod(uid, {"cpu": cpu}, **spec), labels={keys.POD_GROUP: name})


def test_8_pod_that_runs_before_its_pod_group_is_known_satisfies_it() -> None:
    scheduler = scheduler_of("a")
    submit(scheduler, of_group("early", nodeName="a"))
    pod_group(scheduler.log, "g", least=3)
    assert submit(scheduler, of_group("late")) == ["late"]


def test_9_gang_that_names_another_group_waits_with_that_one() -> None:
    scheduler = scheduler_of("a")
    pod_group(scheduler.log, "g", least=1, **{keys.GANG_GROUPS: '["default/g","default/h"]'})
    assert submit(scheduler, of_group("m0")) == []
    pod_group(scheduler.log, "g", least=1)
    assert submit(scheduler) == ["m0"]


def test_10_recreated_pod_group_knows_its_pods() -> None:
    scheduler = scheduler_of("a", cpu="1")
    pod_group(scheduler.log, "g", least=2)
    submit(scheduler, of_group("m0"), of_group("m1"))
    ref = custom_ref("podgroups", "default", "g")
    scheduler.log.say(ref.kind, ref.id, CustomObjectDeleted(kind="PodGroup", namespace="default", name="g"))
    scheduler.run(10.0)
    pod_group(scheduler.log, "g", least=2)
    scheduler.log.add_node(node("b", cpu="1"))
    scheduler.run(30.0)
    assert submit(scheduler, now=60.0) == ["m0", "m1"]


def test_11_member_may_wait_longer_than_a_quarter_of_an_hour() -> None:
    scheduler = scheduler_of("a", cpu="1")
    members = [
        with_metadata(
            pod(f"m{index}", {"cpu": "1"}),
            labels={keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"},
            annotations={keys.GANG_MODE: "NonStrict", keys.GANG_WAITING_TIME: "30m"},
        )
        for index in range(2)
    ]
    submit(scheduler, *members)
    waiting = scheduler.state.assumed.waiting.uids()
    scheduler.run(29 * 60.0)
    assert scheduler.state.assumed.waiting.uids() == waiting
    scheduler.run(31 * 60.0)
    assert scheduler.state.assumed.waiting.uids() != waiting


def test_20_victim_that_node_and_quota_both_need_goes_once() -> None:
    scheduler = scheduler_of("a", cpu="4")
    ref = custom_ref("elasticquotas", "default", "q")
    quota = {"metadata": {"namespace": "default", "name": "q"}, "spec": {"min": {"cpu": "4"}, "max": {"cpu": "4"}}}
    scheduler.log.say(ref.kind, ref.id, CustomObjectObserved(object=quota))

    def in_quota(uid: str, cpu: str, priority: int) -> Pod:
        return with_metadata(pod(uid, {"cpu": cpu}, priority=priority), labels={keys.QUOTA_NAME: "q"})

    submit(scheduler, in_quota("small", "1", 1), in_quota("large", "3", 2))
    submit(scheduler, in_quota("high", "3", 9), now=30.0)
    events = (CATALOGUE.read(stored) for stored in scheduler.log.events)
    assert [event.name for event in events if isinstance(event, PodEvictionRequested)] == ["large"]
    assert submit(scheduler, now=60.0) == ["high", "small"]


@pytest.mark.parametrize("resource", ["koordinator.sh/batch-cpu", "kubernetes.io/batch-cpu"])
def test_21_batch_resources_are_known_by_both_names(resource: str) -> None:
    log = SmallLog()
    log.add_node(node("old", more={"koordinator.sh/batch-cpu": "2000"}))
    scheduler = Scheduler(log)
    assert submit(scheduler, pod("p", {resource: "1500"})) == ["p"]
    assert submit(scheduler, pod("q", {resource: "1500"})) == ["p"]


def test_22_member_that_is_never_activated_is_told_why() -> None:
    scheduler = scheduler_of("a")
    pod_group(scheduler.log, "g", least=2)
    submit(scheduler, of_group("m0"))
    explanation = gated(scheduler.state)[0]
    assert isinstance(explanation.event, PodGated)
    assert "default/g(1/2)" in explanation.event.message


def test_22_member_whose_gang_is_complete_at_once_is_told_nothing() -> None:
    scheduler = scheduler_of("a")
    pod_group(scheduler.log, "g", least=2)
    submit(scheduler, of_group("m0"), of_group("m1"))
    assert gated(scheduler.state) == []


def test_23_pod_that_comes_back_under_its_name_is_another() -> None:
    scheduler = scheduler_of("a", cpu="2")
    pod_group(scheduler.log, "g", least=2)
    submit(scheduler, of_group("m0"), of_group("m1"))
    again = of_group("m1")
    meta = msgspec.structs.replace(again.metadata, uid="m1-again")
    scheduler.log.add_pod(msgspec.structs.replace(again, metadata=meta))
    assert submit(scheduler) == ["m0", "m1"]
    scheduler.log.remove_pod("m1")
    scheduler.run(30.0)
    assert submit(scheduler, now=60.0) == ["m0", "m1-again"]
