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
    """The health of a node, its weight for scoring or its lowered thresholds changed.

    Attributes:
        level: Current level: "Healthy", "Warning", "Critical".
        previous_level: Level before the change; "" if there was none.
        abnormality: Smoothed abnormality: 0 is healthy, 1 is worst.
        weight: Weight in percent that the node's own health gives.
        reported_weight: Weight that the scheduler uses: `weight` after the limit for the whole cluster.
        offsets: "cpu", "memory" -> percentage points by which the thresholds are lowered; 0 or negative.
        healthy_rounds: Number of consecutive evaluations in which the node was healthy.
        signals: Signal -> measured value.
        reasons: Signals that lowered the health, worst first. "stale" comes before all others.
        stale: Whether the node's usage report is too old.
        effective: Name of a threshold in the configuration -> percent in force. There are four.
        annotation: New text of the node's annotation `slo-health`; "" if the annotation needs no change.
        cause: Reason of the change: "level", "weight", "offsets", "smoothing", "guard" (the limit for the whole
            cluster) or "off" (health is no longer adjusted, or it was that of an earlier node of the name).
        config_version: Sequence of the configuration event that was used; 0 for defaults.
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
    """The number of abnormal nodes rose above the limit of nodes whose weight may be lowered, or fell below it.

    Attributes:
        active: Whether the number is above the limit now (`MassAbnormalNodes`).
        abnormal: Number of abnormal nodes.
        cap: Largest number of nodes whose weight may be lowered.
        nodes: Number of all nodes.
        examples: Names of the most abnormal nodes, at most ten.
    """

    active: bool
    abnormal: int
    cap: int
    nodes: int
    examples: list[str] = []


@CATALOGUE.register(kind="config")
class ConfigWarned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The warnings about the configuration in force changed. A warning does not make the configuration invalid.

    Attributes:
        namespace: Namespace of the ConfigMap.
        name: Name of the ConfigMap.
        warnings: Field -> one sentence. Empty: there are no warnings any more.
        config_version: Sequence of the configuration event that the warnings are about.
    """

    namespace: str
    name: str
    warnings: dict[str, str] = {}
    config_version: int = 0
