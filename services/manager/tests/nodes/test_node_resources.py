"""What a node lends, when that is published, and what else stands on it: decided from one look, told in one fact."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_manager.domain.admission.config_maps import config_warnings
from koord_manager.domain.controller_names import is_enabled
from koord_manager.domain.controllers.configuration import NodePolicies, warning_drafts
from koord_manager.domain.controllers.desired_state import desired_node
from koord_manager.domain.controllers.node_policies import RENDERED
from koord_manager.domain.controllers.node_resources.batch import normalized
from koord_manager.domain.controllers.node_resources.decide import differs
from koordcore.events.envelope import AggregateRef
from koordcore.events.nodepolicy import (
    ConfigWarned,
    NodeDevicesComputed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.events.nodestate import NodeTopologyReported, TopologyZone
from koordcore.events.objects import ConfigDeleted, NodeSpecChanged, NodeSpecDeleted
from koordcore.events.observation import HostApplicationUsage, NodeUsageReported, PodUsage, Usage
from koordcore.protocol.objects import Node, ObjectMeta
from koordcore.values.resources import MAX_AMOUNT
from koordcore.values.timestamps import rfc3339
from support.depth import examples
from support.manager.world import GIB, ManagerWorld, usage_of
from support.reachable import container_sizes

COLOCATION: dict[str, Any] = {"enable": True, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 60}
RATIO = "node.koordinator.sh/cpu-normalization-ratio"
AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"


def zone(name: str, cpu: str = "5", memory: str = "50Gi") -> dict[str, Any]:
    def amounts(resource: str, amount: str) -> dict[str, str]:
        return {"name": resource, "capacity": amount, "allocatable": amount, "available": amount}

    return {"name": name, "type": "Node", "resources": [amounts("cpu", cpu), amounts("memory", memory)]}


def topology(*zones: str, model: str = "", node: str = "n") -> dict[str, Any]:
    annotations: dict[str, str] = {}
    if model:
        info = {"cpuModel": model, "hyperThreadEnabled": True, "turboEnabled": True}
        annotations["node.koordinator.sh/cpu-basic-info"] = json.dumps(info)
    metadata = {"name": node, "annotations": annotations}
    return {"kind": "NodeResourceTopology", "metadata": metadata, "zones": [zone(name) for name in zones]}


def gpus(*healthy: bool, vendor: str = "", node: str = "n") -> dict[str, Any]:
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "16Gi"}
    devices = [{"type": "gpu", "health": state, "minor": n, "resources": amounts} for n, state in enumerate(healthy)]
    labels = {"node.koordinator.sh/gpu-model": "A10"} | ({"node.koordinator.sh/gpu-vendor": vendor} if vendor else {})
    return {"kind": "Device", "metadata": {"name": node, "labels": labels}, "spec": {"devices": devices}}


def world(**sections: Any) -> ManagerWorld:
    made = ManagerWorld()
    made.configure(**{"colocation": COLOCATION} | sections)
    made.plain_node()
    return made


def published(made: ManagerWorld) -> NodeOvercommitComputed | None:
    """One look at the node; what it gives is folded."""
    drafts = made.decided(NodeOvercommitComputed)
    if not drafts:
        return None
    (event,) = made.take(drafts)
    assert isinstance(event, NodeOvercommitComputed)
    return event


def policy_events(made: ManagerWorld) -> list[Any]:
    return [event for decision in RENDERED for event in made.take(made.decided(decision.event))]


def test_every_term_of_a_published_value_is_in_its_fact() -> None:
    made = world()
    web = made.pod("web", {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}, on="n")
    made.report(cpu_milli=1600, pods=[usage_of(web, 1500, GIB)])
    event = published(made)
    assert event is not None
    cpu = event.terms["cpu"]
    assert cpu.result == cpu.capacity - cpu.margin - max(cpu.system_used, cpu.reserved) - cpu.high_priority_used == 4400
    assert (event.batch_cpu_milli, event.reason, event.origin["kubernetes.io/batch-cpu"]) == (4400, "first", 4400)
    assert event.mid_terms["cpu"].mode == "dynamic"
    assert event.metric_updated_at
    assert len(event.strategy) == 8


HOSTILE = st.sampled_from((0, -1, 1 << 52, -(1 << 52), (1 << 63) - 1, -(1 << 63), 10**30)) | st.integers(
    -(1 << 63), 1 << 63
)
HOSTILE_USAGE = st.builds(Usage, HOSTILE, HOSTILE)


@settings(max_examples=examples(200))
@given(
    st.lists(HOSTILE_USAGE, min_size=7, max_size=7),
    st.sampled_from(("usage", "maxUsageRequest")),
    st.sampled_from(("usage", "request", "maxUsageRequest")),
    st.integers(1, 20),
)
def test_a_node_never_lends_more_than_it_has_whatever_it_reports(
    reported: list[Usage], cpu_policy: str, memory_policy: str, ghosts: int
) -> None:
    made = world(colocation=COLOCATION | {"cpuCalculatePolicy": cpu_policy, "memoryCalculatePolicy": memory_policy})
    made.custom("noderesourcetopologies", topology("node-0", "node-1"))
    web = made.pod("web", {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}, on="n")
    pod, ghost, node, system, reclaimable, peak, application = reported
    sample = usage_of(web, pod.cpu_milli, pod.memory_bytes)
    made.view.observe(
        1,
        "n",
        NodeUsageReported(
            updated_at=rfc3339(made.now),
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=node,
            system_usage=system,
            pods=[sample, *(msgspec.structs.replace(sample, name=f"g{n}", usage=ghost) for n in range(ghosts))],
            host_applications=[HostApplicationUsage(name="h", priority_class="koord-prod", usage=application)],
            prod_reclaimable=reclaimable,
            prod_peak=peak,
        ),
    )
    event = published(made)
    assert event is not None
    batch_cpu, batch_memory, mid_cpu, mid_memory = (
        event.batch_cpu_milli,
        event.batch_memory_bytes,
        event.mid_cpu_milli,
        event.mid_memory_bytes,
    )
    assert batch_cpu is not None and 0 <= batch_cpu <= 6_000  # noqa: PT018 - of 10 cores, 60 % may be lent
    assert batch_memory is not None and 0 <= batch_memory <= 60 * GIB  # noqa: PT018
    assert mid_cpu is not None and 0 <= mid_cpu <= 10_000  # noqa: PT018
    assert mid_memory is not None and 0 <= mid_memory <= 100 * GIB  # noqa: PT018
    assert set(event.zones) == {"node-0", "node-1"}
    for lent in event.zones.values():
        assert 0 <= (lent.batch_cpu_milli or 0) <= 5_000
        assert 0 <= (lent.batch_memory_bytes or 0) <= 50 * GIB
    for terms in (*event.terms.values(), *event.mid_terms.values()):
        numbers = [value for value in msgspec.structs.asdict(terms).values() if isinstance(value, int)]
        assert all(-MAX_AMOUNT <= number <= MAX_AMOUNT for number in numbers), "Postgres stores them"


def test_moves_within_the_threshold_wait_for_the_refresh_and_equal_values_are_never_said_again() -> None:
    made = world()
    made.report(cpu_milli=0)
    published(made)
    made.pass_time(60)
    made.report(cpu_milli=0)
    assert published(made) is None

    web = made.pod(
        "web",
        {"spec": {"containers": [{"name": "c"}]}, "metadata": {"labels": {"koordinator.sh/qosClass": "LS"}}},
        on="n",
    )
    made.report(pods=[usage_of(web, 100, 0)])
    assert published(made) is None, "within a tenth"
    made.pass_time(301)
    made.report(pods=[usage_of(web, 100, 0)])
    event = published(made)
    assert event is not None
    assert event.reason == "refreshed"
    made.report(pods=[usage_of(web, 3000, 0)])
    event = published(made)
    assert event is not None
    assert (event.reason, event.changed) == ("changed", ["kubernetes.io/batch-cpu"])


def test_zones_are_published_with_the_node_and_zeroed_with_it() -> None:
    made = world()
    made.custom("noderesourcetopologies", topology("node-0", "node-1"))
    made.report(cpu_milli=0)
    event = published(made)
    assert event is not None
    assert sorted(event.zones) == ["node-0", "node-1"]
    assert event.zones["node-0"].batch_cpu_milli == 3000 - 50
    made.pass_time(16 * 60)
    event = published(made)
    assert event is not None
    assert (event.reason, event.batch_cpu_milli, event.mid_cpu_milli) == ("degraded: metric expired", None, None)
    assert {name: entry.batch_cpu_milli for name, entry in event.zones.items()} == {"node-0": 0, "node-1": 0}
    assert published(made) is None, "withdrawn once"


def test_a_zone_number_of_thousands_of_digits_keeps_no_node_from_its_batch_resources() -> None:
    made, endless = world(), "node-" + "9" * 5000
    made.custom("noderesourcetopologies", topology("node-0", endless))
    made.report(cpu_milli=0)
    event = published(made)
    assert event is not None
    assert {name: entry.batch_cpu_milli for name, entry in event.zones.items()} == {"node-0": 2950, endless: 2950}


def test_our_own_agents_report_gives_the_zones_without_an_object() -> None:
    made = world(cpu_normalization={"enable": True, "ratioModel": {"X": {"baseRatio": 1.5}}})
    half = {"cpu": 5000, "memory": 50 * GIB}
    report = NodeTopologyReported(
        policies=["None"],
        zones=[TopologyZone(name=f"node-{number}", capacity=half, allocatable=half) for number in range(2)],
        annotations={"node.koordinator.sh/cpu-basic-info": '{"cpuModel": "X"}'},
    )
    made.fact(AggregateRef("nodestate", "n"), report)
    (ratios,) = [event for event in policy_events(made) if isinstance(event, NodeRatiosComputed)]
    assert ratios.cpu_normalization == "1.50"
    made.report(cpu_milli=0)
    event = published(made)
    assert event is not None
    assert event.zones["node-1"].batch_cpu_milli == int((3000 - 50) * 1.5)


def test_a_node_that_has_lost_its_report_lends_nothing() -> None:
    made = world()
    made.report(cpu_milli=0)
    published(made)
    report = made.report()
    without = NodeUsageReported(
        updated_at=report.updated_at, report_interval_seconds=60, aggregate_duration_seconds=300
    )
    made.view.observe(99, "n", without)
    event = published(made)
    assert event is not None
    assert event.reason == "degraded: no metric"


def test_a_node_whose_clock_was_ahead_is_heard_again_when_it_is_right() -> None:
    made = world()
    right = made.report(cpu_milli=1000)
    ahead = msgspec.structs.replace(right, updated_at="2126-01-01T00:00:00Z")
    before = msgspec.structs.replace(right, updated_at="2000-01-01T00:00:00Z")
    made.view.observe(1_000, "n", ahead)
    made.view.observe(1_001, "n", right)
    made.view.observe(999, "n", before)
    assert made.view.reports["n"] == right


@pytest.mark.parametrize("restarts", [False, True])
def test_a_report_that_comes_after_its_node_was_deleted_is_dropped(*, restarts: bool) -> None:
    made = world()
    policy_events(made)
    made.fact(AggregateRef("nodespec", "n"), NodeSpecDeleted(name="n"))
    if restarts:
        made.restart()
    made.report(cpu_milli=1000)
    assert not made.view.reports


def test_the_view_keeps_only_the_states_of_deleted_nodes() -> None:
    made = world()

    def live_and_die(node: str) -> None:
        made.plain_node(node)
        made.report(node, cpu_milli=1000)
        made.take(made.decided(NodeDevicesComputed, node))
        (draft,) = made.decided(NodeOvercommitComputed, node)
        made.take([draft])
        made.fact(AggregateRef("nodespec", node), NodeSpecDeleted(name=node))

    live_and_die("first")
    before = container_sizes(made.view)
    for number in range(20):
        live_and_die(f"n-{number}")
    grown = container_sizes(made.view) - before
    assert [path for path in grown if not path.startswith((".state", ".queue"))] == []


def returned(made: ManagerWorld) -> None:
    """Delete the node, and register a node with its name."""
    made.fact(AggregateRef("nodespec", "n"), NodeSpecDeleted(name="n"))
    made.plain_node()


def test_equal_resources_of_a_node_that_returned_are_published_again_because_the_scheduler_forgot_them() -> None:
    made = world()
    made.report(cpu_milli=1000)
    first = published(made)
    assert first is not None
    returned(made)
    made.report(cpu_milli=1000)
    again = published(made)
    assert again is not None
    assert (again.batch_cpu_milli, again.reason) == (first.batch_cpu_milli, "first")
    assert published(made) is None


def test_a_manager_that_starts_from_a_snapshot_knows_which_decisions_are_about_an_earlier_node() -> None:
    made = world()
    made.custom("devices", gpus(True, True, vendor="nvidia"))
    made.report(cpu_milli=1000)
    published(made)
    policy_events(made)
    returned(made)
    made.restart()
    made.report(cpu_milli=1000)
    event = published(made)
    assert event is not None
    assert event.reason == "first"
    assert [type(each) for each in policy_events(made)] == [NodeDevicesComputed]
    made.restart()
    made.report(cpu_milli=1000)
    assert published(made) is None
    assert policy_events(made) == []


def test_resources_of_a_node_that_returned_without_a_report_are_withdrawn() -> None:
    made = world()
    made.report(cpu_milli=1000)
    published(made)
    returned(made)
    event = published(made)
    assert event is not None
    assert (event.batch_cpu_milli, event.reason) == (None, "degraded: no metric")
    made.report(cpu_milli=1000)
    event = published(made)
    assert event is not None
    assert event.reason == "first"


def test_devices_of_a_node_that_returned_are_published_again_without_those_of_its_earlier_life() -> None:
    made = world()
    made.custom("devices", gpus(True, True, vendor="nvidia"))
    (first,) = [event for event in policy_events(made) if isinstance(event, NodeDevicesComputed)]
    returned(made)
    (again,) = [event for event in policy_events(made) if isinstance(event, NodeDevicesComputed)]
    assert (again.resources, again.labels) == (first.resources, first.labels)
    assert not [event for event in policy_events(made) if isinstance(event, NodeDevicesComputed)]
    returned(made)
    made.custom("devices", gpus(True))
    (other,) = [event for event in policy_events(made) if isinstance(event, NodeDevicesComputed)]
    assert other.labels == {"node.koordinator.sh/gpu-model": "A10"}, "the vendor was that of another machine"


def test_normalization_multiplies_batch_cpu_from_the_round_it_is_decided_in_and_amplifies_one_round_later() -> None:
    made = world(cpu_normalization={"enable": True, "ratioModel": {"X": {"hyperThreadTurboEnabledRatio": 1.2}}})
    made.custom("noderesourcetopologies", topology("node-0", model="X"))
    (first,) = [event for event in policy_events(made) if isinstance(event, NodeRatiosComputed)]
    assert (first.cpu_normalization, first.amplification, first.cpu_model) == ("1.20", None, "X")
    made.report(cpu_milli=0)
    event = published(made)
    assert event is not None
    assert (event.normalization, event.batch_cpu_milli) == ("1.20", int(5900 * 1.2))
    assert event.mid_cpu_milli == event.mid_terms["cpu"].result, "mid is not normalized"
    (second,) = policy_events(made)
    assert (second.cpu_normalization, second.amplification) == (None, '{"cpu":1.20}')
    assert policy_events(made) == []

    desired = desired_node(made.view, "n", made.policies.colocation("n", Node()))
    assert desired is not None
    assert desired.annotations == {RATIO: "1.20", AMPLIFICATION: '{"cpu":1.20}'}


def test_a_ratio_that_cannot_be_computed_leaves_the_old_one_and_says_why() -> None:
    made = world(cpu_normalization={"enable": True, "ratioModel": {"X": {"hyperThreadTurboEnabledRatio": 1.2}}})
    made.custom("noderesourcetopologies", topology("node-0", model="X"))
    policy_events(made)
    made.custom("noderesourcetopologies", topology("node-0", model="Y"))
    (event,) = [event for event in policy_events(made) if event.faults]
    assert "Y" in event.faults["normalization"]
    policy = made.view.policy("n")
    assert policy is not None
    assert policy.cpu_normalization == "1.20"


def test_gpus_are_summed_over_healthy_devices_even_while_colocation_is_disabled() -> None:
    made = world(colocation={"enable": False})
    made.custom("devices", gpus(True, True, False))
    (event,) = [event for event in policy_events(made) if isinstance(event, NodeDevicesComputed)]
    assert event.resources["koordinator.sh/gpu"] == 200
    assert event.resources["koordinator.sh/gpu-memory"] == 32 * GIB
    assert event.labels == {"node.koordinator.sh/gpu-model": "A10"}
    made.custom("devices", gpus(False))
    (event,) = policy_events(made)
    assert (event.resources, event.labels) == ({}, {"node.koordinator.sh/gpu-model": "A10"})


def test_gpus_of_another_vendor_are_no_whole_gpus_and_shared_ones_need_the_gate() -> None:
    made = world()
    made.policies.sync_shared_gpus = True
    made.custom("devices", gpus(True, vendor="huawei"))
    (event,) = [event for event in policy_events(made) if isinstance(event, NodeDevicesComputed)]
    assert "koordinator.sh/gpu" not in event.resources
    assert event.resources["koordinator.sh/gpu.shared"] == 100


def test_a_bad_section_keeps_what_was_in_force_and_the_others_change() -> None:
    made = world(resource_threshold={"clusterStrategy": {"cpuSuppressThresholdPercent": 50}})
    policy_events(made)
    made.configure(
        colocation=COLOCATION,
        resource_threshold={"clusterStrategy": {"cpuSuppressThresholdPercent": "much"}},
        cpu_burst={"clusterStrategy": {"policy": "auto"}},
    )
    (event,) = policy_events(made)
    assert isinstance(event, NodeSloRendered)
    assert event.spec["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 50
    assert event.spec["cpuBurstStrategy"]["policy"] == "auto"


def test_a_deleted_configuration_stays_in_force_until_a_restart() -> None:
    made = world(resource_threshold={"clusterStrategy": {"cpuSuppressThresholdPercent": 50}})
    policy_events(made)
    ref = AggregateRef("config", "koordinator-system=slo-controller-config")
    made.fact(ref, ConfigDeleted(namespace="koordinator-system", name="slo-controller-config"))
    made.policies.refresh(made.view)
    assert policy_events(made) == []
    restarted = NodePolicies()
    restarted.refresh(made.view)
    (draft,) = made.decided(NodeSloRendered, policies=restarted)
    assert isinstance(draft.event, NodeSloRendered)
    assert draft.event.spec["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 65


def test_a_rendered_nodeslo_names_the_entries_that_matched_and_what_the_node_wrote_wrongly() -> None:
    entries = [{"name": "fast", "nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuSuppressThresholdPercent": 80}]
    made = world(resource_threshold={"clusterStrategy": {}, "nodeStrategies": entries})
    meta = ObjectMeta(name="n", labels={"pool": "a"}, annotations={"node.koordinator.sh/network-bandwidth": "wide"})
    node = made.view.node("n")
    assert node is not None
    made.fact(AggregateRef("nodespec", "n"), NodeSpecChanged(object=Node(metadata=meta, status=node.status)))
    event = policy_events(made)[0]
    assert event.matched == {"resource-threshold-config": "fast"}
    assert "network-bandwidth" in event.fault
    assert event.spec["systemStrategy"] is None


def test_how_a_node_measures_follows_its_own_switch() -> None:
    made = world(colocation=COLOCATION | {"metricReportIntervalSeconds": 20})
    (event,) = [event for event in policy_events(made) if isinstance(event, NodeMetricPolicyRendered)]
    assert event.spec["reportIntervalSeconds"] == 20
    made.configure(colocation={"enable": False, "metricReportIntervalSeconds": 20})
    (event,) = [event for event in policy_events(made) if isinstance(event, NodeMetricPolicyRendered)]
    assert event.spec["reportIntervalSeconds"] == 60


def test_lending_more_than_there_is_is_warned_about_once_and_taken_back_when_it_is_mended() -> None:
    made = world(colocation=COLOCATION | {"cpuReclaimThresholdPercent": 120})
    (event,) = made.take(warning_drafts(made.policies, made.view))
    assert isinstance(event, ConfigWarned)
    assert list(event.warnings) == ["colocation-config.cpuReclaimThresholdPercent"]
    assert warning_drafts(made.policies, made.view) == []
    made.configure(colocation=COLOCATION)
    assert warning_drafts(made.policies, made.view) == []


QUESTIONABLE: list[tuple[dict[str, Any], str]] = [
    (
        {"colocation": COLOCATION | {"nodeConfigs": [{"nodeSelector": {}, "memoryReclaimThresholdPercent": 110}]}},
        "colocation-config.nodeConfigs[0].memoryReclaimThresholdPercent",
    ),
    (
        {
            "colocation": COLOCATION | {"cpuReclaimThresholdPercent": 80},
            "resource_threshold": {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65}},
        },
        "resource-threshold-config.cpuSuppressThresholdPercent",
    ),
    ({"slo_adjust": {"enable": True, "warnLevel": 0.9}}, "slo-adjust-config.warnLevel"),
    ({"slo_adjust": {"enable": True, "recoverLevel": 0.5}}, "slo-adjust-config.recoverLevel"),
    (
        {"slo_adjust": {"enable": True, "signals": {"cpuUtil": {"warn": 90}}}},
        "slo-adjust-config.signals.cpuUtil.warn",
    ),
]


@pytest.mark.parametrize(("sections", "field"), QUESTIONABLE)
def test_what_is_worth_a_look_is_named_by_its_field(sections: dict[str, Any], field: str) -> None:
    assert list(config_warnings(world(**sections).policies.config)) == [field]


@given(st.integers(0, 10**9), st.floats(1, 5))
def test_normalized_cpu_is_never_less_than_what_was_computed(cpu_milli: int, ratio: float) -> None:
    text = f"{ratio:.2f}"
    assert cpu_milli <= normalized(cpu_milli, text) <= cpu_milli * float(text) + 1


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.01, 1))
def test_a_value_that_was_just_published_is_not_published_again(old: int, new: int, threshold: float) -> None:
    assert not differs(new, new, threshold)
    assert differs(None, new, threshold)
    assert differs(old, new, threshold) == (abs(new - old) > old * threshold)


samples = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 20 * GIB)), max_size=6)


@given(samples, st.integers(0, 100), st.integers(0, 4000))
def test_batch_and_protected_usage_together_never_exceed_the_share_that_may_be_used(
    pods: list[tuple[int, int]], percent: int, system: int
) -> None:
    made = world(colocation=COLOCATION | {"cpuReclaimThresholdPercent": percent})
    usages: list[PodUsage] = []
    for number, (cpu, memory) in enumerate(pods):
        document = {"metadata": {"labels": {"koordinator.sh/qosClass": "LS"}}, "spec": {"containers": [{"name": "c"}]}}
        usages.append(usage_of(made.pod(f"p{number}", document, on="n"), cpu, memory))
    report = made.report(pods=usages)
    made.view.observe(
        9,
        "n",
        NodeUsageReported(
            updated_at=report.updated_at,
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(0, 0),
            system_usage=Usage(system, 0),
            pods=list(usages),
        ),
    )
    event = published(made)
    assert event is not None
    assert event.batch_cpu_milli is not None
    used = sum(cpu for cpu, _ in pods)
    assert event.batch_cpu_milli == 0 or event.batch_cpu_milli + used + system <= 10_000 * percent / 100 + 1


@pytest.mark.parametrize(
    ("entries", "enabled"),
    [
        (("nodeslo",), False),
        (("*",), True),
        (("*", "-noderesource"), False),
        (("-noderesource", "*", "noderesource"), False),
        (("noderesource", "-noderesource"), True),
        (("-nodeslo",), False),
        ((), False),
    ],
)
def test_the_first_entry_about_a_name_decides_and_a_star_about_all_others(
    entries: tuple[str, ...], enabled: bool
) -> None:
    assert is_enabled("noderesource", entries) is enabled


def test_a_plugin_that_does_not_run_offers_nothing_and_leaves_what_stands() -> None:
    made = world()
    made.custom("devices", gpus(True))
    made.policies.plugins = frozenset(("BatchResource",))
    assert [type(event) for event in policy_events(made)] == [NodeSloRendered, NodeMetricPolicyRendered]
    made.report(cpu_milli=0)
    event = published(made)
    assert event is not None
    assert (event.batch_cpu_milli, event.mid_cpu_milli, event.mid_terms) == (5900, None, {})
    made.policies.plugins = frozenset(("MidResource", "GPUDeviceResource"))
    event = published(made)
    assert event is not None
    assert (event.reason, event.batch_cpu_milli, event.mid_cpu_milli) == ("changed", None, 0)
    (devices,) = policy_events(made)
    assert isinstance(devices, NodeDevicesComputed)
    made.policies.plugins = frozenset()
    made.custom("devices", gpus())
    assert policy_events(made) == []
    assert published(made) is None
