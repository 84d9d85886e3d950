"""Rounds of a descheduler and a migration for the synthetic cluster."""

from collections.abc import Mapping

from koordcore.events.descheduling import ClassifiedNodes, RoundAttempt, RoundEnded, RoundLimit
from koordcore.events.envelope import Event
from koordcore.events.migration import (
    MigratedPod,
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationCondition,
    MigrationProgress,
)
from koordcore.events.observation import NodeUsageReported

LOW, HIGH = 12.0, 25.0


def round_of(reports: Mapping[str, NodeUsageReported], cpu: Mapping[str, int]) -> RoundEnded:
    """A round of LowNodeLoad over reports; `cpu` is node -> milli-cores. It moves a pod of each of the two hottest."""
    share = {
        name: 100 * report.node_usage.cpu_milli / cpu[name] for name, report in reports.items() if report.node_usage
    }
    over = sorted(name for name, percent in share.items() if percent > HIGH)
    hottest = sorted(over, key=lambda name: -share[name])[:2]
    attempts = [
        RoundAttempt(
            pod=f"{pod.namespace}/{pod.name}",
            uid=pod.uid,
            node=name,
            plugin="LowNodeLoad",
            reason=f"node is overutilized, cpu usage({share[name]:.1f}%)>threshold({HIGH:.0f}%)",
            result="success" if name == hottest[0] else "no better cluster after the move",
        )
        for name in hottest
        for pod in reports[name].pods[:1]
    ]
    return RoundEnded(
        seconds=0.0213,
        nodes=len(reports),
        classified=[
            ClassifiedNodes(
                plugin="LowNodeLoad",
                pool="__default_node_pool__",
                nodes=len(share),
                low={"cpu": LOW},
                high={"cpu": HIGH},
                under=sorted(name for name, percent in share.items() if percent <= LOW),
                over=over,
                acted_on=hottest,
            )
        ],
        attempts=attempts,
        results={attempt.result: 1 for attempt in attempts},
        limits=[RoundLimit(name="max_migrating_per_node", reached_by=hottest[:1])] if hottest else [],
    )


def migration_of(attempt: RoundAttempt, target: str) -> list[Event]:
    """A migration of a chosen pod that waits for the eviction; its Reservation is on `target`."""
    namespace, name = attempt.pod.split("/", 1)
    pod = MigratedPod(namespace=namespace, name=name, uid=attempt.uid)
    scheduled = MigrationCondition(type="ReservationScheduled", is_true=True)
    progress = MigrationProgress(
        phase="Running",
        status="Eviction",
        reason="Evicting",
        message=f"Pod {attempt.pod} evicted from node {attempt.node} by the reason {attempt.reason}",
        conditions=[scheduled, MigrationCondition(type="Eviction", reason="Evicting")],
        reservation="job-1",
        node=target,
    )
    asked = MigrationArbitrated(job="job-1", pod=pod, node=attempt.node, trigger=attempt.plugin, reason=attempt.reason)
    return [asked, MigrationAdvanced(pod=pod, progress=progress)]
