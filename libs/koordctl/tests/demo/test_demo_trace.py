"""The trace as manifests, and when its pods are sent."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol.annotations.cpu import parse_cpu_topology
from koordcore.protocol.manifests import read_documents
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.qos import kube_qos, qos
from koordcore.values import codec
from koordcore.values.quantity import parse_milli
from koordctl.demo.submitting import arrivals
from koordctl.demo.trace import (
    BATCH_CPU,
    GPUS,
    InvalidTrace,
    TracePod,
    node_manifest,
    pod_manifest,
    read_nodes,
    read_pods,
    topology_manifest,
    usage_profile,
)

TRACE = Path(__file__).parents[4] / "examples" / "openb"


def pod(
    qos_class: str = "LS",
    *,
    gpus: int = 0,
    gpu_milli: int = 1000,
    models: tuple[str, ...] = (),
    cpu_milli: int = 2000,
    memory_mib: int = 4096,
) -> TracePod:
    return TracePod(
        name="p",
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        gpus=gpus,
        gpu_milli=gpu_milli,
        models=models,
        qos=qos_class,
    )


def as_object(row: TracePod) -> Pod:
    return codec.convert(pod_manifest(row), Pod)


def test_whole_trace_is_there() -> None:
    nodes, pods = read_nodes(TRACE), read_pods(TRACE)
    assert (len(nodes), len(pods)) == (1523, 8152)
    assert sum(node.gpus for node in nodes) == 6212
    assert len({row.name for row in pods}) == 8152


def test_limits_keep_the_order_of_pods_and_every_kind_of_node() -> None:
    nodes = read_nodes(TRACE, limit=60)
    assert len({node.name for node in nodes}) == 60
    assert {0, 2, 8} <= {node.gpus for node in nodes}
    assert read_pods(TRACE, limit=5) == read_pods(TRACE)[:5]


def test_best_effort_pod_asks_for_batch_resources_only() -> None:
    found = as_object(pod("BE"))
    assert pod_requests(found) == {BATCH_CPU: 2000, "kubernetes.io/batch-memory": 4096 << 20}
    assert (qos(found), kube_qos(found), found.spec.priority) == ("BE", "BestEffort", 5500)


def test_latency_sensitive_pod_asks_for_cpu_and_declares_what_it_uses() -> None:
    found = as_object(pod("LS", gpus=2))
    gpus = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}
    assert pod_requests(found) == {"cpu": 2000, "memory": 4096 << 20, **gpus}
    assert found.spec.containers[0].resources.limits == {name: str(amount) for name, amount in gpus.items()}
    assert "diurnal" in found.metadata.annotations["simulation.koordstream.io/usage"]


@pytest.mark.parametrize(("gpu_milli", "percent"), [(1000, 100), (460, 46), (465, 47), (1, 1)])
def test_a_share_of_a_gpu_is_asked_for_in_percent(gpu_milli: int, percent: int) -> None:
    found = pod_requests(as_object(pod(gpus=1, gpu_milli=gpu_milli)))
    assert (found["koordinator.sh/gpu-core"], found["koordinator.sh/gpu-memory-ratio"]) == (percent, percent)


def test_nodes_name_their_gpus_for_the_agent_that_simulates_them() -> None:
    labels = [node_manifest(node)["metadata"]["labels"] for node in read_nodes(TRACE, limit=60)]
    assert {label.get(GPUS) for label in labels} >= {None, "2", "8"}
    assert all((GPUS in label) == ("node.koordinator.sh/gpu-model" in label) for label in labels)


@pytest.mark.parametrize(("qos_class", "expected"), [("Guaranteed", "Guaranteed"), ("Burstable", "Burstable")])
def test_kubernetes_classes_come_from_requests_and_limits(qos_class: str, expected: str) -> None:
    assert kube_qos(as_object(pod(qos_class))) == expected


def test_allowed_models_become_node_affinity() -> None:
    affinity = as_object(pod(models=("T4", "A10"))).spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    assert affinity.node_affinity.required is not None
    assert affinity.node_affinity.required.node_selector_terms[0].match_expressions[0].values == ["T4", "A10"]


def test_memory_that_the_trace_leaves_at_zero_is_not_requested() -> None:
    assert pod_requests(as_object(pod("Burstable", memory_mib=0))) == {"cpu": 2000}


@given(name=st.text(min_size=1))
def test_latency_sensitive_pods_never_use_all_they_request(name: str) -> None:
    profile = usage_profile(name)
    assert profile["mean"] - profile["amplitude"] > 0
    assert profile["mean"] + profile["amplitude"] < 1


def test_every_manifest_is_accepted_as_a_document() -> None:
    documents = [node_manifest(node) for node in read_nodes(TRACE, limit=20)]
    documents += [pod_manifest(row) for row in read_pods(TRACE, limit=200)]
    assert len(read_documents(codec.encode({"kind": "List", "items": documents}))) == 220


@given(count=st.integers(0, 9000), seconds=st.floats(0, 300))
def test_every_pod_is_sent_once_in_order_and_in_time(count: int, seconds: float) -> None:
    groups = list(arrivals(count, seconds))
    assert [index for group in groups for index in range(group.begin, group.end)] == list(range(count))
    assert all(group.at_seconds <= seconds for group in groups)


def test_broken_row_names_file_row_column_and_value(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_all_node.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,many,1,0,\n")
    with pytest.raises(InvalidTrace, match=r"node_list_all_node.csv, row 2: cpu_milli must be .* got 'many'"):
        read_nodes(tmp_path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="pod_list_default"):
        read_pods(tmp_path)


def test_latency_sensitive_pods_own_the_cpus_that_they_request_as_whole_numbers() -> None:
    classes = [as_object(pod("LS", cpu_milli=cpu)).metadata.labels["koordinator.sh/qosClass"] for cpu in (2000, 2500)]
    assert classes == ["LSR", "LS"]


def test_topologies_have_all_cpus_of_their_node_in_zones_of_whole_cores() -> None:
    for node in read_nodes(TRACE, limit=60):
        document = topology_manifest(node)
        places = parse_cpu_topology(document["metadata"]["annotations"]["node.koordinator.sh/cpu-topology"])
        assert len(places) == node.cpu_milli // 1000
        assert len(document["zones"]) == 2
        cpus = [parse_milli(zone["resources"][0]["allocatable"]) for zone in document["zones"]]
        assert cpus == [node.cpu_milli // 2] * 2
