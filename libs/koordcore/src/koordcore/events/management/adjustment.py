"""Facts about the health of nodes, and warnings about the configuration.

Aggregates: `nodepolicy.<node>` (its health), `controller.slo-adjust` (the cluster's guard), `config.<ns=name>`.
Writer: manager.

Source:
    manager spec, 16, 17.2, 18
"""

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.registry import CATALOGUE

SLO_ADJUST = AggregateRef("controller", "slo-adjust")
"""The aggregate of the cluster-wide guard."""


@CATALOGUE.register(kind="nodepolicy")
class NodeHealthAssessed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The health of a node, its weight or its thresholds changed.

    Attributes:
        level: Current level: "Healthy", "Warning", "Critical".
        previous_level: Level before the change.
        abnormality: Smoothed abnormality, 0 to 1.
        weight: Weight of the node alone. `reported_weight` is the weight after the cluster-wide guard, which the
            scheduler uses.
        offsets: "cpu", "memory" -> percentage points by which the thresholds are lowered, at most 0.
        healthy_rounds: Number of consecutive evaluations in which the node was healthy.
        signals: Measured signals. `reasons` are those that lowered the health, worst first ("stale" before all).
        stale: Whether the metric of the node is too old.
        effective: The four thresholds in force, by their name in the configuration.
        annotation: New text of the node's annotation `slo-health`; "" if the annotation needs no change.
        cause: Reason of the change: "level", "weight", "offsets", "smoothing", "guard" or "off" (no longer adjusted).
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
    """The number of abnormal nodes crossed the cap of nodes with a lowered weight (`MassAbnormalNodes`).

    Attributes:
        abnormal: Number of abnormal nodes. `cap` is the largest number of nodes with a lowered weight, `nodes` the
            number of all nodes.
        examples: Names of the most abnormal nodes, at most ten.
    """

    active: bool
    abnormal: int
    cap: int
    nodes: int
    examples: list[str] = []


@CATALOGUE.register(kind="config")
class ConfigWarned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The configuration in force is valid but has warnings. Without warnings, earlier ones are over.

    Attributes:
        warnings: Field -> one sentence.
        config_version: Sequence of the configuration that the warnings are about.
    """

    namespace: str
    name: str
    warnings: dict[str, str] = {}
    config_version: int = 0
