"""Settings of the recommender. The defaults are those of the published method (Vertical Pod Autoscaler).

Source:
    manager spec, 15.5
"""

from typing import Final, NamedTuple

import msgspec
from koordcore.protocol.config.fields import wire_name
from koordcore.values.invalid import InvalidInput


class RecommenderSettings(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """Settings of the recommender.

    Percentiles are fractions of 1, times are in seconds, and memory is in bytes, or in MiB if the name says so.
    """

    # Percentile of the cpu samples that is recommended. `target_memory_percentile` likewise.
    target_cpu_percentile: float = 0.9
    target_memory_percentile: float = 0.9
    # Percentile for the lower bound, of cpu and memory. `upper_bound_percentile` likewise.
    lower_bound_percentile: float = 0.5
    upper_bound_percentile: float = 0.95
    safety_margin_fraction: float = 0.15  # Part of an amount that is added to it, also to bounds
    # Age at which a cpu sample has half its weight. `memory_half_life_seconds` likewise.
    cpu_half_life_seconds: float = 86400
    memory_half_life_seconds: float = 86400
    memory_aggregation_interval_seconds: float = 86400  # Time for which only the highest memory usage is a sample
    # After a kill for memory, the used memory times this is the sample, if it is larger than with
    # `oom_min_bump_up_bytes`.
    oom_bump_up_ratio: float = 1.2
    oom_min_bump_up_bytes: float = 104857600  # After a kill for memory, at least so much is added to the used memory
    # Minimum of a pod, which is divided equally among its containers. `pod_min_memory_mb` likewise.
    pod_min_cpu_millicores: float = 25
    pod_min_memory_mb: float = 250

    @property
    def learning(self) -> tuple[float, ...]:
        """The settings that affect how samples are learned.

        If one of them changes, histograms have to be learned again.
        """
        return (
            self.cpu_half_life_seconds,
            self.memory_half_life_seconds,
            self.memory_aggregation_interval_seconds,
            self.oom_bump_up_ratio,
            self.oom_min_bump_up_bytes,
        )

    @property
    def changed(self) -> dict[str, float]:
        """Settings that differ from their defaults: name -> value."""
        defaults = msgspec.to_builtins(DEFAULT_SETTINGS)
        return {name: value for name, value in msgspec.to_builtins(self).items() if value != defaults[name]}


DEFAULT_SETTINGS: Final = RecommenderSettings()


def settings_from(changed: dict[str, float]) -> RecommenderSettings:
    return msgspec.convert(changed, RecommenderSettings) if changed else DEFAULT_SETTINGS


class _Range(NamedTuple):
    """Numbers that a setting may have; if the range is `open`, `least` itself is not allowed."""

    least: float
    most: float = 1e12
    open: bool = False

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most and not (self.open and value == self.least)

    @property
    def sentence(self) -> str:
        return f"a number {'above' if self.open else 'from'} {self.least:g}, at most {self.most:g}"


_FRACTION: Final = _Range(0, 1, open=True)
_POSITIVE: Final = _Range(0, open=True)
_NOT_NEGATIVE: Final = _Range(0)
_RULES: Final[dict[str, _Range]] = {
    "targetCPUPercentile": _FRACTION,
    "targetMemoryPercentile": _FRACTION,
    "lowerBoundPercentile": _FRACTION,
    "upperBoundPercentile": _FRACTION,
    "safetyMarginFraction": _NOT_NEGATIVE,
    "cpuHalfLifeSeconds": _POSITIVE,
    "memoryHalfLifeSeconds": _POSITIVE,
    "memoryAggregationIntervalSeconds": _POSITIVE,
    "oomBumpUpRatio": _Range(1),
    "oomMinBumpUpBytes": _NOT_NEGATIVE,
    "podMinCPUMillicores": _NOT_NEGATIVE,
    "podMinMemoryMb": _NOT_NEGATIVE,
}


def read_settings(text: str) -> RecommenderSettings:
    """Parse a text such as `targetCPUPercentile=0.95,safetyMarginFraction=0.3`.

    Settings that the text does not name have their defaults.

    Raises:
        InvalidInput: A setting is unknown or its value is invalid; the error names the setting, the rule and the
            value.
    """
    given: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, written = part.partition("=")
        rule = _RULES.get(name.strip())
        if rule is None:
            raise InvalidInput(f"a setting of the recommender ({', '.join(_RULES)}), as NAME=NUMBER", part)
        try:
            value = float(written)
        except ValueError as error:
            raise InvalidInput(rule.sentence, part, name.strip()) from error
        if not rule.holds(value):
            raise InvalidInput(rule.sentence, part, name.strip())
        given[name.strip()] = value
    settings = msgspec.convert(given, RecommenderSettings)
    for name, target in (
        ("targetCPUPercentile", settings.target_cpu_percentile),
        ("targetMemoryPercentile", settings.target_memory_percentile),
    ):
        low, high = settings.lower_bound_percentile, settings.upper_bound_percentile
        if not low <= target <= high:
            raise InvalidInput(f"from lowerBoundPercentile {low:g} to upperBoundPercentile {high:g}", target, name)
    return settings
