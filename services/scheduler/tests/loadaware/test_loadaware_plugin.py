"""LoadAwareScheduling through the whole scheduler: whose load counts on a node, and for how long."""

from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.values.timestamps import unix_seconds
from support.scheduler.reservations import CREATED, ReservingScheduler, reservation, reserve, status
from support.scheduler.scheduling import SmallLog, node, pod

LIMITED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - name: LoadAwareScheduling
    args: {filterExpiredNodeMetrics: false, usageThresholds: {cpu: 50}}
  plugins:
    preFilter: {enabled: [{name: Reservation}]}
    filter: {enabled: [{name: LoadAwareScheduling}, {name: Reservation}]}
    reserve: {enabled: [{name: LoadAwareScheduling}, {name: Reservation}]}
    bind: {disabled: [{name: "*"}], enabled: [{name: Reservation}, {name: DefaultBinder}]}
"""
T0 = unix_seconds(CREATED)


def scheduler_with_report(cpu_milli: int) -> ReservingScheduler:
    """A scheduler with one node of 4 cores, that uses so much."""
    log = SmallLog()
    log.add_node(node("n"))
    scheduler = ReservingScheduler(log, LIMITED)
    scheduler.run(T0)
    report = NodeUsageReported(
        updated_at=CREATED,
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=Usage(cpu_milli=cpu_milli),
    )
    scheduler.state.frameworks.observe("n", report)
    return scheduler


def test_reservation_that_nobody_uses_is_no_load() -> None:
    scheduler = scheduler_with_report(cpu_milli=0)
    reserve(scheduler.log, reservation(requests={"cpu": "2"}))
    scheduler.live(T0)
    assert status(scheduler.log).phase == "Available"
    scheduler.log.add_pod(pod("other", {"cpu": "2"}))
    scheduler.live(T0)
    assert scheduler.state.pods["other"].node == "n"
