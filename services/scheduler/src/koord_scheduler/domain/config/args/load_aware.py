"""LoadAwareSchedulingArgs: load thresholds of nodes, and the estimation of pods before they run."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from koordcore.protocol import component_config
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.invalid import InvalidInput
from pydantic import AfterValidator, ValidationInfo, field_validator

AggregationType = Literal["", "avg", "p50", "p90", "p95", "p99"]

DEFAULT_WEIGHTS: Final = {CPU: 1, MEMORY: 1}
DEFAULT_THRESHOLDS: Final = {CPU: 65, MEMORY: 95}
DEFAULT_FACTORS: Final = {CPU: 85, MEMORY: 70}
DEFAULT_ESTIMATOR: Final = "defaultEstimator"
RECOMMENDED_ESTIMATOR: Final = "recommendedEstimator"
ESTIMATORS: Final = frozenset({"", DEFAULT_ESTIMATOR, RECOMMENDED_ESTIMATOR})
"""Allowed values of `estimator`. The default multiplies requests by factors; the last one uses recommended usage."""


def _known_estimator(name: str) -> str:
    if name not in ESTIMATORS:
        raise InvalidInput(f"empty, {DEFAULT_ESTIMATOR} or {RECOMMENDED_ESTIMATOR}, the estimators that exist", name)
    return name


class AggregatedArgs(component_config.WireModel):
    """Percentiles of usage that LoadAwareScheduling uses instead of averages. With an empty type, it uses the average.

    Attributes:
        usage_thresholds: Thresholds of the filter in percent, by resource.
        usage_aggregation_type: Percentile that the filter compares.
        usage_aggregated_duration: Period of this percentile in seconds; 0 for the longest recorded period.
        score_aggregation_type: Percentile that the score uses.
        score_aggregated_duration: Period of this percentile in seconds; 0 for the longest recorded period.
    """

    usage_thresholds: component_config.Percents = {}
    usage_aggregation_type: AggregationType = ""
    usage_aggregated_duration: component_config.Duration = 0.0
    score_aggregation_type: AggregationType = ""
    score_aggregated_duration: component_config.Duration = 0.0


class LoadAwareSchedulingArgs(component_config.WireModel):
    """Arguments of LoadAwareScheduling. Thresholds and factors are percentages by resource.

    Attributes:
        filter_expired_node_metrics: Whether the filter acts on a last report that is too old. If not, it uses it.
        node_metric_expiration_seconds: Age at which a report is too old.
        enable_schedule_when_node_metrics_expired: How it acts: True passes the node, False refuses it.
        dominant_resource_weight: Weight of the least score among all resources.
        resource_weights: Weight of each resource in the score.
        usage_thresholds: Usage of a node, with the pod, above which the filter refuses the node.
        prod_usage_thresholds: The same for koord-prod pods, compared with the usage of such pods alone. If empty,
            `usage_thresholds` apply to them as well.
        prod_usage_include_sys: Whether usage by the system counts as usage of koord-prod pods.
        score_according_prod_usage: Whether nodes are scored for koord-prod pods by the usage of such pods alone.
        estimator: How the usage of a pod is estimated, one of `ESTIMATORS`.
        estimated_scaling_factors: Estimated usage in percent of the larger one of request and limit.
        estimated_seconds_after_pod_scheduled: Length of the window after scheduling in which a pod's estimate always
            counts; None for no window.
        estimated_seconds_after_initialized: Length of the window after initialization, which replaces the other one
            once the pod is initialized; None to keep the other one.
        allow_customize_estimation: Whether annotations of a pod may override how it is estimated.
        supported_resources: Resources that are considered besides those that other arguments name.
        aggregated: Percentiles to use; None for averages only.

    Source:
        scheduler-core spec, 4.1
    """

    filter_expired_node_metrics: component_config.Bool = True
    node_metric_expiration_seconds: component_config.Positive = 180
    enable_schedule_when_node_metrics_expired: component_config.Bool = False
    dominant_resource_weight: component_config.Percent = 0
    resource_weights: component_config.Weights = {}
    usage_thresholds: component_config.Percents = {}
    prod_usage_thresholds: component_config.Percents = {}
    prod_usage_include_sys: component_config.Bool = False
    score_according_prod_usage: component_config.Bool = False
    estimator: Annotated[component_config.Text, AfterValidator(_known_estimator)] = ""
    estimated_scaling_factors: component_config.Weights = {}
    estimated_seconds_after_pod_scheduled: component_config.NotNegative | None = None
    estimated_seconds_after_initialized: component_config.NotNegative | None = None
    allow_customize_estimation: component_config.Bool = False
    supported_resources: tuple[component_config.Text, ...] = ()
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
        """Return the resources that filter and score consider, sorted: cpu, memory and other names in the arguments.

        Source: scheduler-core spec, 7.1
        """
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
