"""The section slo-adjust-config as a value.

source    manager spec, 16.1
"""

import msgspec
from koordcore.protocol.config.strategy import Strategy


class SignalBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Where a signal begins to count, and where it counts fully."""

    warn: float
    critical: float


class SloAdjustPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How nodes are judged and how far their water levels may fall; percents and levels as configured."""

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
    """The typed form of the section (defaults merged in)."""
    return msgspec.convert(strategy, SloAdjustPolicy)
