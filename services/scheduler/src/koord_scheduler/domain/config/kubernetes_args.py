"""Arguments of the plugins that come from Kubernetes.

Source: scheduler-core spec, 4.1
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal

from koordcore.protocol import component_config
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.invalid import InvalidInput
from pydantic import AfterValidator, ValidationInfo, field_validator


class WeightedResource(component_config.WireModel):
    """The name of a resource, and its weight in a score over several resources."""

    name: component_config.Text
    weight: component_config.Weight = 1


CPU_AND_MEMORY: Final = (WeightedResource(name=CPU), WeightedResource(name=MEMORY))


def _or_cpu_and_memory(resources: tuple[WeightedResource, ...]) -> tuple[WeightedResource, ...]:
    return resources or CPU_AND_MEMORY


ScoredResources = Annotated[tuple[WeightedResource, ...], AfterValidator(_or_cpu_and_memory)]
"""Resources of a score. An empty list stands for cpu and memory with weight 1 each."""


class UtilizationPoint(component_config.WireModel):
    """One point of the score function of RequestedToCapacityRatio."""

    utilization: component_config.Percent  # Used share of the capacity, 0..100 percent
    score: component_config.TenthScore  # Score at this utilization, 0..10


def _rising(shape: Sequence[UtilizationPoint]) -> Sequence[UtilizationPoint]:
    utilizations = [point.utilization for point in shape]
    if not shape or any(left >= right for left, right in pairwise(utilizations)):
        raise InvalidInput("points with strictly increasing utilization, at least one", utilizations)
    return shape


Shape = Annotated[tuple[UtilizationPoint, ...], AfterValidator(_rising)]


class RequestedToCapacityRatio(component_config.WireModel):
    """The score as a function of utilization, for the scoring strategy RequestedToCapacityRatio."""

    shape: Shape


class FitScoringStrategy(component_config.WireModel):
    """Strategy of NodeResourcesFit for scores of nodes: its type, resources and weights. Only the type
    RequestedToCapacityRatio reads `requested_to_capacity_ratio`, and then it is required.
    """

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: ScoredResources = CPU_AND_MEMORY
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None

    @field_validator("requested_to_capacity_ratio", mode="after")
    @classmethod
    def _given_when_used(
        cls, ratio: RequestedToCapacityRatio | None, info: ValidationInfo
    ) -> RequestedToCapacityRatio | None:
        if ratio is None and info.data.get("type") == "RequestedToCapacityRatio":
            raise InvalidInput("given for strategy RequestedToCapacityRatio", None)
        return ratio


def _is_domain(group: str) -> str:
    if not group or "/" in group:
        raise InvalidInput("the domain of a resource, without '/'", group)
    return group


class NodeResourcesFitArgs(component_config.WireModel):
    """Arguments of NodeResourcesFit."""

    scoring_strategy: FitScoringStrategy = FitScoringStrategy()  # How nodes are scored
    ignored_resources: tuple[component_config.Text, ...] = ()  # Resources that the filter does not compare
    # Domains of resources that the filter does not compare.
    ignored_resource_groups: tuple[Annotated[component_config.Text, AfterValidator(_is_domain)], ...] = ()


class NodeResourcesBalancedAllocationArgs(component_config.WireModel):
    """Arguments of NodeResourcesBalancedAllocation: the resources that should be used evenly."""

    resources: ScoredResources = CPU_AND_MEMORY


class InterPodAffinityArgs(component_config.WireModel):
    """Arguments of InterPodAffinity."""

    # Score weight of a running pod's required affinity that matches the new pod, 0..100.
    hard_pod_affinity_weight: component_config.Percent = 1
    # Whether only the new pod's preferred terms count.
    ignore_preferred_terms_of_existing_pods: component_config.Bool = False


class PodTopologySpreadArgs(component_config.WireModel):
    """Arguments of PodTopologySpread."""

    # System: built-in default constraints; List: those of `default_constraints`.
    defaulting_type: Literal["System", "List"] = "System"
    # Constraints for pods without their own. Their selectors are deduced for each pod.
    default_constraints: tuple[component_config.DefaultConstraint, ...] = ()

    @field_validator("default_constraints", mode="after")
    @classmethod
    def _are_usable(
        cls, constraints: tuple[component_config.DefaultConstraint, ...], info: ValidationInfo
    ) -> tuple[component_config.DefaultConstraint, ...]:
        if constraints and info.data.get("defaulting_type") == "System":
            raise InvalidInput("empty unless defaultingType is List", f"{len(constraints)} constraints")
        seen: set[tuple[str, str]] = set()
        for index, constraint in enumerate(constraints):
            place = f"[{index}]"
            if constraint.label_selector is not None:
                raise InvalidInput("a constraint without labelSelector, which is deduced", "a selector", place)
            if constraint.max_skew < 1:
                raise InvalidInput("an integer of at least 1", constraint.max_skew, f"{place}.maxSkew")
            if not constraint.topology_key:
                raise InvalidInput("a label key", "", f"{place}.topologyKey")
            if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
                what = constraint.when_unsatisfiable
                raise InvalidInput("DoNotSchedule or ScheduleAnyway", what, f"{place}.whenUnsatisfiable")
            key = (constraint.topology_key, constraint.when_unsatisfiable)
            if key in seen:
                raise InvalidInput("named once per topologyKey and whenUnsatisfiable", key[0], place)
            seen.add(key)
        return constraints


class NodeAffinityArgs(component_config.WireModel):
    """Arguments of NodeAffinity."""

    # Affinity that applies to every pod besides its own; None for none.
    added_affinity: component_config.AddedNodeAffinity | None = None


class DefaultPreemptionArgs(component_config.WireModel):
    """Arguments of DefaultPreemption: how many candidate nodes a preemption examines. The number is the larger one of
    the percentage of all nodes and the absolute value.
    """

    min_candidate_nodes_percentage: component_config.Percent = 10
    min_candidate_nodes_absolute: component_config.NotNegative = 100

    @field_validator("min_candidate_nodes_absolute", mode="after")
    @classmethod
    def _not_both_zero(cls, absolute: int, info: ValidationInfo) -> int:
        if absolute == 0 and info.data.get("min_candidate_nodes_percentage") == 0:
            raise InvalidInput("above 0 when minCandidateNodesPercentage is 0", absolute)
        return absolute


class VolumeBindingArgs(component_config.WireModel):
    """Arguments of VolumeBinding."""

    bind_timeout_seconds: component_config.NotNegative = 600  # Longest time for binding volumes, in seconds
    shape: Shape | None = None  # Score as a function of capacity. Accepted without effect: free storage is not scored.
