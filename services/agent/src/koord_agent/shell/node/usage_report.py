"""Make the usage report of a node from its series.

Source: agent spec, 7.
"""

from collections.abc import Callable, Mapping, Sequence

from koordcore.events.observation import NodeUsageReported

from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.metrics.gpu_usage import GpuReading
from koord_agent.domain.metrics.series import Metrics
from koord_agent.domain.node.desired import DesiredView
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.prediction.reclaimable import Prediction
from koord_agent.domain.reporting.report import ReportedHostApplication, node_report, usage_reported
from koord_agent.shell.collect.sensing import node_signals
from koord_agent.shell.host.host import Host


def report_of(
    host: Host,
    metrics: Metrics,
    desired: DesiredView,
    pods: Mapping[str, AgentPod],
    extended: NodeExtensions,
    *,
    prediction: Prediction | None,
    be_quota_us: int,
    cold_memory_running: bool,
    gpus: Sequence[GpuReading],
    rfc3339_of: Callable[[int], str],
    oom_kills: Mapping[str, Mapping[str, str]] | None = None,
) -> NodeUsageReported:
    """Make the usage report for the time of these metrics.

    `be_quota_us` is microseconds per 100 ms; -1 = unlimited. `rfc3339_of` takes milliseconds.
    """
    report = node_report(
        metrics.store,
        now_ms=metrics.now_ms,
        policy=desired.collect,
        pods=[pod.reported for pod in pods.values()],
        host_applications=[
            ReportedHostApplication(name=app.name, priority=app.priority, qos=app.qos)
            for app in desired.host_applications
        ],
        cold_memory_running=cold_memory_running,
        gpus=gpus,
    )
    window_ms = report.policy.report_interval_seconds * 1000
    return usage_reported(
        report,
        updated_at=rfc3339_of(metrics.now_ms),
        be_quota_us=be_quota_us,
        prediction=prediction,
        signals=node_signals(host, metrics, pods.values(), window_ms),
        pod_extensions=extended.pod_metrics([pods[metric.pod.uid] for metric in report.pods], metrics),
        oom_kills=oom_kills,
    )
