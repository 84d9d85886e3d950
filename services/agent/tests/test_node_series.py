"""What a scrape says of a node: names and labels of the reference, and nothing of what is gone."""

from dataclasses import replace
from typing import Any

from koord_agent.domain.desired import view_of
from koord_agent.domain.monitor import NodeMonitor
from koord_agent.domain.pods import agent_pod_from_json
from koord_agent.domain.prediction.predictor import PeakPredictor
from koord_agent.shell.collecting import CollectOptions
from koord_agent.shell.host.simulated import SimulatedFleet
from koord_agent.shell.host.simulated_node import SimulatedNode
from koord_agent.shell.node_agent import NodeAgent
from koord_agent.shell.node_series import NodeSeries
from koord_agent.shell.predicting import Predicting
from koordcore.ports.desired import DesiredNode
from prometheus_client import CollectorRegistry, generate_latest

POD: dict[str, Any] = {
    "metadata": {"uid": "u", "name": "web", "namespace": "default", "labels": {"koordinator.sh/qosClass": "LS"}},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "containerStatuses": [{"name": "c", "containerID": "containerd://x", "state": {"running": {}}}],
    },
}


def test_a_scrape_shows_the_node_its_pods_and_predictions_and_forgets_what_is_gone() -> None:
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=4_000, memory_bytes=8 << 30)])
    host = fleet.host("n")
    agent = NodeAgent(
        "n",
        host,
        interval_ms=1_000,
        monitor=NodeMonitor(collect_interval_ms=1_000),
        runner=host,
        options=CollectOptions(psi=True),
        predicting=Predicting(PeakPredictor()),
    )
    registry = CollectorRegistry()
    registry.register(NodeSeries(lambda: [agent]))
    assert generate_latest(registry) == b""

    amounts = {"cpu": 4_000, "memory": 8 << 30}
    view = view_of(DesiredNode(node="n", capacity=amounts, allocatable=amounts))
    agent.desired = replace(view, pods={"u": agent_pod_from_json(POD)})
    for second in range(1, 131):
        fleet.advance(float(second))
        agent.tick(second * 1_000)
    assert agent.report(130_000, str) is not None
    pod = {"node": "n", "pod_namespace": "default", "pod_name": "web", "pod_uid": "u"}
    container = {**pod, "container_id": "containerd://x", "container_name": "c"}
    psi = {"psi_resource_type": "cpu", "psi_precision": "10", "psi_degree": "some", "cpu_full_supported": "true"}
    cpu = {"node": "n", "resource": "cpu", "unit": "core"}

    def value(name: str, labels: dict[str, str]) -> float | None:
        return registry.get_sample_value(f"koordlet_{name}", labels)

    assert value("node_used_cpu_cores", {"node": "n"}) is not None
    assert value("node_resource_allocatable", cpu) == 4.0
    assert value("pod_psi", {**pod, **psi}) is not None
    assert value("container_resource_requests", {**container, "resource": "cpu", "unit": "integer"}) == 0.5
    assert value("container_resource_requests", {**container, "resource": "memory", "unit": "byte"}) == 1 << 30
    assert value("node_predicted_resource_peak", {**cpu, "predictor": "podReclaimablePredictor"}) == 0.5
    assert value("node_resource_priority_reclaimable_status", {"node": "n", "priority": "koord-prod"}) == 0.0

    agent.desired = view
    agent.tick(131_000)
    gone = generate_latest(registry).decode()
    assert "pod_psi" not in gone
    assert "container_resource_requests" not in gone
