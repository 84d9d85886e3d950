"""`koord lint` and hardware: hints, requests, Device and NodeResourceTopology objects, valid and malformed."""

import json
import random
from collections import Counter
from typing import Any, cast

import pytest
from koord_manager.domain.admission.context.hardware_shapes import HardwareShapes
from koord_manager.domain.admission.options import Options
from koordcore.protocol import keys
from koordcore.stories.device_cards import cards_of
from koordcore.stories.hardware import node_hardware
from koordctl.objects.lint import Finding, Linter
from support.depth import repeats, seeds
from support.hardware import device_document, topology_document
from support.hostile_hardware import ANNOTATIONS, malformed, pod

DOCUMENTS = repeats(2_500)
"""Documents of one seed: 20,000 in all."""
BAD_SELECTOR = {"matchExpressions": [{"key": "a", "operator": "~"}]}


def lint(document: object) -> Finding:
    return Linter(Options()).judge([document])[0]


@pytest.mark.parametrize(
    ("requests", "sentence"),
    [
        ({"koordinator.sh/gpu": "150"}, "koordinator.sh/gpu"),
        ({"koordinator.sh/gpu-memory-ratio": "250"}, "koordinator.sh/gpu-memory-ratio"),
        ({"koordinator.sh/gpu-core": "150", "koordinator.sh/gpu-memory-ratio": "150"}, "invalid resource unit"),
        ({"koordinator.sh/gpu-core": "50"}, "invalid resource device requests"),
        ({"nvidia.com/gpu": "1", "koordinator.sh/gpu-core": "50"}, "invalid resource device requests"),
        ({"koordinator.sh/rdma": "101"}, "koordinator.sh/rdma"),
    ],
)
def test_device_requests_that_the_scheduler_refuses_are_warned_about(requests: dict[str, str], sentence: str) -> None:
    found = lint(pod({"cpu": "2", "memory": "1Gi", **requests}))
    refused = [each for each in found.warnings if "the scheduler refuses the pod" in each]
    assert len(refused) == 1, found
    assert sentence in refused[0]
    assert "spec.containers[*].resources.requests" in refused[0]
    assert "requests.requests" not in refused[0]


def test_valid_requests_and_hints_give_no_warning() -> None:
    texts = {key: json.dumps(value) for key, value in ANNOTATIONS.items()}
    requests = {"cpu": "4", "memory": "1Gi", "koordinator.sh/gpu": "200", "koordinator.sh/rdma": "1"}
    assert lint(pod(requests, texts)).warnings == ()
    for document in (device_document("n1"), topology_document("n1")):
        found = lint(document)
        assert (found.warnings, found.violations) == ((), ())


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (keys.RESOURCE_SPEC, {"requiredCPUBindPolicy": "WholeCores"}, "requiredCPUBindPolicy: should be one of"),
        (keys.RESOURCE_SPEC, {"preferredCPUExclusivePolicy": "Socket"}, "preferredCPUExclusivePolicy"),
        (keys.NUMA_TOPOLOGY_SPEC, {"numaTopologyPolicy": "TwoZones"}, "numaTopologyPolicy: should be one of"),
        (keys.DEVICE_ALLOCATE_HINT, {"gpu": {"requiredTopologyScope": "Rack"}}, "gpu.requiredTopologyScope: should be"),
        (keys.DEVICE_ALLOCATE_HINT, {"rdma": {"allocateStrategy": "All"}}, "rdma.allocateStrategy: should be one of"),
        (keys.DEVICE_ALLOCATE_HINT, {"gpu": {"exclusivePolicy": "NUMA"}}, "gpu.exclusivePolicy: should be one of"),
        (
            keys.DEVICE_ALLOCATE_HINT,
            {"gpu": {"selector": {"matchExpressions": [{"key": "a", "operator": "~"}]}}},
            "gpu",
        ),
        (keys.DEVICE_JOINT_ALLOCATE, {"deviceTypes": ["gpu"]}, "deviceTypes: should be two device types or more"),
        (keys.DEVICE_JOINT_ALLOCATE, {"deviceTypes": ["gpu", "rdma"], "requiredScope": "Node"}, "requiredScope"),
        (keys.GPU_PARTITION_SPEC, {"ringBusBandwidth": "fast"}, "ringBusBandwidth"),
    ],
)
def test_bad_hints_are_warned_about_with_field_rule_and_value(key: str, value: object, words: str) -> None:
    found = lint(pod({"cpu": "4", "memory": "1Gi"}, {key: json.dumps(value)}))
    about = [each for each in found.warnings if f"metadata.annotations[{key}]" in each]
    assert len(about) == 1, found.warnings
    assert words in about[0]
    assert about[0].count(key) == 1


def test_a_bind_policy_of_a_pod_that_owns_no_cpus_is_warned_about() -> None:
    text = json.dumps(ANNOTATIONS[keys.RESOURCE_SPEC])
    assert any(
        "only pods of QoS class LSE or LSR" in each
        for each in lint(pod({"cpu": "4"}, {keys.RESOURCE_SPEC: text}, "LS")).warnings
    )


def test_ignored_entries_of_reports_are_warned_about() -> None:
    device = device_document("n1", gpus=2)
    device["spec"]["devices"].append(dict(device["spec"]["devices"][0]))
    device["metadata"]["annotations"] = {keys.GPU_PARTITIONS: '{"x": []}'}
    warnings = lint(device).warnings
    assert any("spec.devices[3].minor: must be stated once for each type" in each for each in warnings)
    assert any(keys.GPU_PARTITIONS in each for each in warnings)
    topology = topology_document("n1", annotations={keys.CPU_TOPOLOGY: '{"detail": [{"id": -1}]}'})
    assert any(keys.CPU_TOPOLOGY in each for each in lint(topology).warnings)


def test_requests_beyond_every_node_of_the_cluster_are_warned_about() -> None:
    cluster = [topology_document("n1", cores=4), topology_document("n2", cores=6), device_document("n1", gpus=8)]
    single = {keys.NUMA_TOPOLOGY_SPEC: json.dumps({"numaTopologyPolicy": "SingleNUMANode"})}
    switch = {keys.DEVICE_ALLOCATE_HINT: json.dumps({"gpu": {"requiredTopologyScope": "PCIe"}})}
    for requests, annotations, words in (
        ({"cpu": "12", "memory": "64Gi"}, single, None),
        (
            {"cpu": "13", "memory": "64Gi"},
            single,
            "needs it in one zone, got 13; the largest zone of the cluster has 12",
        ),
        ({"cpu": "13", "memory": "64Gi"}, {}, None),
        ({"cpu": "1", "memory": "65Gi"}, single, "got 65.0Gi; the largest zone of the cluster has 64.0Gi"),
        ({"cpu": "1", "koordinator.sh/gpu": "800"}, {}, None),
        ({"cpu": "1", "koordinator.sh/gpu": "900"}, {}, "got 9; the node with most healthy GPUs has 8"),
        ({"cpu": "1", "koordinator.sh/gpu": "200"}, switch, None),
        ({"cpu": "1", "koordinator.sh/gpu": "300"}, switch, "got 3; the PCIe switch with most healthy GPUs has 2"),
    ):
        linter = Linter(Options())
        linter.judge(cluster)
        warnings = linter.judge([pod(requests, annotations)])[0].warnings
        assert len(warnings) == (words is not None), (requests, warnings)
        assert words is None or words in warnings[0]


def test_the_largest_zone_leaves_with_its_last_node() -> None:
    shapes = HardwareShapes()
    assert shapes.largest_zone is None
    for node, cores in (("n1", 4), ("n2", 6), ("n3", 6)):
        shapes.topology_observed(node, topology_document(node, cores=cores))
    for gone, cpus in (("n2", 12), ("n3", 8)):
        shapes.topology_observed(gone, None)
        assert shapes.largest_zone is not None
        assert shapes.largest_zone.cpu_milli == cpus * 1000
    shapes.topology_observed("n1", topology_document("n1", cores=2))
    assert shapes.largest_zone is not None
    assert shapes.largest_zone.cpu_milli == 4000


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(8, few=1))
def test_malformed_documents_are_refused_or_ignored_with_a_reason(seed: int) -> None:
    rng = random.Random(seed)
    linter = Linter(Options())
    outcomes: Counter[str] = Counter()
    for _ in range(DOCUMENTS):
        document = malformed(rng)
        finding = linter.judge([document])[0]
        for violation in finding.violations:
            assert violation.sentence()
        outcomes["refused" if finding.violations else "warned" if finding.warnings else "accepted"] += 1
        # Whatever an API server has stored is read without a crash, and what is ignored has a reason.
        if isinstance(document, dict):
            stored = cast("dict[str, Any]", document)
            hardware = node_hardware("n1", node=None, topology=stored, device=stored, pods={})
            assert all(hardware.problems)
            cards, ignored = cards_of(stored, {})
            assert len({(card.type, card.minor) for card in cards}) == len(cards)
            assert all(error.rule for error in ignored)
    assert min(outcomes["refused"], outcomes["warned"]) > DOCUMENTS // 20, outcomes
