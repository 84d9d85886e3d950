"""Arguments of plugins: defaults, validation with field, rule and value, and the way back to text."""

from collections.abc import Mapping

import pytest
from koord_scheduler.domain.config.catalogue import BUILT_IN
from koord_scheduler.domain.config.koordinator_args import (
    CoschedulingArgs,
    DeviceShareArgs,
    ElasticQuotaArgs,
    LoadAwareSchedulingArgs,
    NodeNUMAResourceArgs,
    NodeResourcesFitPlusArgs,
    ReservationArgs,
    SchedulingHintArgs,
)
from koord_scheduler.domain.config.kubernetes_args import (
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
)
from koordcore.protocol.component_config import InvalidConfiguration, WireModel, read

TYPES = [known.args for known in BUILT_IN.values() if known.args is not None]


def refusals(kind: type[WireModel], raw: Mapping[str, object]) -> list[str]:
    with pytest.raises(InvalidConfiguration) as refused:
        read(kind, raw, "args")
    return [problem.sentence() for problem in refused.value.problems]


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_what_is_written_back_reads_as_the_same(kind: type[WireModel]) -> None:
    assert read(kind, kind().as_json(), "args") == kind() == read(kind, {}, "args")


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_unknown_fields_are_named(kind: type[WireModel]) -> None:
    assert refusals(kind, {"noSuchField": 1}) == [
        "args.noSuchField: must be a field that exists here, got 'noSuchField'"
    ]


def test_defaults_are_those_of_the_specification() -> None:
    assert CoschedulingArgs().as_json() == {
        "defaultTimeout": "10m0s",
        "controllerWorkers": 1,
        "skipCheckScheduleCycle": False,
        "enablePreemption": False,
        "awareNetworkTopology": False,
        "defaultMatchPolicy": "once-satisfied",
    }
    quota = ElasticQuotaArgs().as_json()
    assert quota["defaultQuotaGroupMax"] == {"cpu": str((2**63 - 1) // 5), "memory": str((2**63 - 1) // 5)}
    assert (quota["delayEvictTime"], quota["revokePodInterval"]) == ("2m0s", "1s")
    assert SchedulingHintArgs().max_hint_nodes == 100
    assert NodeNUMAResourceArgs().as_json()["defaultCPUBindPolicy"] == "FullPCPUs"
    devices = [resource.name for resource in DeviceShareArgs().scoring_strategy.resources]
    assert devices == [
        "koordinator.sh/gpu-memory-ratio",
        "koordinator.sh/gpu-memory",
        "koordinator.sh/rdma",
        "koordinator.sh/fpga",
    ]
    assert (ReservationArgs().gc_duration_seconds, InterPodAffinityArgs().hard_pod_affinity_weight) == (86_400, 1)
    assert (DefaultPreemptionArgs().min_candidate_nodes_percentage, VolumeBindingArgs().bind_timeout_seconds) == (
        10,
        600,
    )
    for resources in (
        NodeResourcesFitArgs().scoring_strategy.resources,
        NodeResourcesBalancedAllocationArgs().resources,
        NodeNUMAResourceArgs().numa_scoring_strategy.resources,
    ):
        assert [(resource.name, resource.weight) for resource in resources] == [("cpu", 1), ("memory", 1)]


def test_load_aware_weights_default_only_without_a_dominant_weight() -> None:
    assert read(LoadAwareSchedulingArgs, {}, "").resource_weights == {"cpu": 1, "memory": 1}
    dominant = read(LoadAwareSchedulingArgs, {"dominantResourceWeight": 1, "resourceWeights": {}}, "")
    assert dominant.resource_weights == {}
    assert dominant.usage_thresholds == {"cpu": 65, "memory": 95}
    assert dominant.estimated_scaling_factors == {"cpu": 85, "memory": 70}


def test_all_problems_of_load_aware_arguments_are_told() -> None:
    told = refusals(
        LoadAwareSchedulingArgs,
        {
            "nodeMetricExpirationSeconds": 0,
            "dominantResourceWeight": 101,
            "resourceWeights": {"cpu": 0, "example.com/gpu": 5},
            "usageThresholds": {"cpu": -1, "memory": 101},
            "estimatedScalingFactors": {"cpu": 101},
            "estimator": "mine",
            "filterExpiredNodeMetrics": "yes",
            "estimatedSecondsAfterInitialized": -1,
            "aggregated": {
                "usageAggregationType": "p42",
                "usageAggregatedDuration": "-5m",
                "scoreAggregatedDuration": 5,
            },
        },
    )
    assert [sentence.partition(":")[0].removeprefix("args.") for sentence in told] == [
        "filterExpiredNodeMetrics",
        "nodeMetricExpirationSeconds",
        "dominantResourceWeight",
        "resourceWeights.cpu",
        "usageThresholds.cpu",
        "usageThresholds.memory",
        "estimator",
        "estimatedScalingFactors.cpu",
        "estimatedSecondsAfterInitialized",
        "aggregated.usageAggregationType",
        "aggregated.usageAggregatedDuration",
        "aggregated.scoreAggregatedDuration",
    ]


def test_every_weighted_resource_needs_a_factor() -> None:
    told = refusals(LoadAwareSchedulingArgs, {"resourceWeights": {"example.com/gpu": 5}})
    assert len(told) == 1
    assert told[0].startswith(
        "args.estimatedScalingFactors: must be given for every weighted resource; example.com/gpu"
    )


@pytest.mark.parametrize(
    ("kind", "raw", "place"),
    [
        (CoschedulingArgs, {"defaultTimeout": "-1s"}, "defaultTimeout"),
        (CoschedulingArgs, {"defaultTimeout": 600}, "defaultTimeout"),
        (CoschedulingArgs, {"controllerWorkers": 0}, "controllerWorkers"),
        (CoschedulingArgs, {"defaultMatchPolicy": "never"}, "defaultMatchPolicy"),
        (ElasticQuotaArgs, {"systemQuotaGroupMax": {"cpu": "-1"}}, "systemQuotaGroupMax.cpu"),
        (ElasticQuotaArgs, {"defaultQuotaGroupMax": {"cpu": "many"}}, "defaultQuotaGroupMax.cpu"),
        (ElasticQuotaArgs, {"revokePodInterval": "-1s"}, "revokePodInterval"),
        (SchedulingHintArgs, {"maxHintNodes": 0}, "maxHintNodes"),
        (NodeResourcesFitPlusArgs, {"resources": {"cpu": {"type": "Best"}}}, "resources.cpu.type"),
        (NodeResourcesFitArgs, {"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}},
         "scoringStrategy.resources[0].weight"),
        (NodeResourcesFitArgs, {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
         "scoringStrategy.requestedToCapacityRatio"),
        (NodeResourcesFitArgs, {"ignoredResourceGroups": ["a/b"]}, "ignoredResourceGroups[0]"),
        (InterPodAffinityArgs, {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight"),
        (PodTopologySpreadArgs, {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone"}]}, "defaultConstraints"),
        (NodeAffinityArgs, {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 3}}, "addedAffinity"),
        (DefaultPreemptionArgs, {"minCandidateNodesPercentage": 101}, "minCandidateNodesPercentage"),
        (DefaultPreemptionArgs, {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
         "minCandidateNodesAbsolute"),
        (NodeNUMAResourceArgs, {"defaultCPUBindPolicy": "ConstrainedBurst"}, "defaultCPUBindPolicy"),
        (NodeNUMAResourceArgs, {"numaScoringStrategy": {"type": "Best"}}, "numaScoringStrategy.type"),
        (DeviceShareArgs, {"gpuShareUnsupportedModels": [{"vendor": "nvidia"}]}, "gpuShareUnsupportedModels[0].model"),
        (DeviceShareArgs, {"gpuFragmentation": {"learning": {"refreshInterval": "0s"}}},
         "gpuFragmentation.learning.refreshInterval"),
        (DeviceShareArgs, {"gpuFragmentation": {"learning": {"popularityThresholdPercent": 0}}},
         "gpuFragmentation.learning.popularityThresholdPercent"),
        (DeviceShareArgs, {"gpuFragmentation": {"policy": "Best"}}, "gpuFragmentation.policy"),
        (DeviceShareArgs, {"gpuFragmentation": {"weight": 0}}, "gpuFragmentation.weight"),
        (DeviceShareArgs, {"gpuFragmentation": {"typicalPods": [{"milliCPU": 1, "frequency": 0.0}]}},
         "gpuFragmentation.typicalPods[0].frequency"),
        (DeviceShareArgs, {"gpuFragmentation": {"typicalPods": [{"milliCPU": 1, "gpuMilli": 1001, "frequency": 1.0}]}},
         "gpuFragmentation.typicalPods[0].gpuMilli"),
        (ReservationArgs, {"minCandidateNodesPercentage": -1}, "minCandidateNodesPercentage"),
        (ReservationArgs, {"ignoredResources": ["cpu"]}, "ignoredResources[0]"),
        (ReservationArgs, {"ignoredResourceGroups": ["kubernetes.io"]}, "ignoredResourceGroups[0]"),
        (ReservationArgs, {"gcIntervalSeconds": -1}, "gcIntervalSeconds"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_with_its_place(
    kind: type[WireModel], raw: Mapping[str, object], place: str
) -> None:
    told = refusals(kind, raw)
    assert [sentence.partition(": must be ")[0] for sentence in told] == [f"args.{place}"]


@pytest.mark.parametrize("utilizations", [(), (0, 0), (50, 40)])
def test_the_shape_of_a_ratio_rises_strictly(utilizations: tuple[int, ...]) -> None:
    shape = [{"utilization": utilization, "score": 5} for utilization in utilizations]
    strategy = {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}
    told = refusals(NodeResourcesFitArgs, {"scoringStrategy": strategy})
    assert "strictly increasing utilization" in told[0]


def test_default_constraints_are_for_lists_and_have_no_selector() -> None:
    constraint: dict[str, object] = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    given: dict[str, object] = {"defaultingType": "List", "defaultConstraints": [constraint]}
    args = read(PodTopologySpreadArgs, given, "args")
    assert args.default_constraints[0].topology_key == "zone"
    assert read(PodTopologySpreadArgs, args.as_json(), "args") == args
    told = refusals(PodTopologySpreadArgs, {**given, "defaultConstraints": [constraint, constraint]})
    assert told[0].startswith("args.defaultConstraints[1]: must be named once")
    selector = {**constraint, "labelSelector": {"matchLabels": {"a": "b"}}}
    told = refusals(PodTopologySpreadArgs, {**given, "defaultConstraints": [selector]})
    assert told[0].startswith("args.defaultConstraints[0]: must be a constraint without labelSelector")


def test_seconds_of_zero_mean_the_default_of_reservations() -> None:
    args = read(ReservationArgs, {"gcDurationSeconds": 0, "gcIntervalSeconds": 0, "resyncIntervalSeconds": 0}, "args")
    assert args == ReservationArgs()


def test_added_affinity_is_kept() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    args = read(NodeAffinityArgs, {"addedAffinity": required}, "args")
    assert args.added_affinity is not None
    assert args.added_affinity.required is not None
    assert read(NodeAffinityArgs, args.as_json(), "args") == args
