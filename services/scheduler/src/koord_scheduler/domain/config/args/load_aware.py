"""LoadAwareSchedulingArgs: which load is too much for a node, and how the load of a pod is estimated before it runs."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.invalid import InvalidInput
from pydantic import AfterValidator, ValidationInfo, field_validator

from koord_scheduler.domain.config.wire import (
    Bool,
    Duration,
    NotNegative,
    Percent,
    Percents,
    Positive,
    Text,
    Weights,
    WireModel,
)

AggregationType = Literal["", "avg", "p50", "p90", "p95", "p99"]

DEFAULT_WEIGHTS: Final = {CPU: 1, MEMORY: 1}
DEFAULT_THRESHOLDS: Final = {CPU: 65, MEMORY: 95}
DEFAULT_FACTORS: Final = {CPU: 85, MEMORY: 70}
DEFAULT_ESTIMATOR: Final = "defaultEstimator"
RECOMMENDED_ESTIMATOR: Final = "recommendedEstimator"
ESTIMATORS: Final = frozenset({"", DEFAULT_ESTIMATOR, RECOMMENDED_ESTIMATOR})
"""Names that `estimator` may have: requests times factors; the last believes the recommender where it has spoken."""


def _known_estimator(name: str) -> str:
    if name not in ESTIMATORS:
        raise InvalidInput(f"empty, {DEFAULT_ESTIMATOR} or {RECOMMENDED_ESTIMATOR}, the estimators that exist", name)
    return name


class AggregatedArgs(WireModel):
    """Percentiles instead of averages. An empty type: not used, there. A duration of 0: the longest recorded period."""

    usage_thresholds: Percents = {}
    usage_aggregation_type: AggregationType = ""
    usage_aggregated_duration: Duration = 0.0
    score_aggregation_type: AggregationType = ""
    score_aggregated_duration: Duration = 0.0


class LoadAwareSchedulingArgs(WireModel):
    """source    scheduler-core spec, 4.1.

    Attributes:
        estimated_seconds_after_pod_scheduled: None: no forced window.
        estimated_seconds_after_initialized: None: no forced window.
        aggregated: None: averages only.
    """

    filter_expired_node_metrics: Bool = True
    node_metric_expiration_seconds: Positive = 180
    enable_schedule_when_node_metrics_expired: Bool = False
    dominant_resource_weight: Percent = 0
    resource_weights: Weights = {}
    usage_thresholds: Percents = {}
    prod_usage_thresholds: Percents = {}
    prod_usage_include_sys: Bool = False
    score_according_prod_usage: Bool = False
    estimator: Annotated[Text, AfterValidator(_known_estimator)] = ""
    estimated_scaling_factors: Weights = {}
    estimated_seconds_after_pod_scheduled: NotNegative | None = None
    estimated_seconds_after_initialized: NotNegative | None = None
    allow_customize_estimation: Bool = False
    supported_resources: tuple[Text, ...] = ()
    aggregated: AggregatedArgs | None = None

    @field_validator("resource_weights", mode="after")
    @classmethod
    def _default_weights(cls, weights: Mapping[str, int], info: ValidationInfo) -> Mapping[str, int]:
        return weights or (DEFAULT_WEIGHTS if info.data.get("dominant_resource_weight") == 0 else {})

    @field_validator("usage_thresholds", mode="after")
    @classmethod
    def _default_thresholds(cls, thresholds: Mapping[str, int]) -> Mapping[str, int]:
        return thresholds or DEFAULT_THRESHOLDS

    @field_validator("estimated_scaling_factors", mode="after")
    @classmethod
    def _complete_factors(cls, factors: Mapping[str, int], info: ValidationInfo) -> Mapping[str, int]:
        complete = {**DEFAULT_FACTORS, **factors}
        lacking = sorted(set(info.data.get("resource_weights", ())) - complete.keys())
        if lacking:
            raise InvalidInput(f"given for every weighted resource; {', '.join(lacking)} has none", dict(factors))
        return complete

    @property
    def resources(self) -> tuple[str, ...]:
        """Resources considered, in name order: cpu, memory and every name in the arguments (spec, 7.1)."""
        named = {CPU, MEMORY, *self.supported_resources}
        for part in (
            self.resource_weights,
            self.usage_thresholds,
            self.prod_usage_thresholds,
            self.estimated_scaling_factors,
        ):
            named.update(part)
        if self.aggregated is not None:
            named.update(self.aggregated.usage_thresholds)
        return tuple(sorted(named))
