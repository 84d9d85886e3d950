"""A day of a simulated cluster with protection off and on: latency, best-effort throughput and utilisation.

    .venv/bin/python examples/protection/simulated_day.py [--nodes 20] [--hours 24] [--picture simulated-day.svg]

Every node runs latency-sensitive pods whose load follows the day and best-effort pods that take what they get. The same
agents as in a real cluster measure and write; only the machines are simulated, with the interference model of
`koord_agent.simulator.load`.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.node.desired import view_of
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.pods import PodControl
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.node_ledger import PodOnNode
from koordcore.ports.desired import DesiredNode
from picture import COLOURS

STEP_SECONDS = 60
CORES = 32
MEMORY = 128 << 30
LS_PODS, BE_PODS = 6, 4
LS_REQUEST_MILLI, BE_REQUEST_MILLI = 4_000, 4_000
THRESHOLD_PERCENT = 65


@dataclass(slots=True)
class Day:
    """What was seen each minute, means over the nodes."""

    protected: bool
    hours: list[float] = field(default_factory=list[float])
    slowdown: list[float] = field(default_factory=list[float])
    worst: list[float] = field(default_factory=list[float])
    be_cores: list[float] = field(default_factory=list[float])
    utilisation: list[float] = field(default_factory=list[float])

    def line(self) -> str:
        """One line of the table."""
        ordered = sorted(self.slowdown)
        middle, high = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
        return (
            f"protection {'on ' if self.protected else 'off'}  latency x{middle:.2f} (p99 of minutes x{high:.2f},"
            f" worst node x{max(self.worst):.2f}), best effort"
            f" {_mean(self.be_cores):.1f} cores a node, {100 * _mean(self.utilisation):.0f} % of the cpu in use"
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def live(nodes: int, hours: float, *, protect: bool) -> Day:
    """One run."""
    fleet = SimulatedFleet(
        [SimulatedNode(name=f"n{i}", cpu_milli=CORES * 1000, memory_bytes=MEMORY) for i in range(nodes)]
    )
    agents = [_agent(fleet, f"n{i}", protect=protect) for i in range(nodes)]
    day = Day(protected=protect)
    before = [_counters(fleet, agent) for agent in agents]
    for step in range(1, int(hours * 3600 / STEP_SECONDS) + 1):
        fleet.advance(step * STEP_SECONDS)
        for agent in agents:
            agent.run_cycle(step * STEP_SECONDS * 1000)
        now = [_counters(fleet, agent) for agent in agents]
        slow = [fleet.host(agent.node).slowdown for agent in agents]
        day.hours.append(step * STEP_SECONDS / 3600)
        day.slowdown.append(_mean(slow))
        day.worst.append(max(slow))
        day.be_cores.append(_mean([(b - a) / 1e9 / STEP_SECONDS for (a, _), (b, _) in zip(before, now, strict=True)]))
        busy = [(b - a) / 1e9 / STEP_SECONDS / CORES for (_, a), (_, b) in zip(before, now, strict=True)]
        day.utilisation.append(_mean(busy))
        before = now
    return day


def _counters(fleet: SimulatedFleet, agent: NodeAgent) -> tuple[int, int]:
    host = fleet.host(agent.node)
    node = host.node_counters()
    best_effort = host.cgroup_counters("kubepods.slice/kubepods-besteffort.slice")
    used = best_effort.cpu_usage_ns if best_effort is not None else None
    return used or 0, node.busy_ticks * node.jiffy_ns if node is not None else 0


def _agent(fleet: SimulatedFleet, node: str, *, protect: bool) -> NodeAgent:
    host = fleet.host(node)
    interval_ms = STEP_SECONDS * 1000
    monitor = NodeMonitor(
        collect_interval_ms=interval_ms, store=SeriesStore(retention_ms=330_000), with_page_cache=False
    )
    agent = NodeAgent(node, host, Measurement(monitor=monitor), interval_ms=interval_ms, pods=PodControl(runner=host))
    threshold = {"enable": protect, "cpuSuppressThresholdPercent": THRESHOLD_PERCENT, "cpuSuppressPolicy": "cfsQuota"}
    amounts = {"cpu": CORES * 1000, "memory": MEMORY}
    pods = [_pod(node, number, best_effort=number >= LS_PODS) for number in range(LS_PODS + BE_PODS)]
    agent.desired = view_of(
        DesiredNode(
            node=node, pods=pods, slo={"resourceUsedThresholdWithBE": threshold}, capacity=amounts, allocatable=amounts
        )
    )
    return agent


def _pod(node: str, number: int, *, best_effort: bool) -> PodOnNode:
    if best_effort:
        profile: dict[str, object] = {"profile": "constant", "mean": 2.0}
        requests = {"kubernetes.io/batch-cpu": BE_REQUEST_MILLI, "kubernetes.io/batch-memory": 4 << 30}
    else:
        profile = {"profile": "diurnal", "mean": 0.5, "amplitude": 0.35, "period": "24h", "phase": "0s"}
        requests = {"cpu": LS_REQUEST_MILLI, "memory": 4 << 30}
    return PodOnNode(
        uid=f"{node}-{number}",
        namespace="default",
        name=f"{node}-{number}",
        qos="BE" if best_effort else "LS",
        kube_qos="BestEffort" if best_effort else "Burstable",
        priority_class="koord-batch" if best_effort else "koord-prod",
        requests=requests,
        usage_profile=json.dumps(profile),
    )


def picture(days: Sequence[Day]) -> str:
    """Three panels on one time axis: latency, best-effort cores, utilisation."""
    width, panel, gap, left, top = 760, 130, 34, 70, 56
    panels: tuple[tuple[str, Callable[[Day], list[float]]], ...] = (
        ("latency of requests, x idle", lambda day: day.slowdown),
        ("best-effort cores a node", lambda day: day.be_cores),
        ("share of the CPU in use", lambda day: day.utilisation),
    )
    height = top + len(panels) * (panel + gap) + 20
    end = max(day.hours[-1] for day in days)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="22" font-size="16" fill="#222">A simulated day, protection off and on</text>',
    ]
    for index, day in enumerate(days):
        at = left + 150 * index
        parts.append(f'<line x1="{at}" x2="{at + 20}" y1="38" y2="38" stroke="{COLOURS[index]}" stroke-width="3"/>')
        parts.append(f'<text x="{at + 26}" y="42" fill="#222">protection {"on" if day.protected else "off"}</text>')
    for row, (title, values) in enumerate(panels):
        y0 = top + row * (panel + gap) + panel
        most = max(max(values(day)) for day in days) * 1.08
        parts.append(f'<text x="{left}" y="{y0 - panel + 2}" fill="#555">{title}</text>')
        for share in (0.0, 0.5, 1.0):
            y = y0 - share * (panel - 14)
            parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e5e5"/>')
            parts.append(
                f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#777">{share * most:.2g}</text>'
            )
        for index, day in enumerate(days):
            points = " ".join(
                f"{left + hour / end * (width - left - 20):.1f},{y0 - value / most * (panel - 14):.1f}"
                for hour, value in zip(day.hours[::5], values(day)[::5], strict=True)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[index]}" stroke-width="1.8"/>')
    parts.append(f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle" fill="#555">{end:.0f} hours</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="A simulated day with protection off and on.")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    days = [live(asked.nodes, asked.hours, protect=protect) for protect in (False, True)]
    for day in days:
        print(day.line())
    if asked.picture is not None:
        asked.picture.write_text(picture(days), encoding="utf-8")


if __name__ == "__main__":
    main()
