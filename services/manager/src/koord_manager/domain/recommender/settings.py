"""What the recommender can be told; the defaults are the published method's.

source    manager spec, 15.5
"""

from typing import Final

import msgspec
from koordcore.protocol.config.typed import wire_name


class RecommenderSettings(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Percentiles are fractions of 1, times in seconds, memory in MiB where the name says so, else in bytes."""

    target_cpu_percentile: float = 0.9
    target_memory_percentile: float = 0.9
    lower_bound_percentile: float = 0.5
    upper_bound_percentile: float = 0.95
    safety_margin_fraction: float = 0.15
    cpu_half_life_seconds: float = 86400
    memory_half_life_seconds: float = 86400
    memory_aggregation_interval_seconds: float = 86400
    oom_bump_up_ratio: float = 1.2
    oom_min_bump_up_bytes: float = 104857600
    pod_min_cpu_millicores: float = 25
    pod_min_memory_mb: float = 250


DEFAULT_SETTINGS: Final = RecommenderSettings()
