"""The section slo-adjust-config as a typed value.

Source:
    manager spec, 16.1
"""

import msgspec
from koordcore.protocol.config.strategy import Strategy


class SignalBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The value from which a signal counts, and the value from which it counts fully."""

    warn: float
    critical: float


class SloAdjustPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the health of nodes is assessed and how far thresholds may fall; percents and levels as configured."""

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
    """Return the typed form of the section, with defaults merged in."""
    return msgspec.convert(strategy, SloAdjustPolicy)
