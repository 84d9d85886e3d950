"""What the demo found, as the table for people and `summary.json` for programs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from koordcore.protocol.amount_text import cores
from koordcore.values import codec

from koordctl.render.units import duration_text

NO_VALUE: Final = 0.0


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """What pods get from each other.

    nodes            that run latency-sensitive and best-effort pods
    slowdown_*       time of a latency-sensitive request against that on an idle node, over these nodes; 1 = no longer
    """

    nodes: int = 0
    slowdown_p50: float = NO_VALUE
    slowdown_p99: float = NO_VALUE
    best_effort_cores: float = NO_VALUE
    utilisation_percent: float = NO_VALUE

    def sentence(self) -> str:
        """One line of the table."""
        if not self.nodes:
            return f"no node ran both kinds of pods; {self.utilisation_percent:.1f} % of the cpu in use"
        return (
            f"latency x{self.slowdown_p50:.2f} (p99 of nodes x{self.slowdown_p99:.2f}), best effort"
            f" {self.best_effort_cores:,.0f} cores, {self.utilisation_percent:.1f} % of the cpu in use"
        )


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is written to summary.json.

    pods_submitted   without those that were evicted for others
    *_ms, *_s        real time, whatever the run's clock
    hash_*           of the manager's live fold, of a fold from zero, of the projector's rows, all at `position`
    utilisation_*    cpu in use as a share of the cluster's cpu: by pods that run on their own requests, and with the
                     best-effort pods that run on what those leave unused
    protected, unprotected   in a rush at the end, the same load: with best effort held back, and with that switched off
    violations       one sentence for each broken invariant
    """

    pods_submitted: int
    pods_placed: int
    pods_started: int
    pods_pending: int
    pods_evicted: int
    pending_reasons: dict[str, int]
    double_placements: int
    overcommitted_nodes: int
    ledger_differences: int
    unexplained_pods: int
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
    suppressions: int
    protected: Protection
    unprotected: Protection
    position: int
    events: int
    events_per_s: float
    replay_events_per_s: float
    hash_live: str
    hash_replay: str
    hash_projector: str
    startup_s: float
    wall_s: float
    speed: float
    violations: list[str]

    @property
    def hashes_agree(self) -> bool:
        """Whether the three folds are one."""
        return bool(self.hash_live) and self.hash_live == self.hash_replay == self.hash_projector

    @property
    def all_held(self) -> bool:
        """Whether every invariant held."""
        return self.hashes_agree and not self.violations


def write_summary(path: Path, summary: Summary) -> None:
    """Writes it as JSON, one field per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(codec.encode(summary), indent=2) + b"\n")


def percentile(values: Iterable[float], percent: float) -> float:
    """Nearest-rank percentile; 0 of nothing."""
    ordered = sorted(values)
    if not ordered:
        return NO_VALUE
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def share_percent(part: float, whole: float) -> float:
    """part of whole in percent, one decimal; 0 of nothing."""
    return round(100 * part / whole, 1) if whole else NO_VALUE


def main_reason(reasons: Mapping[str, int]) -> str:
    """The reason that excluded most nodes, the first by name among equals; what stands in the pending count."""
    return max(sorted(reasons), key=lambda reason: reasons[reason]) if reasons else "no node"


def table(summary: Summary) -> list[tuple[str, str]]:
    """Lines of the table: what, how much."""
    pending = [(f"  {reason}", f"{count:,}") for reason, count in by_count(summary.pending_reasons)]
    return [
        ("pods submitted, without evicted ones", f"{summary.pods_submitted:,}"),
        ("pods placed", f"{summary.pods_placed:,}"),
        ("pods running on their nodes", f"{summary.pods_started:,}"),
        ("pods evicted for others", f"{summary.pods_evicted:,}"),
        ("pods pending", f"{summary.pods_pending:,}"),
        *pending,
        ("cpu requested, without overcommit", f"{summary.requested_cpu_percent:.1f} %"),
        ("cpu requested, with overcommit", f"{summary.requested_cpu_with_overcommit_percent:.1f} %"),
        ("cpu utilisation, without overcommit", f"{summary.utilisation_requested_only_percent:.1f} %"),
        ("cpu utilisation, with overcommit", f"{summary.utilisation_with_overcommit_percent:.1f} %"),
        ("best-effort quota changes told", f"{summary.suppressions:,}"),
        ("in a rush, protection on", summary.protected.sentence()),
        ("the same rush, protection off", summary.unprotected.sentence()),
        ("this host, measured", f"{summary.real_node} uses {cores(summary.real_node_cpu_milli)} cores"),
        ("submit to placed, p50", duration_text(summary.submit_to_placed_p50_ms / 1000)),
        ("submit to placed, p99", duration_text(summary.submit_to_placed_p99_ms / 1000)),
        ("first placement after first submit", duration_text(summary.first_placement_ms / 1000)),
        ("events", f"{summary.events:,} ({summary.events_per_s:,.0f}/s)"),
        ("replay from zero", f"{summary.replay_events_per_s:,.0f} events/s"),
        ("stack ready after", duration_text(summary.startup_s)),
        ("whole run", duration_text(summary.wall_s)),
    ]


def invariants(summary: Summary) -> list[tuple[str, bool, str]]:
    """(rule, whether it held, what was found)."""
    agree = "equal" if summary.hashes_agree else "differ"
    hashes = f"{agree}: live {summary.hash_live}, replay {summary.hash_replay}, projector {summary.hash_projector}"
    return [
        ("no pod is placed twice", not summary.double_placements, f"{summary.double_placements} found"),
        ("no node is over its allocatable", not summary.overcommitted_nodes, f"{summary.overcommitted_nodes} found"),
        ("node ledgers match the pods", not summary.ledger_differences, f"{summary.ledger_differences} differences"),
        (
            "every pod is placed or told why not",
            not summary.unexplained_pods,
            f"{summary.unexplained_pods} unexplained",
        ),
        ("replay, live fold and projector agree", summary.hashes_agree, hashes),
    ]


def by_count(counts: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    """Entries, most first, by name among equals."""
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
