"""The table of extension points: the example package exercises every one, and what is derived from it holds."""

import importlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.config.catalogue import BUILT_IN, known_plugin
from koord_scheduler.domain.config.effective import effective_configuration
from koord_scheduler.domain.framework.cycle_points import Views
from koord_scheduler.domain.framework.extension_points import EXTENSION_POINTS, FILTER
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.plugin import Plugin, Point, checked
from koord_scheduler.domain.loop.controllers import status_facts
from koord_scheduler.domain.loop.profiles import frameworks_of
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.shell.debugging import DebugFlags, DecisionLog
from koord_scheduler.shell.routes import routes
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.objects import Pod
from koordcore.service.telemetry.logging import logger, set_level
from koordcore.values.invalid import InvalidInput
from support.scheduler.plugins import MadeUp, shipped_with
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata

EXAMPLE = Path(__file__).parents[4] / "examples" / "scheduler_plugin" / "src"
DOCUMENT = Path(__file__).parents[4] / "docs" / "scheduler-plugins.md"
CONFIGURATION = b"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    multiPoint: {enabled: [{name: TourOfNodes}, {name: TourOfSelectors}, {name: TourOfCycle}]}
    filter: {disabled: [{name: NodeResourcesFit}]}
"""


@pytest.fixture
def tour(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the example package with a plugin for each extension point."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    return importlib.import_module("cheap_nodes.tour")


def counting_state(tour: Any) -> tuple[SchedulerState, Counter[str], list[Plugin]]:
    """A scheduler with the plugins of the tour, and what counts the calls of all three."""
    calls: Counter[str] = Counter()
    made: list[Plugin] = []

    def maker(kind: Any) -> Any:
        def make(_: object, __: object) -> Any:
            plugin = kind()
            plugin.calls = calls
            made.append(plugin)
            return plugin

        return make

    kinds = (tour.TourOfNodes, tour.TourOfSelectors, tour.TourOfCycle)
    configuration = effective_configuration(CONFIGURATION, {**BUILT_IN, **{k.name: known_plugin(k) for k in kinds}})
    more = {kind.name: maker(kind) for kind in kinds}
    return SchedulerState(frameworks_of(configuration, SchedulerGates(resize_pod=True), more=more)), calls, made


def test_the_example_package_exercises_every_extension_point(tour: Any) -> None:
    log = SmallLog()
    scheduler = Scheduler(log)
    scheduler.state, calls, made = counting_state(tour)
    assert {point for plugin in made for point in plugin.extension_points} == set(EXTENSION_POINTS)
    for name in "ab":
        log.add_node(node(name, labels={"name": name}))
    log.add_pod(pod("plain", {"cpu": "1"}))
    scheduler.run()
    assert not calls.keys() & {"pre_enqueue", "pre_filter", "reserve", "filter_for", "before_filter"}, "concerns"
    for uid, step in (("p", "goes"), ("late", "late"), ("refused", "refused")):
        log.add_pod(with_metadata(pod(uid, {"cpu": "1"}), labels={tour.TOUR: step}))
    elsewhere = pod("elsewhere", {"cpu": "1"}, nodeSelector={"name": "c"})
    log.add_pod(with_metadata(elsewhere, labels={tour.TOUR: "goes"}))
    scheduler.run()
    log.add_node(node("c", labels={"name": "c"}))
    scheduler.run(now=60.0)
    assert scheduler.state.pods["elsewhere"].node == "c"
    assert scheduler.state.has_room(scheduler.state.cluster.pod_classes.read(pod("new", {"cpu": "3"})).subject)
    report = NodeUsageReported(
        node_usage=Usage(cpu_milli=1, memory_bytes=1),
        updated_at="2026-01-01T00:00:00Z",
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
    )
    scheduler.state.frameworks.observe("a", report)
    scheduler.state.frameworks.advance(60.0)
    status_facts(scheduler.state, 60.0)
    decision_log = DecisionLog(
        DebugFlags(), scheduler.state.frameworks, logger("test"), queue_size=1, set_level=set_level
    )
    pages = routes(scheduler.state, configuration={}, decision_log=decision_log, is_leader=lambda: True)
    assert any("TourOfCycle/calls" in str(page) for page in pages)
    again, restored, _ = counting_state(tour)
    load_state(again, b"".join(Picture(scheduler.state).pieces()))
    calls += restored
    missing = {
        f"{point}: {member}"
        for point in EXTENSION_POINTS
        for member in point.members
        if member in dir(tour.TourOfCycle) and callable(getattr(tour.TourOfCycle, member, None)) and not calls[member]
    }
    assert missing <= {"Controller: control_due"}
    assert {
        "filter",
        "row_filter",
        "checks_of",
        "score",
        "row_score",
        "read",
        "put_node",
        "took",
        "settle",
    } <= calls.keys()


class Showing(MadeUp):
    """Shows some pods other nodes than there are, and others nothing."""

    name = "Showing"

    def concerns(self, pod: Pod) -> bool:
        return "shown" in pod.metadata.labels

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        return None


def test_an_event_on_a_node_wakes_only_the_pods_that_a_transforming_plugin_concerns() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="1"))
    scheduler = shipped_with(log, Showing)
    for number in range(3):
        log.add_pod(pod(f"plain-{number}", {"cpu": f"{8 + number}"}))
    log.add_pod(with_metadata(pod("shown", {"cpu": "8"}), labels={"shown": ""}))
    scheduler.run()
    attempts = {uid: scheduler.state.queue.get(uid) for uid in scheduler.state.pods}
    before = {uid: queued.attempts for uid, queued in attempts.items() if queued is not None}
    log.add_node(node("b", cpu="2"))
    scheduler.run(now=60.0)
    after = {uid: queued.attempts for uid, queued in attempts.items() if queued is not None}
    assert {uid for uid in after if after[uid] > before[uid]} == {"shown"}


def test_in_tree_plugins_declare_what_they_implement() -> None:
    plugins = frameworks().first.profile.plugins
    for point in EXTENSION_POINTS:
        for plugin in plugins.at(point):
            assert checked(plugin) is plugin


def test_a_plugin_that_lacks_what_it_declares_is_refused_by_name() -> None:
    class Half:
        name = "Half"
        extension_points = (FILTER,)

    with pytest.raises(InvalidInput, match=r"filter, reads, reasons, unresolvable.*Filter"):
        checked(Half())

    class Silent:
        name = "Silent"

    with pytest.raises(InvalidInput, match="extension_points"):
        checked(Silent())


def test_names_and_labels_are_unique() -> None:
    names = [point.name for point in EXTENSION_POINTS]
    labels = [label for point in EXTENSION_POINTS for label in point.timed.values()]
    assert len(set(names)) == len(names)
    assert len(set(labels)) == len(labels)
    assert all(method in point.members for point in EXTENSION_POINTS for method in point.timed)


def test_the_document_has_the_table() -> None:
    text = DOCUMENT.read_text()
    for point in EXTENSION_POINTS:
        place = f"`{point.enabled_at}`" if isinstance(point.enabled_at, Point) else ""
        methods = ", ".join(f"`{member}`" for member in point.members)
        assert f"| {point.name} | {place} | {methods} | {point.asked} | {point.answers} |" in text
