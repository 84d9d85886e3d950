"""What containers of a target should request. Aggregate: `recommendation.<ns=name>` of the object. Writer: manager.

Source:
    manager spec, 15, 17.3
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class RecommendedAmounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """cpu in milli-cores, memory in bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0


class UsagePercentiles(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the histograms say before any margin: cores and bytes."""

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0


class ContainerRecommendation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one container should request, and the samples it came from.

    Attributes:
        target: After the policy's caps; uncapped_target: before them.
        lower_bound: After the policy's caps; uncapped_target: before them.
        upper_bound: After the policy's caps; uncapped_target: before them.
        percentiles: "target", "lower", "upper" -> what the histograms say.
        samples: Cpu samples, from first_sample_at to last_sample_at; memory_peaks: weight of the peaks counted.
        confidence_days: How much history that is.
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
    """As metav1.Condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


@CATALOGUE.register(kind="recommendation")
class RecommendationComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts or conditions of a Recommendation changed, or its status grew old.

    observed_to position of the observations that were taken in

    Attributes:
        target: What it looks at, e.g. "Deployment/web" or "pods app=web".
        mode: "Off", "Initial", "Recreate" or "Auto".
        pods: Live pods that it matches.
        cause: "first", "amounts", "bounds", "conditions", "spec" or "refreshed".
        settings: Of the recommender that are not at their defaults, by name.
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
    """The Recommendation object is gone. What was learned of its target is kept for a while."""

    namespace: str
    name: str
