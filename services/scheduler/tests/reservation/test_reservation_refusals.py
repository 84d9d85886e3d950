"""What a pod without a node is told about Reservations, preemption for them, their host ports, metrics and pages."""

import json
from typing import Any, cast

from koord_scheduler.domain.framework.extension_points import PAGES
from koord_scheduler.shell.collectors import StateFigures
from koordcore.events.explanations import PodUnschedulable
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.state.aggregates import NodeLedger, PodState
from koordcore.values.timestamps import unix_seconds
from prometheus_client import CollectorRegistry
from support.scheduler.reservations import CREATED, ReservingScheduler, fold_of, reservation, reserve, status
from support.scheduler.scheduling import SmallLog, node, pod, with_metadata

T0 = unix_seconds(CREATED)
PREEMPTING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - name: Reservation
    args:
      enablePreemption: true
      reservationSelectorIndex: {enabled: true, keys: [team], keyPrefixes: [example.com/]}
  plugins:
    multiPoint: {enabled: [{name: Reservation}]}
    postFilter: {disabled: [{name: "*"}], enabled: [{name: Reservation}]}
"""


def web(uid: str, cpu: str = "1", affinity: Any = None, **more: Any) -> Pod:
    annotations = {} if affinity is None else {keys.RESERVATION_AFFINITY: json.dumps(affinity)}
    return with_metadata(pod(uid, {"cpu": cpu}, **more), labels={"app": "web"}, annotations=annotations)


def started(configuration: str = "", **nodes: str) -> tuple[SmallLog, ReservingScheduler]:
    log = SmallLog()
    for name, cpu in (nodes or {"n": "4"}).items():
        log.add_node(node(name, cpu=cpu))
    return log, ReservingScheduler(log, configuration)


def last_message(scheduler: ReservingScheduler, uid: str) -> str:
    events = [each.event for each in scheduler.explanations if each.uid == uid]
    assert isinstance(events[-1], PodUnschedulable)
    return events[-1].message


def placed_on(log: SmallLog) -> dict[str, str]:
    return {uid: state.node for uid, state in fold_of(log).of_kind(PodState).items() if state.node}


def test_a_refused_pod_is_told_how_many_reservations_each_rule_forbids() -> None:
    log, scheduler = started(a="4", b="4", c="4")
    taint = {"key": "team", "value": "red", "effect": "NoSchedule"}
    reserve(
        log, reservation("closed", {"cpu": "1"}, template={"nodeName": "a"}, unschedulable=True, allocateOnce=False)
    )
    reserve(log, reservation("tainted", {"cpu": "1"}, template={"nodeName": "b"}, taints=[taint], allocateOnce=False))
    reserve(
        log, reservation("other", {"cpu": "1"}, template={"nodeName": "c"}, labels={"team": "blue"}, allocateOnce=False)
    )
    scheduler.live(T0)
    log.add_pod(web("p", affinity={"reservationSelector": {"team": "green"}}))
    scheduler.live(T0)
    assert (
        "node(s) no reservations match reservation affinity, 1 Reservation(s) didn't match affinity rules, "
        "1 Reservation(s) is unschedulable, 1 Reservation(s) had untolerated taint {team: red}, "
        "3 Reservation(s) matched owner total"
    ) in last_message(scheduler, "p")


def test_a_pod_that_fits_no_matched_reservation_is_told_the_reason_of_the_node() -> None:
    log, scheduler = started()
    reserve(log, reservation("r", {"cpu": "1"}, allocateOnce=False))
    scheduler.live(T0)
    log.add_pod(web("p", "6", affinity={"name": "r"}))
    scheduler.live(T0)
    message = last_message(scheduler, "p")
    assert "1 Reservation(s) exactly matches the requested reservation name" in message
    assert "1 Reservation(s) for node reason that Insufficient cpu by node" in message
    assert message.endswith("1 Reservation(s) matched owner total.")


def test_a_pod_that_no_reservation_is_for_is_told_nothing_about_them() -> None:
    log, scheduler = started()
    reserve(log, reservation("r", {"cpu": "1"}, allocateOnce=False))
    log.add_pod(pod("p", {"cpu": "6"}))
    scheduler.live(T0)
    assert "Reservation(s)" not in last_message(scheduler, "p")


def test_a_reservation_evicts_pods_of_lower_priority_if_that_is_enabled() -> None:
    for configuration, evicts in ((PREEMPTING, True), ("", False)):
        log, scheduler = started(configuration)
        log.add_pod(pod("low", {"cpu": "3"}, priority=10))
        scheduler.live(T0)
        reserve(log, reservation("r", {"cpu": "3"}, template={"priority": 100}))
        scheduler.live(T0)
        scheduler.live(T0 + 60)
        assert ("low" not in placed_on(log)) is evicts
        assert (status(log).phase == "Available") is evicts


def test_a_label_protects_a_pod_from_preemption_for_a_reservation() -> None:
    log, scheduler = started(PREEMPTING)
    protected = with_metadata(pod("low", {"cpu": "3"}, priority=10), labels={keys.DISABLE_PREEMPTIBLE: "true"})
    log.add_pod(protected)
    scheduler.live(T0)
    reserve(log, reservation("r", {"cpu": "3"}, template={"priority": 100}))
    scheduler.live(T0)
    scheduler.live(T0 + 60)
    assert placed_on(log) == {"low": "n"}
    (condition,) = status(log).conditions
    assert "preemption: " in condition.message


def test_an_owner_preempts_for_a_full_reservation_and_gets_its_amounts() -> None:
    log, scheduler = started(PREEMPTING)
    reserve(log, reservation("r", {"cpu": "3"}, allocateOnce=False))
    scheduler.live(T0)
    log.add_pod(web("first", "3", priority=10))
    scheduler.live(T0)
    log.add_pod(web("second", "3", priority=100))
    scheduler.live(T0)
    scheduler.live(T0 + 60)
    assert placed_on(log) == {"uid-r": "n", "second": "n"}
    assert fold_of(log).of_kind(NodeLedger)["n"].requested["cpu"] == 3000


PORT = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}


def with_port(uid: str) -> Pod:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}, **PORT["containers"][0]}
    return pod(uid, containers=[container])


def test_the_host_port_of_a_reservation_is_for_one_owner() -> None:
    log, scheduler = started()
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}, "ports": PORT["containers"][0]["ports"]}
    reserve(log, reservation("r", template={"containers": [container]}, allocateOnce=False))
    scheduler.live(T0)
    log.add_pod(with_port("other"))
    for uid in ("first", "second"):
        log.add_pod(with_metadata(with_port(uid), labels={"app": "web"}))
        scheduler.live(T0)
    assert placed_on(log) == {"uid-r": "n", "first": "n"}
    log.remove_pod("first")
    scheduler.live(T0 + 600)
    scheduler.live(T0 + 1200)
    assert placed_on(log) == {"uid-r": "n", "second": "n"}


def test_metrics_show_the_phase_and_the_amounts_of_reservations() -> None:
    log, scheduler = started()
    reserve(log, reservation("r", {"cpu": "2", "memory": "2Gi"}, allocateOnce=False))
    reserve(log, reservation("big", {"cpu": "20"}))
    scheduler.live(T0)
    log.add_pod(web("owner", "500m"))
    scheduler.live(T0)
    registry = CollectorRegistry()
    registry.register(StateFigures(scheduler.state))
    value = registry.get_sample_value
    phases = {
        (name, phase): value("scheduler_reservation_status_phase", {"name": name, "phase": phase})
        for name in ("r", "big")
        for phase in ("Pending", "Available", "Succeeded", "Failed")
    }
    assert {key for key, shown in phases.items() if shown == 1} == {("r", "Available"), ("big", "Pending")}
    assert None not in phases.values()

    def amount(type_: str, resource: str, unit: str) -> float | None:
        labels = {"type": type_, "name": "r", "resource": resource, "unit": unit}
        return value("scheduler_reservation_resource", labels)

    assert amount("allocatable", "cpu", "core") == 2
    assert amount("allocated", "cpu", "core") == 0.5
    assert amount("utilization", "cpu", "ratio") == 0.25
    assert amount("allocatable", "memory", "Gi") == 2


def test_the_page_of_the_selector_index_names_the_nodes_of_each_label_key() -> None:
    log, scheduler = started(PREEMPTING, a="4", b="4")
    labels = {"team": "blue", "example.com/rack": "1", "more": "x"}
    reserve(log, reservation("r1", template={"nodeName": "a"}, labels=labels, allocateOnce=False))
    reserve(log, reservation("r2", template={"nodeName": "b"}, labels={"team": "red"}, allocateOnce=False))
    scheduler.live(T0)
    (plugin,) = [
        each for each in scheduler.state.frameworks.first.profile.plugins.at(PAGES) if each.name == "Reservation"
    ]
    page = cast("dict[str, list[str]]", plugin.pages()["reservationSelectorIndex"]({}))
    assert page == {"example.com/rack": ["a"], "team": ["a", "b"]}


def test_metrics_count_pods_that_look_for_reservations_by_an_indexed_label() -> None:
    log, scheduler = started(PREEMPTING, a="4", b="4")
    reserve(log, reservation("r1", template={"nodeName": "a"}, labels={"team": "blue"}, allocateOnce=False))
    reserve(log, reservation("r2", template={"nodeName": "b"}, labels={"team": "red"}, allocateOnce=False))
    scheduler.live(T0)
    for uid, selector in (("blue", {"team": "blue"}), ("green", {"team": "green"}), ("other", {"unknown": "x"})):
        log.add_pod(web(uid, "1", {"reservationSelector": selector}))
        scheduler.live(T0)

    registry = CollectorRegistry()
    registry.register(StateFigures(scheduler.state))
    value, name = registry.get_sample_value, "scheduler_reservation_selector_index"
    assert placed_on(log)["blue"] == "a"
    assert [value(f"{name}_query_total", {"result": result}) for result in ("hit", "miss")] == [2, 1]
    assert value(f"{name}_candidates_count_count") == 2
    assert value(f"{name}_candidates_count_sum") == 1, "blue has one node, green has none"
