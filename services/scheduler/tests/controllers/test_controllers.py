"""What the leader says of quotas and gangs: once, when it changed, whoever leads."""

from collections.abc import Mapping
from typing import Any

import pytest
from koord_scheduler.domain.loop.controllers import chosen_controllers, next_status_due, status_facts
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.known_state import Settings
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events.cluster import ClusterTopologyComputed
from koordcore.events.envelope import Event
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.values.invalid import InvalidInput
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node

REVOKING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    preFilter: {enabled: [{name: ElasticQuota}]}
    filter: {enabled: [{name: NodeResourcesFit}]}
    reserve: {enabled: [{name: ElasticQuota}]}
  pluginConfig:
  - name: ElasticQuota
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: ElasticQuotaArgs
      monitorAllQuotas: true
      delayEvictTime: 10s
      revokePodInterval: 1s
"""

LAYERS = [
    {"topologyLayer": "BlockLayer", "labelKey": ["block"]},
    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
]
KNOWN = frozenset({"Coscheduling", "ElasticQuota"})


def put(log: SmallLog, plural: str, namespace: str, name: str, **document: Any) -> None:
    meta = {"namespace": namespace, "name": name, **document.pop("metadata", {})}
    ref = custom_ref(plural, namespace, name)
    log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": meta, **document}))


def quota(log: SmallLog, name: str, maximum: Mapping[str, str], minimum: Mapping[str, str] | None = None) -> None:
    put(log, "elasticquotas", "team", name, spec={"max": dict(maximum), "min": dict(minimum or {})})


def member(uid: str, labels: dict[str, str] | None = None, *, priority: int = 0) -> Pod:
    return pod_from_json(
        {
            "metadata": {"namespace": "team", "name": uid, "uid": uid, "labels": labels or {}},
            "spec": {
                "priority": priority,
                "schedulerName": "koord-scheduler",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
            },
        }
    )


def of_quota(uid: str, name: str, *, priority: int = 0) -> Pod:
    return member(uid, {keys.QUOTA_NAME: name}, priority=priority)


def look(scheduler: Scheduler, now: float) -> list[Event]:
    """Follow the log, say what is to be said, and hear what the log has of it."""
    scheduler.run(now)
    status_writes = status_facts(scheduler.state, now)
    for write in status_writes:
        scheduler.state.status.writes.put(write)
    scheduler.run(now)
    return [event for write in status_writes for _, event in write.facts]


def quotas_of(said: list[Event]) -> dict[str, QuotaStatusComputed]:
    return {event.name: event for event in said if isinstance(event, QuotaStatusComputed)}


def test_quota_is_told_once_and_again_when_a_pod_uses_it() -> None:
    log = SmallLog()
    log.add_node(node("n", cpu="10"))
    quota(log, "a", {"cpu": "4"}, {"cpu": "2"})
    scheduler = Scheduler(log)
    said = quotas_of(look(scheduler, 1.0))
    assert said == {"a": QuotaStatusComputed(name="a", namespace="team")}
    assert look(scheduler, 2.0) == []
    log.add_pod(of_quota("p", "a"))
    said = quotas_of(look(scheduler, 3.0))
    assert (said["a"].used, said["a"].request, said["a"].runtime) == ({"cpu": 1000}, {"cpu": 1000}, {"cpu": 1000})


def test_nothing_is_said_of_the_built_in_quotas_that_nobody_wrote() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    log.add_pod(member("p"))
    assert look(Scheduler(log), 1.0) == []


def test_sibling_whose_runtime_moved_is_told_too() -> None:
    log = SmallLog()
    log.add_node(node("n", cpu="10"))
    quota(log, "a", {"cpu": "10"}, {"cpu": "5"})
    quota(log, "b", {"cpu": "10"}, {"cpu": "5"})
    for number in range(9):
        log.add_pod(of_quota(f"a{number}", "a"))
    scheduler = Scheduler(log)
    said = quotas_of(look(scheduler, 1.0))
    assert said["a"].runtime == {"cpu": 9000}
    for number in range(4):
        log.add_pod(of_quota(f"b{number}", "b"))
    said = quotas_of(look(scheduler, 2.0))
    assert said["a"].runtime == {"cpu": 6000}
    assert said["b"].runtime == {"cpu": 4000}


def test_quotas_are_looked_at_once_a_second() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    quota(log, "a", {"cpu": "4"})
    scheduler = Scheduler(log)
    look(scheduler, 1.0)
    log.add_pod(of_quota("p", "a"))
    assert look(scheduler, 1.5) == []
    assert next_status_due(scheduler.state) == 2.0
    assert quotas_of(look(scheduler, 2.0))["a"].used == {"cpu": 1000}
    assert next_status_due(scheduler.state) is None


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_next_leader_does_not_repeat_what_was_said(by_snapshot: bool) -> None:
    log = SmallLog()
    log.add_node(node("n"))
    quota(log, "a", {"cpu": "4"})
    put(log, "podgroups", "team", "g", spec={"minMember": 1})
    log.add_pod(of_quota("p", "a"))
    log.add_pod(member("m", {keys.POD_GROUP: "g"}))
    first = Scheduler(log)
    assert len(look(first, 1.0)) == 2
    assert look(first, 2.0) == []
    second = Scheduler(log)
    if by_snapshot:
        load_state(second.state, b"".join(Picture(first.state).pieces()))
    assert look(second, 3.0) == []


def test_snapshot_has_no_status_that_the_log_has_not_stored() -> None:
    log = SmallLog()
    log.add_node(node("n", labels={"block": "a"}))
    put(log, "clusternetworktopologies", "", "default", spec={"networkTopologySpec": LAYERS})
    quota(log, "a", {"cpu": "4"})
    expired = {"creationTimestamp": "1970-01-01T00:00:00Z"}
    put(log, "scheduleexplanations", "team", "why", metadata=expired, spec={"questionObjectKey": "team/p", "ttl": "1s"})
    first, second = Scheduler(log), Scheduler(log)
    for scheduler in (first, second):
        scheduler.state.settings = Settings(tells_topology=True)
    first.run(1.0)
    for write in status_facts(first.state, 1.0):
        first.state.status.writes.put(write)
    load_state(second.state, b"".join(Picture(first.state).pieces()))
    assert {type(event) for event in look(second, 2.0)} == {
        QuotaStatusComputed,
        ClusterTopologyComputed,
        ScheduleExplanationComputed,
    }
    third = Scheduler(log)
    load_state(third.state, b"".join(Picture(second.state).pieces()))
    assert look(third, 3.0) == [], "the log has them"


def test_quota_that_comes_back_under_its_name_is_told_anew() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    quota(log, "a", {"cpu": "4"})
    scheduler = Scheduler(log)
    look(scheduler, 1.0)
    ref = custom_ref("elasticquotas", "team", "a")
    log.say(ref.kind, ref.id, CustomObjectDeleted(kind="ElasticQuota", namespace="team", name="a"))
    assert look(scheduler, 2.0) == []
    quota(log, "a", {"cpu": "4"})
    assert list(quotas_of(look(scheduler, 3.0))) == ["a"]


def test_gang_goes_through_its_phases_as_its_members_do() -> None:
    log = SmallLog()
    log.add_node(node("n", cpu="10"))
    put(log, "podgroups", "team", "g", spec={"minMember": 2})
    scheduler = Scheduler(log)
    assert phases(look(scheduler, 1.0)) == [("Pending", 0)]
    log.add_pod(member("a", {keys.POD_GROUP: "g"}))
    log.add_pod(member("b", {keys.POD_GROUP: "g"}))
    assert phases(look(scheduler, 2.0)) == [("Scheduled", 2)]
    for uid in "ab":
        running = member(uid, {keys.POD_GROUP: "g"})
        running.status.phase = "Running"
        log.add_pod(running)
    assert phases(look(scheduler, 3.0)) == [("Running", 2)]


def phases(said: list[Event]) -> list[tuple[str, int]]:
    return [(event.phase, event.scheduled) for event in said if isinstance(event, GangPhaseChanged)]


def test_what_the_log_refuses_is_said_again() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    quota(log, "a", {"cpu": "4"})
    put(log, "podgroups", "team", "g", spec={"minMember": 1})
    scheduler = Scheduler(log)
    scheduler.run(1.0)
    facts = status_facts(scheduler.state, 1.0)
    assert len(facts) == 2
    for write in facts:
        scheduler.state.status.writes.put(write)
    scheduler.state.commits.withdraw_all()
    assert {type(event) for event in look(scheduler, 2.0)} == {QuotaStatusComputed, GangPhaseChanged}


def test_what_is_too_large_for_the_log_is_not_published_and_tried_again_only_when_it_changes() -> None:
    log = SmallLog()
    log.add_node(node("n", labels={"block": "a"}))
    put(log, "clusternetworktopologies", "", "default", spec={"networkTopologySpec": LAYERS})
    quota(log, "a", {"cpu": "4"})
    put(log, "podgroups", "team", "g", spec={"minMember": 1})
    scheduler = Scheduler(log)
    scheduler.state.settings = Settings(tells_topology=True)
    scheduler.run(1.0)
    for write in status_facts(scheduler.state, 1.0):
        scheduler.state.status.writes.put(write)
    refused: set[type[Event]] = set()
    while (taken := scheduler.state.status.next()) is not None:
        refused |= {type(event) for _, event in taken.write.facts}
        scheduler.state.status.refused(taken, for_good=True)
    assert refused == {QuotaStatusComputed, GangPhaseChanged, ClusterTopologyComputed}
    quotas, gangs = scheduler.state.books.quota, scheduler.state.books.gang
    assert (quotas.published, gangs.published, gangs.said_topology) == ({}, {}, None)
    assert look(scheduler, 100.0) == []
    log.add_node(node("m", labels={"block": "b"}))
    log.add_pod(member("p", {keys.POD_GROUP: "g", keys.QUOTA_NAME: "a"}))
    assert {type(event) for event in look(scheduler, 200.0)} == refused


def test_quota_over_its_runtime_for_too_long_gives_up_its_least_important_pods() -> None:
    log = SmallLog()
    log.add_node(node("n", cpu="10"))
    quota(log, "a", {"cpu": "10"}, {"cpu": "2"})
    quota(log, "b", {"cpu": "10"}, {"cpu": "6"})
    for number in range(8):
        log.add_pod(of_quota(f"a{number}", "a", priority=number))
    scheduler = Scheduler(log, REVOKING)
    look(scheduler, 1.0)
    for number in range(6):
        log.add_pod(of_quota(f"b{number}", "b"))
    assert evictions(look(scheduler, 5.0)) == []
    assert evictions(look(scheduler, 14.0)) == []
    asked = evictions(look(scheduler, 15.5))
    assert [event.name for event in asked] == ["a3", "a2", "a1", "a0"]
    assert {(event.method, event.reason) for event in asked} == {("evict", "QuotaOveruse")}
    assert asked[0].message == "quota a uses more than its runtime: cpu 8 of 4"
    assert evictions(look(scheduler, 16.6)) == []


def evictions(said: list[Event]) -> list[PodEvictionRequested]:
    return [event for event in said if isinstance(event, PodEvictionRequested)]


def test_controllers_are_chosen_as_the_flag_says() -> None:
    assert chosen_controllers(["*"], KNOWN) == {"Coscheduling", "ElasticQuota"}
    assert chosen_controllers(["*", "-ElasticQuota"], KNOWN) == {"Coscheduling"}
    assert chosen_controllers(["ElasticQuota", "Reservation"], KNOWN) == {"ElasticQuota"}
    with pytest.raises(InvalidInput, match="-NAME"):
        chosen_controllers(["-"], KNOWN)


def test_statuses_in_the_log_are_folded_by_a_state_that_leads_nobody() -> None:
    log = SmallLog()
    quota(log, "a", {"cpu": "4"})
    log.say("quota", "a", QuotaStatusComputed(name="a", namespace="team"))
    state = SchedulerState(frameworks())
    for stored in log.events:
        fold(state, stored)
    assert status_facts(state, 1.0) == []
