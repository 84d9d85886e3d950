"""How healthy nodes are judged to be, and what a configuration was warned about.

Aggregates: `nodepolicy.<node>` (its health), `controller.slo-adjust` (the cluster's guard), `config.<ns=name>`.
Writer: manager.

Source:
    manager spec, 16, 17.2, 18
"""

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.registry import CATALOGUE

SLO_ADJUST = AggregateRef("controller", "slo-adjust")
"""The aggregate of the cluster's guard."""


@CATALOGUE.register(kind="nodepolicy")
class NodeHealthAssessed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The node's health, its weight or its water levels changed.

    Attributes:
        level: "Healthy", "Warning", "Critical".
        previous_level: "Healthy", "Warning", "Critical".
        abnormality: Smoothed, 0 to 1.
        weight: The node's own; reported_weight: after the cluster's guard, what the scheduler multiplies with.
        offsets: "cpu", "memory" -> percent points by which the water levels stand lower, at most 0.
        healthy_rounds: Evaluations in a row that found it healthy.
        signals: What was measured; reasons: those that count, worst first ("stale" before all).
        stale: Its metric cannot be relied on.
        effective: The four water levels in force, by their name in the configuration.
        annotation: Text of the node's `slo-health` annotation from now on; "": what stands there is good enough.
        cause: "level", "weight", "offsets", "smoothing", "guard" or "off" (no longer adjusted).
    """

    level: str
    previous_level: str = ""
    abnormality: float
    weight: int
    reported_weight: int
    offsets: dict[str, int] = {}
    healthy_rounds: int = 0
    signals: dict[str, float] = {}
    reasons: list[str] = []
    stale: bool = False
    effective: dict[str, int] = {}
    annotation: str = ""
    cause: str
    config_version: int = 0


@CATALOGUE.register(kind="controller")
class MassAbnormalityChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """More nodes look abnormal than may stand with a lowered weight, or no longer so (`MassAbnormalNodes`).

    Attributes:
        abnormal: How many; cap: how many may be lowered; nodes: how many there are.
        examples: Names of the worst, at most ten.
    """

    active: bool
    abnormal: int
    cap: int
    nodes: int
    examples: list[str] = []


@CATALOGUE.register(kind="config")
class ConfigWarned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The configuration in force is valid, and yet somebody should look at it; empty: no longer.

    Attributes:
        warnings: Field -> one sentence.
        config_version: Sequence of the configuration that they are about.
    """

    namespace: str
    name: str
    warnings: dict[str, str] = {}
    config_version: int = 0
