"""Create the usage report of a node: usage over windows, prediction, health, and values of extensions.

Source: agent spec, 7.
"""

from collections.abc import Callable, Mapping, Sequence

from koordcore.events.observation import NodeUsageReported

from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.metrics.gpu_usage import GpuReading
from koord_agent.domain.metrics.metrics_view import Metrics
from koord_agent.domain.prediction.reclaimable import Prediction
from koord_agent.domain.reporting.facts import usage_reported
from koord_agent.domain.reporting.report import ReportedHostApplication, node_report
from koord_agent.domain.state.desired import DesiredView
from koord_agent.domain.state.pods import AgentPod
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
) -> NodeUsageReported:
    """Make the usage report of a node for the time of these metrics.

    Args:
        host: The machine.
        metrics: Time series of the node.
        desired: Desired state of the node.
        pods: UID -> pod.
        extended: Extensions of installed packages.
        prediction: Prediction of the models; None if there is none.
        be_quota_us: CPU quota of the best-effort class in force, microseconds per 100 ms; -1 = unlimited.
        cold_memory_running: Whether cold pages are measured on this machine.
        gpus: The GPUs of the machine; empty if their usage is not measured.
        rfc3339_of: Returns the RFC 3339 text of a time in milliseconds.
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
    )
