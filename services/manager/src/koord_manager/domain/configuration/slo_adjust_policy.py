"""The section slo-adjust-config as a typed value.

Source:
    manager spec, 16.1
"""

import msgspec
from koordcore.protocol.config.strategy import Strategy


class SignalBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a signal of node health.

    Attributes:
        warn: Value from which the signal has an effect.
        critical: Value from which it has its full effect.
    """

    warn: float
    critical: float


class SloAdjustPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of node health, with the names and units of slo-adjust-config."""

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
    """Return the typed value of a section whose defaults are merged in."""
    return msgspec.convert(strategy, SloAdjustPolicy)
