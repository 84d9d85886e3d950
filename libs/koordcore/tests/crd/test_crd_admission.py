"""Every required field, bound, enum and default of protocol spec, 9, from both sides."""

from __future__ import annotations

import copy

import pytest
from koordcore.protocol.crd import Accepted, Json, Refused, admit

TEMPLATE: dict[str, Json] = {"spec": {"containers": [{"name": "c", "anything": [1, {"deep": None}]}]}}
OWNERS: list[Json] = [{"object": {"name": "p"}}]


def document(group: str, kind: str, spec: Json = None, **top: Json) -> dict[str, Json]:
    result: dict[str, Json] = {"apiVersion": group, "kind": kind, "metadata": {"name": "x", "labels": {"a": "b"}}}
    if spec is not None:
        result["spec"] = spec
    return {**result, **top}


def reservation(**spec: Json) -> dict[str, Json]:
    return document(
        "scheduling.koordinator.sh/v1alpha1", "Reservation", {"template": TEMPLATE, "owners": OWNERS, **spec}
    )


def device(**info: Json) -> dict[str, Json]:
    return document("scheduling.koordinator.sh/v1alpha1", "Device", {"devices": [info]})


def node_slo(**spec: Json) -> dict[str, Json]:
    return document("slo.koordinator.sh/v1alpha1", "NodeSLO", spec)


def stored(verdict: Accepted | Refused) -> dict[str, Json]:
    assert isinstance(verdict, Accepted), verdict
    return verdict.object


def stored_spec(verdict: Accepted | Refused) -> dict[str, Json]:
    spec = stored(verdict)["spec"]
    assert isinstance(spec, dict)
    return spec


def refused_field(verdict: Accepted | Refused) -> str:
    assert isinstance(verdict, Refused), verdict
    assert verdict.rule
    assert verdict.field in verdict.sentence()
    return verdict.field


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ([], ""),
        (None, ""),
        ({}, "apiVersion"),
        ({"apiVersion": "v1"}, "kind"),
        ({"apiVersion": 1, "kind": "NodeSLO"}, "apiVersion"),
        ({"apiVersion": "v1", "kind": "Pod"}, "kind"),
        ({"apiVersion": "slo.koordinator.sh/v1", "kind": "NodeSLO"}, "apiVersion"),
        ({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": 3}, "metadata"),
        ({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "spec": []}, "spec"),
    ],
)
def test_document_that_is_no_custom_resource(given: Json, field: str) -> None:
    assert refused_field(admit(given)) == field


def test_input_is_not_changed() -> None:
    given = reservation(notAField=1)
    before = copy.deepcopy(given)
    admit(given)
    assert given == before


def test_reservation_defaults_are_filled_in_and_unknown_fields_dropped() -> None:
    spec = stored_spec(admit(reservation(notAField=1, preAllocationPolicy={"x": 1}, ttl=None)))
    assert spec == {
        "template": TEMPLATE,
        "owners": OWNERS,
        "ttl": "24h",
        "allocateOnce": True,
        "preAllocationPolicy": {"mode": "Default", "enableMultiple": False},
    }


def test_status_phase_is_defaulted_only_in_a_status_that_exists() -> None:
    assert "status" not in stored(admit(reservation()))
    given: dict[str, Json] = {**reservation(), "status": {"nodeName": "n"}}
    assert stored(admit(given))["status"] == {"nodeName": "n", "phase": "Pending"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"owners": []}, "spec.owners"),
        ({"owners": {}}, "spec.owners"),
        ({"owners": [None]}, "spec.owners[0]"),
        ({"owners": [{"object": {"name": "p"}}, {"unknown": 1}]}, "spec.owners[1]"),
        ({"owners": [{"object": {"name": 1}}]}, "spec.owners[0].object.name"),
        *(
            (
                {"owners": [{"controller": {k: "v" for k in ("apiVersion", "kind", "name", "uid") if k != missing}}]},
                f"spec.owners[0].controller.{missing}",
            )
            for missing in ("apiVersion", "kind", "name", "uid")
        ),
        (
            {"owners": [{"labelSelector": {"matchExpressions": [{"operator": "In"}]}}]},
            "spec.owners[0].labelSelector.matchExpressions[0].key",
        ),
        (
            {"owners": [{"labelSelector": {"matchExpressions": [{"key": "k"}]}}]},
            "spec.owners[0].labelSelector.matchExpressions[0].operator",
        ),
        (
            {"owners": [{"labelSelector": {"matchLabels": {"a": 1}}}]},
            "spec.owners[0].labelSelector.matchLabels.a",
        ),
        ({"ttl": 3}, "spec.ttl"),
        ({"expires": "tomorrow"}, "spec.expires"),
        ({"expires": "2024-02-30T00:00:00Z"}, "spec.expires"),
        ({"allocateOnce": "true"}, "spec.allocateOnce"),
        ({"allocatePolicy": "Default"}, "spec.allocatePolicy"),
        ({"allocatePolicy": ""}, "spec.allocatePolicy"),
        ({"preAllocation": 1}, "spec.preAllocation"),
        ({"preAllocationPolicy": {"mode": "Node"}}, "spec.preAllocationPolicy.mode"),
        ({"preAllocationPolicy": {"enableMultiple": 0}}, "spec.preAllocationPolicy.enableMultiple"),
        ({"taints": [{"key": "k"}]}, "spec.taints[0].effect"),
        ({"taints": [{"effect": "NoSchedule"}]}, "spec.taints[0].key"),
        ({"taints": [{"effect": "NoSchedule", "key": "k", "timeAdded": "now"}]}, "spec.taints[0].timeAdded"),
    ],
)
def test_reservation_refused(spec: dict[str, Json], field: str) -> None:
    assert refused_field(admit(reservation(**spec))) == field


@pytest.mark.parametrize("missing", ["template", "owners"])
def test_reservation_required(missing: str) -> None:
    given = reservation()
    spec = given["spec"]
    assert isinstance(spec, dict)
    del spec[missing]
    assert refused_field(admit(given)) == f"spec.{missing}"


@pytest.mark.parametrize(
    "time",
    ["2024-02-29T23:59:60Z", "2024-02-29T23:59:59.123+08:00", "2024-02-29t00:00:00z", "2024-12-31T00:00:00-00:30"],
)
def test_rfc_3339_times_are_accepted(time: str) -> None:
    assert stored_spec(admit(reservation(expires=time)))["expires"] == time


@pytest.mark.parametrize("policy", ["Aligned", "Restricted"])
def test_reservation_allocate_policies(policy: str) -> None:
    assert stored_spec(admit(reservation(allocatePolicy=policy)))["allocatePolicy"] == policy


CONDITION: dict[str, Json] = {
    "type": "Healthy",
    "status": "True",
    "reason": "Ok",
    "message": "",
    "lastTransitionTime": "2024-01-01T00:00:00Z",
}


def test_device_health_is_false_unless_said() -> None:
    spec = stored_spec(admit(device(type="gpu", vfGroups=[{"vfs": [{"minor": 0}]}], conditions=[CONDITION])))
    assert spec["devices"] == [
        {"type": "gpu", "vfGroups": [{"vfs": [{"minor": 0}]}], "conditions": [CONDITION], "health": False}
    ]


@pytest.mark.parametrize(
    ("info", "field"),
    [
        ({"minor": 2**31}, "minor"),
        ({"minor": -(2**31) - 1}, "minor"),
        ({"minor": "0"}, "minor"),
        ({"moduleID": 1.5}, "moduleID"),
        ({"health": "yes"}, "health"),
        ({"resources": {"koordinator.sh/gpu-core": True}}, "resources.koordinator.sh/gpu-core"),
        ({"resources": {"cpu": "1C"}}, "resources.cpu"),
        ({"resources": {"cpu": "1\n"}}, "resources.cpu"),
        ({"resources": {"cpu": None}}, "resources.cpu"),
        *(
            ({"topology": {k: v for k, v in {"socketID": 0, "nodeID": 0, "pcieID": "0"}.items() if k != missing}}, t)
            for missing, t in (
                ("socketID", "topology.socketID"),
                ("nodeID", "topology.nodeID"),
                ("pcieID", "topology.pcieID"),
            )
        ),
        ({"vfGroups": [{"vfs": [{"busID": "x"}]}]}, "vfGroups[0].vfs[0].minor"),
        *(
            ({"conditions": [{k: v for k, v in CONDITION.items() if k != missing}]}, f"conditions[0].{missing}")
            for missing in CONDITION
        ),
        ({"conditions": [{**CONDITION, "status": "Maybe"}]}, "conditions[0].status"),
        ({"conditions": [{**CONDITION, "reason": ""}]}, "conditions[0].reason"),
        ({"conditions": [{**CONDITION, "type": "a b"}]}, "conditions[0].type"),
        ({"conditions": [{**CONDITION, "observedGeneration": -1}]}, "conditions[0].observedGeneration"),
        ({"conditions": [{**CONDITION, "message": "m" * 32769}]}, "conditions[0].message"),
    ],
)
def test_device_refused(info: dict[str, Json], field: str) -> None:
    assert refused_field(admit(device(**info))) == f"spec.devices[0].{field}"


@pytest.mark.parametrize("quantity", [0, 5, "5", "+1.5Gi", ".5", "1.", "1e3", "-2E-3", "100m", "7n", "3u"])
def test_quantities_are_accepted(quantity: Json) -> None:
    given = document("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", {"min": {"cpu": quantity}, "x": 1})
    assert stored_spec(admit(given)) == {"min": {"cpu": quantity}}


@pytest.mark.parametrize("quantity", ["", "1KI", "0x1", "1 ", "Gi", [], {}, True])
def test_texts_that_are_no_quantity_are_refused(quantity: Json) -> None:
    given = document("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", {"min": {"cpu": quantity}})
    assert refused_field(admit(given)) == "spec.min.cpu"


BOUNDS: list[tuple[str, str, int | None, int | None]] = [
    *(
        ("resourceUsedThresholdWithBE", name, 0, 100)
        for name in (
            "cpuSuppressThresholdPercent",
            "cpuSuppressMinPercent",
            "memoryEvictThresholdPercent",
            "memoryEvictLowerPercent",
            "cpuEvictThresholdPercent",
            "cpuEvictLowerPercent",
            "cpuEvictBESatisfactionUpperPercent",
            "cpuEvictBESatisfactionLowerPercent",
            "cpuEvictBEUsageThresholdPercent",
        )
    ),
    *(
        ("resourceUsedThresholdWithBE", name, 0, None)
        for name in (
            "memoryAllocatableEvictThresholdPercent",
            "memoryAllocatableEvictLowerPercent",
            "cpuAllocatableEvictThresholdPercent",
            "cpuAllocatableEvictLowerPercent",
        )
    ),
    ("resourceUsedThresholdWithBE", "evictEnabledPriorityThreshold", -(2**31), 2**31 - 1),
    ("resourceUsedThresholdWithBE", "allocatableEvictPriorityThreshold", -(2**31), 2**31 - 1),
    ("cpuBurstStrategy", "cpuBurstPercent", 0, 10000),
    *(
        (f"resourceQOSStrategy.{owner}.resctrlQOS", name, 0, 100)
        for owner in ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")
        for name in ("catRangeStartPercent", "catRangeEndPercent", "mbaPercent")
    ),
    ("resourceQOSStrategy.beClass.memoryQOS", "wmarkRatio", 0, 100),
    ("resourceQOSStrategy.beClass.memoryQOS", "wmarkScalePermill", 1, 1000),
    ("resourceQOSStrategy.beClass.memoryQOS", "wmarkMinAdj", -25, 50),
    ("resourceQOSStrategy.beClass.memoryQOS", "minLimitPercent", 0, None),
    ("resourceQOSStrategy.beClass.memoryQOS", "lowLimitPercent", 0, None),
    ("resourceQOSStrategy.beClass.memoryQOS", "throttlingPercent", 0, None),
]


def nested(path: str, name: str, value: Json) -> dict[str, Json]:
    result: dict[str, Json] = {name: value}
    for part in reversed(path.split(".")):
        result = {part: result}
    return result


@pytest.mark.parametrize(("path", "name", "low", "high"), BOUNDS)
def test_node_slo_bounds(path: str, name: str, low: int | None, high: int | None) -> None:
    for edge, outside in ((low, -1), (high, +1)):
        if edge is not None:
            stored(admit(node_slo(**nested(path, name, edge))))
            assert refused_field(admit(node_slo(**nested(path, name, edge + outside)))) == f"spec.{path}.{name}"
        else:
            stored(admit(node_slo(**nested(path, name, 10**6))))
    assert refused_field(admit(node_slo(**nested(path, name, "5")))) == f"spec.{path}.{name}"


IO_BOUNDS: list[tuple[str, int, int | None]] = [
    *((name, 0, None) for name in ("readIOPS", "writeIOPS", "readBPS", "writeBPS")),
    ("ioWeightPercent", 1, 100),
    ("readLatencyPercent", 0, 100),
    ("writeLatencyPercent", 0, 100),
    *((f"model{name}", 1, None) for name in ("ReadBPS", "WriteBPS", "ReadSeqIOPS", "WriteSeqIOPS")),
    *((f"model{name}", 1, None) for name in ("ReadRandIOPS", "WriteRandIOPS")),
]


@pytest.mark.parametrize(("name", "low", "high"), IO_BOUNDS)
def test_node_slo_block_io_bounds(name: str, low: int, high: int | None) -> None:
    def given(value: int) -> dict[str, Json]:
        return node_slo(resourceQOSStrategy={"cgroupRoot": {"blkioQOS": {"blocks": [{"ioCfg": {name: value}}]}}})

    field = f"spec.resourceQOSStrategy.cgroupRoot.blkioQOS.blocks[0].ioCfg.{name}"
    stored(admit(given(low)))
    assert refused_field(admit(given(low - 1))) == field
    if high is not None:
        stored(admit(given(high)))
        assert refused_field(admit(given(high + 1))) == field


def test_node_slo_network_limits_default_to_all_of_the_bandwidth() -> None:
    spec = stored_spec(admit(node_slo(resourceQOSStrategy={"lsClass": {"networkQOS": {"ingressLimit": "50M"}}})))
    assert spec == {
        "resourceQOSStrategy": {
            "lsClass": {
                "networkQOS": {"ingressLimit": "50M", "ingressRequest": 0, "egressRequest": 0, "egressLimit": 100}
            }
        }
    }
    given = node_slo(resourceQOSStrategy={"lsClass": {"networkQOS": {"egressLimit": 1.5}}})
    assert refused_field(admit(given)) == "spec.resourceQOSStrategy.lsClass.networkQOS.egressLimit"


def test_open_objects_keep_what_nobody_knows() -> None:
    extensions: Json = {"plug-in": {"a": [1, None]}}
    assert stored_spec(admit(node_slo(extensions=extensions, other=1))) == {"extensions": extensions}
    profile = document("config.koordinator.sh/v1alpha1", "ClusterColocationProfile", {"patch": {"spec": {"x": None}}})
    assert stored_spec(admit(profile)) == {"patch": {"spec": {"x": None}}}
    assert stored(admit({**node_slo(), "status": {"a": 1}, "more": 2}))["status"] == {}


def test_open_subtree_deeper_than_the_stack_is_kept() -> None:
    deep: dict[str, Json] = {}
    for _ in range(100_000):
        deep = {"d": deep}
    assert stored_spec(admit(reservation(template=deep)))["template"] is deep
    while isinstance(inner := deep.get("d"), dict):  # taken apart by hand: dropping the chain at once would recurse
        deep = inner


PROFILE = "config.koordinator.sh/v1alpha1", "ClusterColocationProfile"
MIGRATION = "scheduling.koordinator.sh/v1alpha1", "PodMigrationJob"
TOPOLOGY = "scheduling.koordinator.sh/v1alpha1", "ClusterNetworkTopology"
METRIC = "slo.koordinator.sh/v1alpha1", "NodeMetric"
QUOTA_PROFILE = "quota.koordinator.sh/v1alpha1", "ElasticQuotaProfile"
RECOMMENDATION = "analysis.koordinator.sh/v1alpha1", "Recommendation"


@pytest.mark.parametrize("qos", ["LSE", "LSR", "LS", "BE", "SYSTEM"])
def test_profile_qos_classes(qos: str) -> None:
    assert stored_spec(admit(document(*PROFILE, {"qosClass": qos}))) == {"qosClass": qos}


REFUSED: list[tuple[tuple[str, str], dict[str, Json], str]] = [
    (PROFILE, {"qosClass": ""}, "spec.qosClass"),
    (PROFILE, {"probability": 0.3}, "spec.probability"),
    (PROFILE, {"koordinatorPriority": "1"}, "spec.koordinatorPriority"),
    (PROFILE, {"koordinatorPriority": 2**31}, "spec.koordinatorPriority"),
    (PROFILE, {"labels": {"a": 1}}, "spec.labels.a"),
    (PROFILE, {"labelSuffixes": []}, "spec.labelSuffixes"),
    (PROFILE, {"selector": {"matchExpressions": [{"key": "k"}]}}, "spec.selector.matchExpressions[0].operator"),
    (MIGRATION, {}, "spec.podRef"),
    (MIGRATION, {"podRef": None}, "spec.podRef"),
    (MIGRATION, {"podRef": {"uid": 1}}, "spec.podRef.uid"),
    (MIGRATION, {"podRef": {}, "paused": "no"}, "spec.paused"),
    (
        MIGRATION,
        {"podRef": {}, "deleteOptions": {"gracePeriodSeconds": "3"}},
        "spec.deleteOptions.gracePeriodSeconds",
    ),
    (TOPOLOGY, {}, "spec.networkTopologySpec"),
    (TOPOLOGY, {"networkTopologySpec": [{}]}, "spec.networkTopologySpec[0].topologyLayer"),
    (
        TOPOLOGY,
        {"networkTopologySpec": [{"topologyLayer": "l", "labelKey": "x"}]},
        "spec.networkTopologySpec[0].labelKey",
    ),
    (
        METRIC,
        {"metricCollectPolicy": {"aggregateDurationSeconds": "5m"}},
        "spec.metricCollectPolicy.aggregateDurationSeconds",
    ),
    (
        METRIC,
        {"metricCollectPolicy": {"nodeMemoryCollectPolicy": ""}},
        "spec.metricCollectPolicy.nodeMemoryCollectPolicy",
    ),
    (QUOTA_PROFILE, {"nodeSelector": {}}, "spec.quotaName"),
    (QUOTA_PROFILE, {"quotaName": "q"}, "spec.nodeSelector"),
    (QUOTA_PROFILE, {"quotaName": "q", "nodeSelector": {}, "resourceRatio": 1}, "spec.resourceRatio"),
    (RECOMMENDATION, {}, "spec.target"),
    (RECOMMENDATION, {"target": {}}, "spec.target.type"),
    (RECOMMENDATION, {"target": {"type": "workload", "workload": {"name": "d"}}}, "spec.target.workload.kind"),
    (RECOMMENDATION, {"target": {"type": "workload", "workload": {"kind": "D"}}}, "spec.target.workload.name"),
]


@pytest.mark.parametrize(("resource", "spec", "field"), REFUSED)
def test_refused(resource: tuple[str, str], spec: dict[str, Json], field: str) -> None:
    assert refused_field(admit(document(*resource, spec))) == field


@pytest.mark.parametrize("policy", ["usageWithHotPageCache", "usageWithoutPageCache", "usageWithPageCache"])
def test_node_metric_memory_policies(policy: str) -> None:
    spec: Json = {"metricCollectPolicy": {"nodeMemoryCollectPolicy": policy}}
    assert stored_spec(admit(document(*METRIC, spec))) == spec


def test_node_metric_status() -> None:
    usage: Json = {"resources": {"cpu": "1", "memory": 5}}
    status: Json = {
        "updateTime": "2024-01-01T00:00:00Z",
        "nodeMetric": {
            "nodeUsage": {**usage, "devices": [{"type": "gpu", "health": True}]},
            "aggregatedNodeUsages": [{"usage": {"p95": usage}, "duration": "5m0s"}],
            "numaUsages": [{"numaNodeID": 0, "nodeUsage": usage}],
        },
        "podsMetric": [{"name": "p", "namespace": "d", "podUsage": usage, "extensions": {"any": 1}}],
        "prodReclaimableMetric": {"resource": usage},
    }
    assert stored(admit(document(*METRIC, status=status)))["status"] == status
    bad: Json = {"nodeMetric": {"numaUsages": [{"nodeUsage": usage}]}}
    assert refused_field(admit(document(*METRIC, status=bad))) == "status.nodeMetric.numaUsages[0].numaNodeID"


def test_migration_condition_times_may_be_null() -> None:
    conditions: Json = [{"type": "Eviction", "status": "True", "lastProbeTime": None}]
    given = document(*MIGRATION, {"podRef": {"name": "p"}}, status={"conditions": conditions})
    assert stored(admit(given))["status"] == {"conditions": conditions}
    for missing in ("type", "status"):
        kept: Json = {name: "x" for name in ("type", "status") if name != missing}
        given = document(*MIGRATION, {"podRef": {}}, status={"conditions": [kept]})
        assert refused_field(admit(given)) == f"status.conditions[0].{missing}"


ZONE: dict[str, Json] = {
    "name": "node-0",
    "type": "Node",
    "resources": [{"name": "cpu", "capacity": "16", "allocatable": 16, "available": "16"}],
}


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_node_resource_topology(version: str) -> None:
    group = f"topology.node.k8s.io/{version}"
    given = document(group, "NodeResourceTopology", topologyPolicies=["None"], zones=[ZONE], attributes=[])
    assert ("attributes" in stored(admit(given))) == (version == "v1alpha2")
    for missing in ("name", "type"):
        zone: Json = {name: value for name, value in ZONE.items() if name != missing}
        given = document(group, "NodeResourceTopology", topologyPolicies=[], zones=[zone])
        assert refused_field(admit(given)) == f"zones[0].{missing}"
    untyped: Json = {"name": "node-0", "resources": []}
    assert refused_field(admit(document(group, "NodeResourceTopology", zones=[untyped]))) == "zones[0].type"
    assert stored(admit(document(group, "NodeResourceTopology", zones=[ZONE])))["zones"] == [ZONE]
    for missing in ("name", "capacity", "allocatable", "available"):
        resource: Json = {name: "1" for name in ("name", "capacity", "allocatable", "available") if name != missing}
        zone = {"name": "node-0", "type": "Node", "resources": [resource]}
        given = document(group, "NodeResourceTopology", topologyPolicies=[], zones=[zone])
        assert refused_field(admit(given)) == f"zones[0].resources[0].{missing}"


def test_explanation_and_network_topology_status() -> None:
    detail: Json = [{"topologyInfo": {"topologyLayer": "l", "topologyName": "n"}, "nodeNum": 3}]
    given = document(*TOPOLOGY, {"networkTopologySpec": []}, status={"detailStatus": detail})
    assert stored(admit(given))["status"] == {"detailStatus": detail}
    incomplete: list[tuple[str, Json]] = [
        ("nodeNum", {"topologyInfo": {"topologyLayer": "l", "topologyName": "n"}}),
        ("topologyInfo", {"nodeNum": 1}),
        ("topologyInfo.topologyName", {"nodeNum": 1, "topologyInfo": {"topologyLayer": "l"}}),
        ("topologyInfo.topologyLayer", {"nodeNum": 1, "topologyInfo": {"topologyName": "l"}}),
    ]
    for path, entry in incomplete:
        given = document(*TOPOLOGY, {"networkTopologySpec": []}, status={"detailStatus": [entry]})
        assert refused_field(admit(given)) == f"status.detailStatus[0].{path}"
    explanation = document("scheduling.koordinator.sh/v1alpha1", "ScheduleExplanation", {"ttl": "0"})
    assert stored_spec(admit(explanation)) == {"ttl": "0"}
