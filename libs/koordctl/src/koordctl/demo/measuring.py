"""Measurements at the end of the demo: usage from the newest reports, reasons from the newest explanations."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.observation import NodeUsageReported

from koordctl.access.log import OpenLog
from koordctl.demo.summary import Protection, main_reason, percentile, share_percent

BEST_EFFORT = "BE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUsage:
    """The CPU that pods and systems use on all nodes that reported.

    Attributes:
        total_milli: All use, in milli-cores.
        best_effort_milli: The part of best-effort pods, in milli-cores.
        nodes: Number of nodes that reported.
    """

    total_milli: int = 0
    best_effort_milli: int = 0
    nodes: int = 0


def usage_of(reports: Iterable[NodeUsageReported]) -> ClusterUsage:
    """Return the CPU in use, added up over the newest report of each node."""
    total = best_effort = nodes = 0
    for report in reports:
        if report.node_usage is None:
            continue
        nodes += 1
        total += report.node_usage.cpu_milli
        best_effort += sum(pod.usage.cpu_milli for pod in report.pods if pod.qos == BEST_EFFORT)
    return ClusterUsage(total_milli=total, best_effort_milli=best_effort, nodes=nodes)


def protection_of(reports: Iterable[NodeUsageReported], capacity_milli: int) -> Protection:
    """Return the slowdown of latency-sensitive pods on nodes that also run best-effort pods, and the CPU in use.

    The slowdown is measured once per node. The CPU of best-effort pods and of all pods is that of all reported nodes.

    Args:
        reports: The newest usage reports of nodes.
        capacity_milli: CPU of the whole cluster in milli-cores.
    """
    both = [
        report
        for report in reports
        if any(pod.qos == BEST_EFFORT for pod in report.pods) and any(pod.qos != BEST_EFFORT for pod in report.pods)
    ]
    slow = [report.signals["lsSlowdown"] / 100 for report in both if "lsSlowdown" in report.signals]
    usage = usage_of(reports)
    return Protection(
        nodes=len(both),
        slowdown_p50=round(percentile(slow, 50), 3),
        slowdown_p99=round(percentile(slow, 99), 3),
        best_effort_cores=round(usage.best_effort_milli / 1000, 1),
        utilisation_percent=share_percent(usage.total_milli, capacity_milli),
    )


async def newest_reports(log: OpenLog, nodes: Sequence[str]) -> list[NodeUsageReported]:
    """Return the newest usage report of each node that has one."""
    stored = await log.bus.observations.latest([AggregateRef("node", name_token(name)) for name in nodes])
    events = [CATALOGUE.read(event) for event in stored]
    return [event for event in events if isinstance(event, NodeUsageReported)]


async def newest_explanations(log: OpenLog) -> dict[str, str]:
    """Return uid of a pod -> main reason in its newest explanation, see `reason_of`.

    All explanations that the stream still has are read. Ids of other objects with explanations are keys, too.
    """
    head = await log.bus.explanations.head()
    found: dict[str, StoredEvent] = {}
    if head.last_seq < head.first_seq:
        return {}
    async for batch in log.bus.explanations.follow(0):
        for stored in batch:
            found[stored.ref.id] = stored
        if batch[-1].seq >= head.last_seq:
            break
    return {uid: reason_of(stored) for uid, stored in found.items()}


def reason_of(stored: StoredEvent) -> str:
    """Return the reason that excluded most nodes in an explanation, as one phrase.

    An explanation that is not a PodUnschedulable gives "decision abandoned".
    """
    event = CATALOGUE.read(stored)
    if not isinstance(event, PodUnschedulable):
        return "decision abandoned"
    counts: dict[str, int] = {}
    for exclusion in event.explanation.exclusions:
        for reason, count in exclusion.reasons.items():
            counts[reason] = counts.get(reason, 0) + count
    return main_reason(counts)


def count_reasons(pending: Iterable[str], reasons: dict[str, str]) -> dict[str, int]:
    """Return main reason -> number of pending pods.

    Args:
        pending: Uids of the pending pods.
        reasons: Uid -> main reason. A pod without an entry counts as "no explanation yet".
    """
    counts: dict[str, int] = {}
    for uid in pending:
        reason = reasons.get(uid, "no explanation yet")
        counts[reason] = counts.get(reason, 0) + 1
    return counts
