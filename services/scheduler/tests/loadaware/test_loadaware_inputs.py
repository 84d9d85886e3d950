"""What load awareness reads: reports of agents, pods and nodes as users write them."""

from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.plugins.loadaware.assigned import window_end
from koord_scheduler.domain.plugins.loadaware.estimate import estimate_pod, scaling_factors
from koord_scheduler.domain.plugins.loadaware.metric import metric_of_report
from koord_scheduler.domain.plugins.loadaware.rules import NodeFacts, node_facts, pod_load
from koordcore.events.observation import AggregatedUsage, NodeUsageReported, PodUsage, Usage
from koordcore.protocol import keys
from koordcore.protocol.objects import Container, Node, NodeStatus, ObjectMeta, Pod, PodSpec, ResourceRequirements


def pod(cpu: str = "1", **annotations: str) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", namespace="ns", uid="u", annotations=annotations),
        spec=PodSpec(containers=[Container(resources=ResourceRequirements(requests={"cpu": cpu}))]),
    )


def test_a_report_keeps_periods_pods_and_the_moment() -> None:
    metric = metric_of_report(
        NodeUsageReported(
            updated_at="1970-01-01T00:01:40Z",
            report_interval_seconds=0,
            aggregate_duration_seconds=300,
            node_usage=Usage(cpu_milli=5),
            aggregated_node_usages=[
                AggregatedUsage(duration_seconds=300, usage={"p95": Usage(cpu_milli=7)}),
                AggregatedUsage(duration_seconds=900, usage={"p95": Usage(cpu_milli=9)}),
                AggregatedUsage(duration_seconds=1800, usage={}),
            ],
            pods=[PodUsage(uid="u", namespace="ns", name="p", priority_class="koord-prod", qos="LS", usage=Usage())],
        )
    )
    assert metric.updated_at == 100
    assert metric.report_interval_seconds == 60
    assert metric.aggregated_usage("p95", 300) == {"cpu": 7, "memory": 0}
    assert metric.aggregated_usage("p95", 0) == {"cpu": 9, "memory": 0}
    assert metric.aggregated_usage("p95", 600) is None
    assert metric.aggregated_usage("p99", 0) == metric.node_usage
    assert metric.usage_of("ns", "p", "u") is not None


def test_usage_of_another_pod_with_the_same_name_is_not_taken() -> None:
    usage = PodUsage(uid="old", namespace="ns", name="p", priority_class="", qos="", usage=Usage(cpu_milli=1))
    report = NodeUsageReported(updated_at="", report_interval_seconds=60, aggregate_duration_seconds=0, pods=[usage])
    metric = metric_of_report(report)
    assert metric.updated_at is None
    assert metric.usage_of("ns", "p", "new") is None
    assert metric.usage_of("ns", "p", "old") is not None


def test_factors_of_a_pod_count_only_when_allowed_and_readable() -> None:
    own = pod(**{keys.LOAD_ESTIMATED_SCALING_FACTORS: '{"cpu": 120}'})
    bad = pod(**{keys.LOAD_ESTIMATED_SCALING_FACTORS: '{"cpu": "120"}'})
    allowed = LoadAwareSchedulingArgs(allow_customize_estimation=True)
    assert scaling_factors(own, allowed) == {"cpu": 120, "memory": 70}
    assert scaling_factors(bad, allowed) == scaling_factors(own, LoadAwareSchedulingArgs()) == {"cpu": 85, "memory": 70}
    assert estimate_pod(own, allowed)["cpu"] == 1200


def test_forced_window_starts_at_initialization_where_that_is_known() -> None:
    args = LoadAwareSchedulingArgs(
        estimated_seconds_after_pod_scheduled=100,
        estimated_seconds_after_initialized=10,
        allow_customize_estimation=True,
    )
    plain = pod()
    assert window_end(plain, args, 1000, None) == 1100
    assert window_end(plain, args, 1000, 1050) == 1060
    off = pod(**{keys.LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED: "0"})
    assert window_end(off, args, 1000, 1050) == 1100
    unreadable = pod(**{keys.LOAD_ESTIMATED_SECONDS_AFTER_INITIALIZED: "1m"})
    assert window_end(unreadable, args, 1000, 1050) == 1060
    assert window_end(plain, LoadAwareSchedulingArgs(), 1000, None) is None


def node(allocatable: dict[str, str | int | float], **annotations: str) -> Node:
    return Node(
        metadata=ObjectMeta(name="n", annotations=annotations),
        status=NodeStatus(allocatable=allocatable),
    )


def test_a_node_counts_less_its_reservation_at_its_raw_size() -> None:
    reserved = {keys.NODE_RESERVATION: '{"resources": {"cpu": "1"}}'}
    allocatable: dict[str, str | int | float] = {"cpu": "8", "memory": "1Gi"}
    assert node_facts(node(allocatable, **reserved)).allocatable == {"cpu": 7000, "memory": 1 << 30}
    amplified = node(allocatable, **reserved, **{keys.RAW_ALLOCATABLE: '{"cpu": "4"}'})
    assert node_facts(amplified).allocatable == {"cpu": 4000, "memory": 1 << 30}
    thresholds = node_facts(node({}, **{keys.USAGE_THRESHOLDS: "{}"}))
    assert thresholds == NodeFacts(allocatable={}, usage_thresholds="{}")


def test_a_malformed_node_is_empty() -> None:
    assert node_facts(node({"cpu": "much"})) == NodeFacts(allocatable={})


def test_an_absurd_request_stays_a_number_that_columns_can_hold() -> None:
    assert max(pod_load(pod(cpu="8E"), LoadAwareSchedulingArgs()).estimate) == 1 << 52


def test_what_is_recommended_counts_only_for_the_estimator_that_believes_it() -> None:
    told = pod("2", **{keys.RECOMMENDED_USAGE: '{"cpu": "300m", "memory": "1Gi"}'})
    bad = pod("2", **{keys.RECOMMENDED_USAGE: '{"cpu": "many"}'})
    half = pod("2", **{keys.RECOMMENDED_USAGE: '{"cpu": "300m"}'})
    believing, plain = LoadAwareSchedulingArgs(estimator="recommendedEstimator"), LoadAwareSchedulingArgs()
    assert estimate_pod(told, believing) == {"cpu": 300, "memory": 1 << 30}
    assert estimate_pod(told, plain) == estimate_pod(bad, believing) == estimate_pod(pod("2"), plain)
    assert estimate_pod(half, believing) == {**estimate_pod(pod("2"), plain), "cpu": 300}


def test_what_is_recommended_is_cut_off_at_the_limit() -> None:
    told = pod("2", **{keys.RECOMMENDED_USAGE: '{"cpu": "300m"}'})
    told.spec.containers[0].resources.limits["cpu"] = "200m"
    assert estimate_pod(told, LoadAwareSchedulingArgs(estimator="recommendedEstimator"))["cpu"] == 200
