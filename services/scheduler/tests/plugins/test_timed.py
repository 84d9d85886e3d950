"""Some attempts are measured; the others meet the plugins as they are."""

import itertools
from collections.abc import Mapping, Sequence

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.engine.timed import measured
from koord_scheduler.domain.framework.cycle_points import Scored, Views
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.outcomes import Candidates, Failure, Rejection
from koord_scheduler.domain.framework.stopwatch import Status, Stopwatch, Timing
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.shell.folding import StateFold
from koord_scheduler.shell.observing import SchedulerMetrics
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol.objects import Pod
from prometheus_client import CollectorRegistry
from support.scheduler.plugins import MadeUp, cluster, scheduler_with
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata


def test_the_calls_of_a_measured_attempt_have_their_time_and_the_plugins_come_back() -> None:
    log = SmallLog()
    log.add_node(node("a"))
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "1"}
    log.add_pod(with_metadata(pod("p", {"cpu": "1"}), annotations=gang))
    scheduler = Scheduler(log)
    before = [framework.profile for framework in scheduler.state.frameworks.all()]
    ticks = itertools.count(0.0, 1.0)
    watch = Stopwatch(lambda: next(ticks))
    scheduler.follow()
    with measured(scheduler.state.frameworks, watch):
        assert scheduler.decide() is not None
    calls = {(timing.point, timing.plugin, str(timing.status), timing.seconds) for timing in watch.timings}
    assert ("PreFilter", "ElasticQuota", "Success", 1.0) in calls
    assert ("Reserve", "ElasticQuota", "Success", 1.0) in calls
    assert ("Permit", "Coscheduling", "Success", 1.0) in calls
    assert {timing.profile for timing in watch.timings} == {"koord-scheduler"}
    assert all(
        framework.profile is profile
        for framework, profile in zip(scheduler.state.frameworks.all(), before, strict=True)
    )
    count = len(watch.timings)
    scheduler.send()
    scheduler.land()
    assert len(watch.timings) == count


class Everywhere(MadeUp):
    """A plugin of the points that change or hear; it refuses a pod before it is scored."""

    name = "Everywhere"

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        return None

    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        return None

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        return None

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        return Rejection(plugin=self.name, message="never") if pod.metadata.name == "refused" else None

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        return Failure()

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        return None

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        return {"seen": node}


def timings(name: str) -> dict[str, Status]:
    """Point -> how the call of the plugin ended, for a pod of this name among two equal nodes."""
    log = cluster("a", "b")
    log.add_pod(pod(name, {"cpu": "1"}))
    scheduler = scheduler_with(log, Everywhere, gates=SchedulerGates(resize_pod=True))
    watch = Stopwatch(lambda: 0.0)
    scheduler.follow()
    with measured(scheduler.state.frameworks, watch):
        scheduler.decide()
    return {timing.point: timing.status for timing in watch.timings if timing.plugin == "Everywhere"}


def test_what_changes_a_cycle_or_hears_of_it_is_measured() -> None:
    points = {"BeforePreFilter", "AfterPreFilter", "BeforeFilter", "BeforeScore", "ResizePod", "PreBind"}
    assert timings("p") == dict.fromkeys(points, Status.SUCCESS)
    refused = timings("refused")
    assert refused["BeforeScore"] is Status.UNSCHEDULABLE
    assert refused["AfterPostFilter"] is Status.SUCCESS


def test_points_add_up_their_plugins() -> None:
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry, ["main"])
    watch = Stopwatch(lambda: 0.0, next_pod_seconds=[0.125])
    watch.timings += [
        Timing("main", "PreFilter", "A", Status.SUCCESS, 0.25),
        Timing("main", "PreFilter", "B", Status.UNSCHEDULABLE, 0.5),
    ]
    metrics.measured(watch)
    assert registry.get_sample_value("scheduler_next_pod_delete_from_queue_latency_sum") == 0.125
    point = {"extension_point": "PreFilter", "status": "Unschedulable", "profile": "main"}
    assert registry.get_sample_value("scheduler_framework_extension_point_duration_seconds_sum", point) == 0.75
    plugin = {"plugin": "A", "extension_point": "PreFilter", "status": "Success"}
    assert registry.get_sample_value("scheduler_plugin_execution_duration_seconds_sum", plugin) == 0.25


def test_quotas_taken_in_are_counted_by_what_was_done() -> None:
    log = SmallLog()
    ref = custom_ref("elasticquotas", "team", "a")
    quota = {"metadata": {"namespace": "team", "name": "a"}, "spec": {"max": {"cpu": "4"}}}
    log.say(ref.kind, ref.id, CustomObjectObserved(object=quota))
    log.say(ref.kind, ref.id, CustomObjectDeleted(kind="ElasticQuota", namespace="team", name="a"))
    registry = CollectorRegistry()
    fold = StateFold(SchedulerState(frameworks()), SchedulerMetrics(registry, ["main"]))
    for stored in log.events:
        fold.apply(stored)
    for operation in ("UpdateQuota", "DeleteQuota"):
        found = registry.get_sample_value("scheduler_elastic_quota_process_latency_count", {"operation": operation})
        assert found == 1.0
