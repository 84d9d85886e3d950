"""Reports: the power of each pod in the node's report, the power limit in its topology, and an HTTP page."""

import json
from dataclasses import dataclass
from pathlib import Path

from koord_agent.domain.extending.extension_points import HttpReply, HttpRequest, TopologyAdditions, TopologyHook
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Metrics
from koord_agent.domain.node.pods import AgentPod
from koordcore.events.nodestate import NodeTopologyReported

from power_budget.measuring import SERIES, Power

WINDOW_MS = 60_000
LIMIT = "example.com/power-limit-watts"
NO_COUNTERS = "example.com/no-cycle-counters"


def pod_watts(pod: AgentPod, metrics: Metrics) -> float | None:
    """Return the watts of a pod in the last minute, by its share of the used CPU; None if it is unknown."""
    watts = metrics.average(Kind.EXTENSION, WINDOW_MS, SERIES)
    of_pod, of_node = metrics.average(Kind.POD_CPU, WINDOW_MS, pod.uid), metrics.average(Kind.NODE_CPU, WINDOW_MS)
    return None if watts is None or of_pod is None or not of_node else round(watts * of_pod / of_node, 1)


def has_counters(pod: AgentPod) -> bool:
    """Return whether cycles of a pod may be counted; counting wakes its CPUs up."""
    return pod.annotations.get(NO_COUNTERS) != "true"


def power_limit(powercap: Path) -> TopologyHook:
    """Return a hook that adds the firmware's long-term power limit to the topology of the node."""

    def hook(report: NodeTopologyReported) -> TopologyAdditions:
        files = sorted(powercap.glob("intel-rapl:[0-9]*/constraint_0_power_limit_uw"))
        watts = sum(int(file.read_text()) for file in files) // 1_000_000
        return TopologyAdditions(annotations={LIMIT: str(watts)} if files else {})

    return hook


@dataclass(frozen=True, slots=True)
class PowerPage:
    """GET /power: `{"watts": 182.4}`."""

    power: Power

    def __call__(self, request: HttpRequest) -> HttpReply:
        """See `koord_agent.domain.extending.extension_points.HttpHandler`."""
        body = json.dumps({"watts": self.power.last_watts}).encode()
        return HttpReply(body=body, content_type="application/json")
