"""The results of the demo: measurements at its end, a table for people, and `summary.json` for programs.

Usage is measured from the newest reports, reasons from the newest explanations.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.resource_names import cores
from koordcore.values import codec

from koordctl.access.folding import fold_to
from koordctl.access.log import OpenLog
from koordctl.demo.invariants import Audit, Findings
from koordctl.demo.real_container import RealContainer
from koordctl.render.units import by_count, duration_text
from koordctl.replay.verify import Verification, verify_now

NO_VALUE: Final = 0.0
VERIFY_SECONDS: Final = 300.0
"""Time that manager and projector may take to answer the verification."""
BEST_EFFORT = "BE"


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of latency-sensitive pods on nodes that also run best-effort pods.

    A slowdown is the time of a latency-sensitive request divided by its time on an idle node; 1 means no slowdown.
    NO_VALUE stands for a value that was not measured.
    """

    nodes: int = 0  # Number of such nodes
    slowdown_p50: float = NO_VALUE  # Median slowdown of these nodes
    slowdown_p99: float = NO_VALUE  # 99th percentile of the slowdown of these nodes
    best_effort_cores: float = NO_VALUE  # CPU that best-effort pods use on all nodes with a report, in cores
    utilisation_percent: float = NO_VALUE  # CPU in use on all nodes with a report, in percent of the cluster's CPU

    def sentence(self) -> str:
        if not self.nodes:
            return f"no node ran both kinds of pods; {self.utilisation_percent:.1f} % of the cpu in use"
        return (
            f"latency x{self.slowdown_p50:.2f} (p99 of nodes x{self.slowdown_p99:.2f}), best effort"
            f" {self.best_effort_cores:,.0f} cores, {self.utilisation_percent:.1f} % of the cpu in use"
        )


class Invariant(NamedTuple):
    name: str  # The rule
    held: bool
    found: str  # Number of its violations, or the compared hashes, as text


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """The invariants of a log at one position, and the comparison of three folds."""

    double_placements: int  # Number of placements of placed pods
    overcommitted_nodes: int  # Number of nodes whose pods were given more than the node offers
    ledger_differences: int  # Number of differences between the ledgers of nodes and the events of pods
    unexplained_pods: int  # Number of pods that are neither placed nor explained
    position: int  # Position of the invariants
    folds_agree: bool  # Whether the manager, the projector and the state rebuilt from the log have equal hashes
    folds: str  # These hashes, each with its position. While the log is written, the positions can differ.
    violations: list[str]  # One sentence for each broken invariant

    @property
    def all_held(self) -> bool:
        return self.folds_agree and not self.violations

    def invariants(self) -> list[Invariant]:
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


class Reckoning(NamedTuple):
    """A whole log, checked after the demo."""

    verification: Verification
    audit: Audit
    reasons: dict[str, str]  # uid of a pod -> main reason in its newest explanation
    findings: Findings

    def checks(self) -> dict[str, Any]:
        """The fields of `Checks`."""
        return {
            "double_placements": len(self.findings.double_placements),
            "overcommitted_nodes": self.findings.overcommitted_nodes,
            "ledger_differences": len(self.findings.ledger_differences),
            "unexplained_pods": len(self.findings.unexplained),
            "position": self.verification.position,
            "folds_agree": self.verification.equal,
            "folds": self.verification.sentence,
            "violations": self.findings.sentences(),
        }


async def reckon(log: OpenLog, manager: str, step: Callable[[str], None]) -> Reckoning:
    """Compare the three folds, and recompute every invariant from the events alone.

    Args:
        manager: Base URL of the manager.
        step: Receives a sentence when a part begins.
    """
    step("comparing the fold from zero, the live fold and the projector's rows")
    verification = await verify_now(log.bus, manager=manager, seconds=VERIFY_SECONDS)
    step("recomputing every invariant from the log")
    audit = Audit()
    await fold_to(log.bus.events, verification.position, see=audit.see)
    reasons = await newest_explanations(log)
    return Reckoning(verification, audit, reasons, audit.findings(reasons))


class Summary(Checks, frozen=True, kw_only=True):
    """Everything that the demo writes to summary.json. Times are real, whatever the clock of the run."""

    # Submitted pods, without those evicted for others. `pods_placed`, `pods_started` and `pods_pending` count these
    # pods.
    pods_submitted: int
    pods_placed: int
    pods_started: int
    pods_pending: int
    pods_evicted: int  # Pods that were evicted for others
    pending_reasons: dict[str, int]  # Main reason -> number of pending pods
    submit_to_placed_p50_ms: float  # Median of the milliseconds from submission to placement; `p99`: 99th percentile
    submit_to_placed_p99_ms: float
    first_placement_ms: float  # Milliseconds from the first submission to the first placement
    nodes: int  # Simulated nodes, and this host
    requested_cpu_percent: float  # CPU requests of the placed pods, in percent of the cluster's CPU
    requested_cpu_with_overcommit_percent: float  # The same with requests of batch CPU
    # CPU in use by pods on their own requests, as a share of the cluster's CPU.
    utilisation_requested_only_percent: float
    utilisation_with_overcommit_percent: float  # The same with best-effort pods on batch resources
    real_node: str  # Name of the node that is this host, with its measured use in `real_node_cpu_milli`
    real_node_cpu_milli: int
    real_container: RealContainer  # Values that a container on this host found in force at its first instruction
    gpu_pods: int = 0  # Pods that hold GPUs
    shared_gpus: int = 0  # GPUs that more than one pod holds
    gpu_allocated_percent: float = NO_VALUE  # Part of the healthy GPUs that pods hold, in percent
    device_reports_after_start: int = 0  # Reports of GPUs that failed or came back
    suppressions: int  # Changes of the quota of best-effort pods
    protected: Protection  # Speed of latency-sensitive pods during a load peak, with best effort suppressed
    unprotected: Protection  # The same during an equal load peak, with suppression switched off
    events: int  # Number of facts in the log
    events_per_s: float  # Facts per second while pods arrived
    replay_events_per_s: float  # Facts per second of a fold from the first fact
    startup_s: float  # Seconds until the stack was ready
    wall_s: float  # Seconds of the whole run
    speed: float  # Simulated seconds per real second

    def rows(self) -> list[tuple[str, str]]:
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
    """One field per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(codec.encode(summary), indent=2) + b"\n")


def percentile(values: Iterable[float], percent: float) -> float:
    """Nearest-rank percentile, or 0 without values. `percent` is 0..100."""
    ordered = sorted(values)
    if not ordered:
        return NO_VALUE
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def share_percent(part: float, whole: float) -> float:
    """With one decimal; 0 if `whole` is 0."""
    return round(100 * part / whole, 1) if whole else NO_VALUE


def main_reason(reasons: Mapping[str, int]) -> str:
    """Return the reason that excluded most nodes, the first one by name among equals; "no node" if there are none."""
    return max(sorted(reasons), key=lambda reason: reasons[reason]) if reasons else "no node"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUsage:
    """The CPU that pods and systems use on all nodes that reported."""

    total_milli: int = 0  # All use, in milli-cores
    best_effort_milli: int = 0  # The part of best-effort pods, in milli-cores
    nodes: int = 0  # Number of nodes that reported


def usage_of(reports: Iterable[NodeUsageReported]) -> ClusterUsage:
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
    `capacity_milli` is that of the whole cluster.
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
    """The reason that excluded most nodes. An explanation that is not a PodUnschedulable gives "decision abandoned"."""
    event = CATALOGUE.read(stored)
    if not isinstance(event, PodUnschedulable):
        return "decision abandoned"
    counts: dict[str, int] = {}
    for exclusion in event.explanation.exclusions:
        for reason, count in exclusion.reasons.items():
            counts[reason] = counts.get(reason, 0) + count
    return main_reason(counts)


def count_reasons(pending: Iterable[str], reasons: dict[str, str]) -> dict[str, int]:
    """Return main reason -> number of pending pods. A pod without a reason counts as "no explanation yet"."""
    counts: dict[str, int] = {}
    for uid in pending:
        reason = reasons.get(uid, "no explanation yet")
        counts[reason] = counts.get(reason, 0) + 1
    return counts
