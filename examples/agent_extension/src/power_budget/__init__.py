"""A power budget for nodes: it measures and reports power, and suppresses best-effort pods above the budget."""

import os
from pathlib import Path

from koord_agent.domain.extending.extension_points import PodCollector
from koord_agent.domain.extending.extensions import Extensions

from power_budget.measuring import PlatformProfile, Power
from power_budget.reporting import PowerPage, has_counters, pod_watts, power_limit
from power_budget.strategy import PowerBudget

SYS = Path(os.environ.get("POWER_BUDGET_SYS", "/sys"))


def register(extensions: Extensions) -> None:
    """Register everything of this package; the agent calls this entry point once at its start."""
    power = Power(SYS / "class" / "powercap")
    extensions.add_collector("power", power)
    extensions.add_state("platform-profile", PlatformProfile(SYS / "firmware" / "acpi" / "platform_profile"))
    extensions.add_slo_defaults("power", {"maxWatts": 0, "lowPowerPercent": 50})
    extensions.add_strategy(PowerBudget())
    extensions.add_pod_filter([PodCollector.CYCLES], "no-cycle-counters", has_counters)
    extensions.add_pod_metric("watts", pod_watts)
    extensions.add_topology_hook("power-limit", power_limit(SYS / "class" / "powercap"))
    extensions.add_http("/power", PowerPage(power))
