"""The strategy: while a node draws more than its budget, best-effort pods get proportionally less CPU."""

from collections.abc import Mapping
from typing import Any

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.strategies.strategy import CycleState, Needs, Proposal
from koordcore.protocol.qos import KubeQos

from power_budget.measuring import SERIES

QUOTA_US_PER_MILLI = 100
MAX_WATTS = "example.com/max-watts"
LEAST_QUOTA_US = 2_000
REMEMBERED_MS = 6_000


def max_watts(look: NodeLook) -> float:
    """Return the budget of the node in watts: its annotation, else its NodeSLO; 0 = no budget.

    The low-power profile of the firmware reduces it.
    """
    extensions: Mapping[str, Any] = (look.slo or {}).get("extensions") or {}
    power: Mapping[str, Any] = extensions["power"]
    written = look.annotations.get(MAX_WATTS)
    budget = float(written) if written is not None else power["maxWatts"]
    share = power["lowPowerPercent"] / 100 if look.states.get("platform-profile") == "low-power" else 1.0
    return budget * share


class PowerBudget:
    """Proposes a quota for the best-effort class. If CPU suppression wants another quota, the smaller one wins."""

    name = "PowerBudget"
    needs = Needs()

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """See `koord_agent.domain.strategies.strategy.Strategy`."""
        budget = max_watts(look)
        watts = look.metrics.last(Kind.EXTENSION, SERIES, within_ms=REMEMBERED_MS)
        used_milli = look.metrics.last(Kind.BE_CPU_USAGE)
        if budget <= 0 or watts is None or watts <= budget or used_milli is None:
            return Proposal()
        quota_us = max(int(used_milli * budget / watts) * QUOTA_US_PER_MILLI, LEAST_QUOTA_US)
        plan = Plan(
            plugin=self.name,
            band=Band.SUPPRESS,
            file=CgroupFile(look.layout.qos_directory(KubeQos.BEST_EFFORT), "cpu.cfs_quota_us"),
            value=str(quota_us),
            created_ms=look.now_ms,
            ttl_ms=state.ttl_ms,
            reason="PowerBudget",
        )
        return Proposal([plan])
