"""Recommended requests of the containers that a Recommendation selects. Writer: manager.

Aggregate: `recommendation.<ns=name>`.

Source: manager spec, 15, 17.3.
"""

from typing import Final

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE

# Largest recommended amount. As an upper bound, it means that there is none yet, because there is no history.
NO_BOUND: Final = 10**14


class RecommendedAmounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Recommended amounts: cpu in milli-cores, memory in bytes. 0: none, because there are no samples."""

    cpu_milli: int = 0
    memory_bytes: int = 0


class UsagePercentiles(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One percentile of the cpu histogram in cores and of the memory histogram in bytes, before any margin is added."""

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0


class ContainerRecommendation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Recommended requests of one container, and the usage samples behind them."""

    name: str
    target: RecommendedAmounts  # Recommended request after the caps of the policy
    lower_bound: RecommendedAmounts  # Lowest reasonable request, after the caps of the policy
    # Highest reasonable request, after the caps of the policy; 1e14 without any history.
    upper_bound: RecommendedAmounts
    uncapped_target: RecommendedAmounts  # Recommended request before the caps of the policy
    percentiles: dict[str, UsagePercentiles] = {}  # "target", "lower", "upper" -> percentiles of the usage histograms
    samples: int = 0  # Number of cpu samples
    first_sample_at: str = ""  # RFC 3339 time of the first sample; "" for none
    last_sample_at: str = ""  # RFC 3339 time of the last sample; "" for none
    confidence_days: float = 0.0  # Length of the history in days


class RecommendationCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A status condition of a Recommendation, with the fields of the Kubernetes type metav1.Condition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


@CATALOGUE.register(kind="recommendation")
class RecommendationComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a Recommendation is published: its amounts or conditions changed, or a refresh was due."""

    namespace: str  # Namespace of the Recommendation
    name: str  # Name of the Recommendation
    target: str  # Selected pods, for example "Deployment/web" or "pods app=web"
    mode: str = "Off"  # "Off", "Initial", "Recreate", "Auto" or "InPlaceOrRecreate"
    containers: list[ContainerRecommendation] = []  # Recommended requests by container
    conditions: list[RecommendationCondition] = []  # Status conditions
    pods: int = 0  # Number of running pods that the target selects
    cause: str  # Why the status is published: "first", "amounts", "bounds", "conditions", "spec" or "refreshed"
    observed_to: int = 0  # Sequence of the last observation that was used
    spec_version: int = 0  # Sequence of the event with the Recommendation object
    settings: dict[str, float] = {}  # Name -> value of the recommender's settings that differ from their defaults


@CATALOGUE.register(kind="recommendation")
class RecommendationDropped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The Recommendation object was deleted, so its computed status is dropped.

    The recommender keeps the usage histograms for some time, in case the object returns.
    """

    namespace: str
    name: str
