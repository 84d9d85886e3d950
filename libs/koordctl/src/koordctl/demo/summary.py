"""The results of the demo: measurements at its end, a table for people, and `summary.json` for programs.

Usage is measured from the newest reports, reasons from the newest explanations.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.resource_names import cores
from koordcore.values import codec

from koordctl.access.log import OpenLog
from koordctl.demo.real_container import RealContainer
from koordctl.render.units import by_count, duration_text

NO_VALUE: Final = 0.0


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of latency-sensitive pods on nodes that also run best-effort pods.

    A slowdown is the time of a latency-sensitive request divided by its time on an idle node; 1 means no slowdown.

    NO_VALUE stands for a value that was not measured.

    Attributes:
        nodes: Number of such nodes.
        slowdown_p50: Median slowdown of these nodes.
        slowdown_p99: 99th percentile of the slowdown of these nodes.
        best_effort_cores: CPU that best-effort pods use on all nodes with a report, in cores.
        utilisation_percent: CPU in use on all nodes with a report, in percent of the cluster's CPU.
    """

    nodes: int = 0
    slowdown_p50: float = NO_VALUE
    slowdown_p99: float = NO_VALUE
    best_effort_cores: float = NO_VALUE
    utilisation_percent: float = NO_VALUE

    def sentence(self) -> str:
        """Return one sentence for the table of results."""
        if not self.nodes:
            return f"no node ran both kinds of pods; {self.utilisation_percent:.1f} % of the cpu in use"
        return (
            f"latency x{self.slowdown_p50:.2f} (p99 of nodes x{self.slowdown_p99:.2f}), best effort"
            f" {self.best_effort_cores:,.0f} cores, {self.utilisation_percent:.1f} % of the cpu in use"
        )


class Invariant(NamedTuple):
    """A rule that must hold in every log.

    Attributes:
        name: The rule.
        held: Whether it held.
        found: Number of its violations, or the compared hashes, as text.
    """

    name: str
    held: bool
    found: str


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """The invariants of a log at one position, and the comparison of three folds.

    Attributes:
        double_placements: Number of placements of placed pods.
        overcommitted_nodes: Number of nodes whose pods were given more than the node offers.
        ledger_differences: Number of differences between the ledgers of nodes and the events of pods.
        unexplained_pods: Number of pods that are neither placed nor explained.
        position: Position of the invariants.
        folds_agree: Whether the manager, the projector and the state rebuilt from the log have equal hashes.
        folds: These hashes, each with its position. While the log is written, the positions can differ.
        violations: One sentence for each broken invariant.
    """

    double_placements: int
    overcommitted_nodes: int
    ledger_differences: int
    unexplained_pods: int
    position: int
    folds_agree: bool
    folds: str
    violations: list[str]

    @property
    def all_held(self) -> bool:
        """Whether every invariant held."""
        return self.folds_agree and not self.violations

    def invariants(self) -> list[Invariant]:
        """Return each invariant, and whether it held."""
        return [
            Invariant("no pod is placed twice", not self.double_placements, f"{self.double_placements} found"),
            Invariant(
                "no node is over its allocatable", not self.overcommitted_nodes, f"{self.overcommitted_nodes} found"
            ),
            Invariant(
                "node ledgers match the pods", not self.ledger_differences, f"{self.ledger_differences} differences"
            ),
            Invariant(
                "every pod is placed or explained", not self.unexplained_pods, f"{self.unexplained_pods} unexplained"
            ),
            Invariant("replay, live fold and projector agree", self.folds_agree, self.folds),
        ]


class Summary(Checks, frozen=True, kw_only=True):
    """Everything that the demo writes to summary.json. Times are real, whatever the clock of the run.

    Attributes:
        pods_submitted: Submitted pods, without those evicted for others. `pods_placed`, `pods_started` and
            `pods_pending` count these pods.
        pods_evicted: Pods that were evicted for others.
        pending_reasons: Main reason -> number of pending pods.
        submit_to_placed_p50_ms: Median of the milliseconds from submission to placement; `p99`: 99th percentile.
        first_placement_ms: Milliseconds from the first submission to the first placement.
        nodes: Simulated nodes, and this host.
        requested_cpu_percent: CPU requests of the placed pods, in percent of the cluster's CPU.
        requested_cpu_with_overcommit_percent: The same with requests of batch CPU.
        utilisation_requested_only_percent: CPU in use by pods on their own requests, as a share of the cluster's CPU.
        utilisation_with_overcommit_percent: The same with best-effort pods on batch resources.
        real_container: Values that a container on this host found in force at its first instruction.
        real_node: Name of the node that is this host, with its measured use in `real_node_cpu_milli`.
        gpu_pods: Pods that hold GPUs.
        shared_gpus: GPUs that more than one pod holds.
        gpu_allocated_percent: Part of the healthy GPUs that pods hold, in percent.
        device_reports_after_start: Reports of GPUs that failed or came back.
        protected: Speed of latency-sensitive pods during a load peak, with best effort suppressed.
        unprotected: The same during an equal load peak, with suppression switched off.
        suppressions: Changes of the quota of best-effort pods.
        events: Number of facts in the log.
        events_per_s: Facts per second while pods arrived.
        replay_events_per_s: Facts per second of a fold from the first fact.
        startup_s: Seconds until the stack was ready.
        wall_s: Seconds of the whole run.
        speed: Simulated seconds per real second.
    """

    pods_submitted: int
    pods_placed: int
    pods_started: int
    pods_pending: int
    pods_evicted: int
    pending_reasons: dict[str, int]
    submit_to_placed_p50_ms: float
    submit_to_placed_p99_ms: float
    first_placement_ms: float
    nodes: int
    requested_cpu_percent: float
    requested_cpu_with_overcommit_percent: float
    utilisation_requested_only_percent: float
    utilisation_with_overcommit_percent: float
    real_node: str
    real_node_cpu_milli: int
    real_container: RealContainer
    gpu_pods: int = 0
    shared_gpus: int = 0
    gpu_allocated_percent: float = NO_VALUE
    device_reports_after_start: int = 0
    suppressions: int
    protected: Protection
    unprotected: Protection
    events: int
    events_per_s: float
    replay_events_per_s: float
    startup_s: float
    wall_s: float
    speed: float

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of the table of results, as (label, value)."""
        pending = [(f"  {reason}", f"{count:,}") for reason, count in by_count(self.pending_reasons)]
        return [
            ("pods submitted, without evicted ones", f"{self.pods_submitted:,}"),
            ("pods placed", f"{self.pods_placed:,}"),
            ("pods running on their nodes", f"{self.pods_started:,}"),
            ("pods evicted for others", f"{self.pods_evicted:,}"),
            ("pods pending", f"{self.pods_pending:,}"),
            *pending,
            ("cpu requested, without overcommit", f"{self.requested_cpu_percent:.1f} %"),
            ("cpu requested, with overcommit", f"{self.requested_cpu_with_overcommit_percent:.1f} %"),
            ("cpu utilisation, without overcommit", f"{self.utilisation_requested_only_percent:.1f} %"),
            ("cpu utilisation, with overcommit", f"{self.utilisation_with_overcommit_percent:.1f} %"),
            ("pods with GPUs", f"{self.gpu_pods:,}, {self.shared_gpus:,} GPUs have several"),
            ("GPUs allocated", f"{self.gpu_allocated_percent:.1f} %"),
            ("GPUs that failed or came back", f"{self.device_reports_after_start:,}"),
            ("best-effort quota changes", f"{self.suppressions:,}"),
            ("load peak, protection on", self.protected.sentence()),
            ("load peak, protection off", self.unprotected.sentence()),
            ("this host, measured", f"{self.real_node} uses {cores(self.real_node_cpu_milli)} cores"),
            ("container on this host", self.real_container.sentence()),
            ("submit to placed, p50", duration_text(self.submit_to_placed_p50_ms / 1000)),
            ("submit to placed, p99", duration_text(self.submit_to_placed_p99_ms / 1000)),
            ("first placement after first submit", duration_text(self.first_placement_ms / 1000)),
            ("events", f"{self.events:,} ({self.events_per_s:,.0f}/s)"),
            ("replay from zero", f"{self.replay_events_per_s:,.0f} events/s"),
            ("stack ready after", duration_text(self.startup_s)),
            ("whole run", duration_text(self.wall_s)),
        ]


def write_summary(path: Path, summary: Checks) -> None:
    """Write the summary as JSON, one field per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(codec.encode(summary), indent=2) + b"\n")


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the nearest-rank percentile of the values, or 0 if there are none. `percent` is 0..100."""
    ordered = sorted(values)
    if not ordered:
        return NO_VALUE
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def share_percent(part: float, whole: float) -> float:
    """Return `part` of `whole` in percent with one decimal, or 0 if `whole` is 0."""
    return round(100 * part / whole, 1) if whole else NO_VALUE


def main_reason(reasons: Mapping[str, int]) -> str:
    """Return the reason that excluded most nodes, or "no node" if there are no reasons.

    Of reasons with the same number of nodes, the first one by name is returned.
    """
    return max(sorted(reasons), key=lambda reason: reasons[reason]) if reasons else "no node"


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
