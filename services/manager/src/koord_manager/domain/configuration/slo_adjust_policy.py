"""The section slo-adjust-config as a typed value.

Source:
    manager spec, 16.1
"""

import msgspec
from koordcore.protocol.config.strategy import Strategy


class SignalBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one signal of node health, such as CPU utilization, in the unit of the signal.

    Attributes:
        warn: Value at which the severity of the signal is 0; above it, the severity grows linearly.
        critical: Value from which the severity is 1.
    """

    warn: float
    critical: float


class SloAdjustPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The section slo-adjust-config: when nodes count as unhealthy, and by how much they are lowered.

    Attributes:
        enable: Whether node health is on.
        interval_seconds: Time between two assessments.
        smoothing_factor: Weight of the present assessment in the smoothed abnormality, from 0 to 1.
        warn_level: Abnormality (0 to 1) from which a healthy node becomes Warning.
        critical_level: Abnormality from which a node becomes Critical.
        recover_level: Abnormality below which a node becomes Healthy again.
        min_weight: Lowest weight of a node, of 100.
        step_down: Percent points by which thresholds fall with each assessment as Critical.
        step_up: Percent points by which they rise with each assessment as Healthy.
        max_drop: Maximum fall of a threshold in percent points.
        healthy_rounds_before_raise: Number of healthy assessments in a row before thresholds rise.
        suppress_floor_percent: Health never lowers cpuSuppressThresholdPercent below this.
        memory_evict_floor_percent: Health never lowers memoryEvictThresholdPercent below this.
        max_abnormal_ratio: Maximum share of nodes with a lowered weight, from 0 to 1.
        signals: Name of a signal -> its bounds.
    """

    enable: bool
    interval_seconds: int
    smoothing_factor: float
    warn_level: float
    critical_level: float
    recover_level: float
    min_weight: int
    step_down: int
    step_up: int
    max_drop: int
    healthy_rounds_before_raise: int
    suppress_floor_percent: int
    memory_evict_floor_percent: int
    max_abnormal_ratio: float
    signals: dict[str, SignalBounds]


def slo_adjust_policy(strategy: Strategy) -> SloAdjustPolicy:
    """Return the strategy of slo-adjust-config, into which its defaults are merged, as a typed value."""
    return msgspec.convert(strategy, SloAdjustPolicy)
