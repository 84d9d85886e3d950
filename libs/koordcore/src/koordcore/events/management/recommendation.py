"""Recommended requests of the containers of a target. Aggregate: `recommendation.<ns=name>`. Writer: manager.

Source:
    manager spec, 15, 17.3
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class RecommendedAmounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Recommended amounts: cpu in milli-cores, memory in bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0


class UsagePercentiles(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Percentiles of the usage histograms before any margin: cores and bytes."""

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0


class ContainerRecommendation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Recommended requests of one container, and the samples behind them.

    Attributes:
        target: Recommended request after the caps of the policy. `uncapped_target` is the request before the caps.
        lower_bound: Lowest reasonable request, after the caps of the policy.
        upper_bound: Highest reasonable request, after the caps of the policy.
        percentiles: "target", "lower", "upper" -> percentiles of the usage histograms.
        samples: Number of cpu samples, from first_sample_at to last_sample_at. `memory_peaks` is the weight of the
            counted peaks.
        confidence_days: Length of the history in days.
    """

    name: str
    target: RecommendedAmounts
    lower_bound: RecommendedAmounts
    upper_bound: RecommendedAmounts
    uncapped_target: RecommendedAmounts
    percentiles: dict[str, UsagePercentiles] = {}
    samples: int = 0
    first_sample_at: str = ""
    last_sample_at: str = ""
    confidence_days: float = 0.0


class RecommendationCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A condition, as in metav1.Condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


@CATALOGUE.register(kind="recommendation")
class RecommendationComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts or conditions of a Recommendation changed, or its status is due for a refresh.

    Attributes:
        target: Selected pods, for example "Deployment/web" or "pods app=web".
        mode: "Off", "Initial", "Recreate" or "Auto".
        pods: Number of running pods that the target selects.
        cause: "first", "amounts", "bounds", "conditions", "spec" or "refreshed".
        observed_to: Position of the last observation that was used.
        settings: Settings of the recommender that differ from their defaults, by name.
    """

    namespace: str
    name: str
    target: str
    mode: str = "Off"
    containers: list[ContainerRecommendation] = []
    conditions: list[RecommendationCondition] = []
    pods: int = 0
    cause: str
    observed_to: int = 0
    spec_version: int = 0
    settings: dict[str, float] = {}


@CATALOGUE.register(kind="recommendation")
class RecommendationDropped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The Recommendation object was deleted. The histograms of its target are kept for some time."""

    namespace: str
    name: str
