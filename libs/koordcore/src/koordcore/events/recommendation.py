"""Recommended requests of the containers that a Recommendation selects. Writer: manager.

Aggregate: `recommendation.<ns=name>`.

Source:
    manager spec, 15, 17.3
"""

from typing import Final

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE

NO_BOUND: Final = 10**14
"""Largest recommended amount. As an upper bound, it means that there is none yet, because there is no history."""


class RecommendedAmounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Recommended amounts: cpu in milli-cores, memory in bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0


class UsagePercentiles(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One percentile of the cpu histogram in cores and of the memory histogram in bytes, before any margin is added."""

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0


class ContainerRecommendation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Recommended requests of one container, and the usage samples behind them.

    Attributes:
        target: Recommended request after the caps of the policy.
        lower_bound: Lowest reasonable request, after the caps of the policy.
        upper_bound: Highest reasonable request, after the caps of the policy; 1e14 without any history.
        uncapped_target: Recommended request before the caps of the policy.
        percentiles: "target", "lower", "upper" -> percentiles of the usage histograms.
        samples: Number of cpu samples.
        first_sample_at: RFC 3339 time of the first sample; "" for none.
        last_sample_at: RFC 3339 time of the last sample; "" for none.
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
    """A status condition of a Recommendation, with the fields of the Kubernetes type metav1.Condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


@CATALOGUE.register(kind="recommendation")
class RecommendationComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a Recommendation is published: its amounts or conditions changed, or a refresh was due.

    Attributes:
        namespace: Namespace of the Recommendation.
        name: Name of the Recommendation.
        target: Selected pods, for example "Deployment/web" or "pods app=web".
        mode: "Off", "Initial", "Recreate" or "Auto".
        containers: Recommended requests by container.
        conditions: Status conditions.
        pods: Number of running pods that the target selects.
        cause: Why the status is published: "first", "amounts", "bounds", "conditions", "spec" or "refreshed".
        observed_to: Sequence of the last observation that was used.
        spec_version: Sequence of the event with the Recommendation object.
        settings: Name -> value of the recommender's settings that differ from their defaults.
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
    """The Recommendation object was deleted, so its computed status is dropped.

    The recommender keeps the usage histograms for some time, in case the object returns.
    """

    namespace: str
    name: str
