"""What a scrape says of a node: names and labels of the reference, and nothing of what is gone."""

from dataclasses import replace
from typing import Any

import httpx
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.cpu_pools import CpuPools, SharedPool
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.pods import agent_pod_from_json
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.prediction.predictor import PeakPredictor
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.topology import TopologyReporter
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.metrics.agent_metrics import MOST_EVICTED, AgentMetrics, ResourceUpdates, metrics_routes
from koord_agent.shell.metrics.node_series import NodeSeries
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.pods import PodControl
from koord_agent.shell.node.predicting import Predicting
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.nodestate import EvictedPod, InterferenceDetected, InterferenceEnded, PodsEvictedByAgent
from koordcore.ports.desired import DesiredNode
from koordcore.service.access.gate import IDENTITY
from koordcore.service.access.needs import Identity, Role
from koordcore.values.cpuset import EMPTY
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

POD: dict[str, Any] = {
    "metadata": {"uid": "u", "name": "web", "namespace": "default", "labels": {"koordinator.sh/qosClass": "LS"}},
    "spec": {
        "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1"}}}
        ]
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "containerStatuses": [{"name": "c", "containerID": "containerd://x", "state": {"running": {}}}],
    },
}


def test_a_scrape_shows_the_node_its_pods_and_predictions_and_forgets_what_is_gone() -> None:
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=4_000, memory_bytes=8 << 30)])
    host = fleet.host("n")
    monitor = NodeMonitor(collect_interval_ms=1_000)
    agent = NodeAgent(
        "n",
        host,
        Measurement(monitor=monitor, predicting=Predicting(PeakPredictor())),
        interval_ms=1_000,
        settings=AgentSettings.model_validate({"feature_gates": "PSICollector=true"}),
        pods=PodControl(runner=host),
    )
    registry = CollectorRegistry()
    registry.register(NodeSeries(lambda: [agent], reported=True))
    assert generate_latest(registry) == b""

    amounts = {"cpu": 4_000, "memory": 8 << 30}
    slo = {
        "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"},
        "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000},
    }
    view = view_of(DesiredNode(node="n", slo=slo, capacity=amounts, allocatable=amounts))
    monitor.store.append(Kind.CONTAINER_PSI_CPU_FULL_SUPPORTED, 129_000, 0.0, ("u", "containerd://x"))
    monitor.store.append(Kind.CONTAINER_PSI, 129_000, 7.5, ("u", "containerd://x", "io", "10", "full"))
    monitor.store.append(Kind.RESCTRL_LLC, 129_000, 4096.0, ("BE", "0"))
    agent.desired = replace(view, pods={"u": agent_pod_from_json(POD)})
    for second in range(1, 131):
        fleet.advance(float(second))
        agent.run_cycle(second * 1_000)
    assert agent.last_look is not None
    directory = agent.last_look.container_directory(agent.last_look.pods[0], "containerd://x")
    agent.qos.burst_values.by_file[CgroupFile(directory, "cpu.cfs_burst_us")] = 100_000
    assert agent.report(130_000, str) is not None
    pod = {"node": "n", "pod_namespace": "default", "pod_name": "web", "pod_uid": "u"}
    container = {**pod, "container_id": "containerd://x", "container_name": "c"}
    psi = {"psi_resource_type": "cpu", "psi_precision": "10", "psi_degree": "some", "cpu_full_supported": "true"}
    cpu = {"node": "n", "resource": "cpu", "unit": "core"}

    def value(name: str, labels: dict[str, str]) -> float | None:
        return registry.get_sample_value(f"koordlet_{name}", labels)

    assert value("node_used_cpu_cores", {"node": "n"}) is not None
    assert value("be_suppress_be_used_cpu_cores", {"node": "n"}) == 0.0
    assert value("be_suppress_ls_used_cpu_cores", {"node": "n"}) is not None
    assert value("be_suppress_cpu_cores", {"node": "n", "type": "cfsQuota"}) is not None
    assert value("resctrl_llc_occupancy", {"node": "n", "cache_id": "0", "qos": "BE"}) == 4096.0
    assert value("node_resource_allocatable", cpu) == 4.0
    assert value("pod_psi", {**pod, **psi}) is not None
    io = {"psi_resource_type": "io", "psi_precision": "10", "psi_degree": "full", "cpu_full_supported": "false"}
    assert value("container_psi", {**container, **io}) == 7.5
    scaled = {name: text for name, text in container.items() if name != "pod_uid"}
    assert value("container_scaled_cfs_burst_us", scaled) == 100_000.0
    agent.measuring.topology = TopologyReporter(LinuxHost(monotonic_ns=lambda: 0, layout=host.layout), ())
    ls, be = (SharedPool(0, 0, "0-3"),), (SharedPool(0, 0, "2-3"),)
    agent.measuring.topology.pools = CpuPools(ls=ls, be=be, reserved=EMPTY, system_exclusive=EMPTY, kubelet=())
    assert value("cpuset_share_pool_cpu_cores", {"node": "n"}) == 4.0
    assert value("cpuset_share_pool_info", {"node": "n", "cpu": "3"}) is None, "one series for each CPU needs a gate"
    each_cpu = CollectorRegistry()
    each_cpu.register(NodeSeries(lambda: [agent], per_cpu=True))
    assert each_cpu.get_sample_value("koordlet_cpuset_share_pool_info", {"node": "n", "cpu": "3"}) == 1.0
    assert each_cpu.get_sample_value("koordlet_cpuset_be_share_pool_info", {"node": "n", "cpu": "1"}) is None
    assert value("node_metric_node_usage", cpu) is not None
    assert value("node_metric_system_usage", cpu) is not None
    assert (value("tsdb_series", {"node": "n"}) or 0) > 10
    assert value("container_resource_requests", {**container, "resource": "cpu", "unit": "integer"}) == 0.5
    assert value("container_resource_requests", {**container, "resource": "memory", "unit": "byte"}) == 1 << 30
    assert value("node_predicted_resource_peak", {**cpu, "predictor": "podReclaimablePredictor"}) == 0.5
    assert value("node_resource_priority_reclaimable_status", {"node": "n", "priority": "koord-prod"}) == 0.0

    agent.desired = view
    agent.run_cycle(131_000)
    gone = generate_latest(registry).decode()
    assert "pod_psi" not in gone
    assert "container_resource_requests" not in gone


def test_pods_that_were_evicted_long_ago_leave_no_series() -> None:
    registry = CollectorRegistry()
    metrics = AgentMetrics(registry, 1)
    for number in range(2 * MOST_EVICTED):
        victim = EvictedPod(uid=f"u-{number}", namespace="default", name=f"p-{number}", releases={}, ended=False)
        metrics.protected("n", {}, [PodsEvictedByAgent(feature="CPUEvict", pods=[victim], reason="", to_release={})])
    told = generate_latest(registry).decode()
    assert told.count("koordlet_pod_eviction_detail_total{") == MOST_EVICTED
    assert f'koordlet_pod_eviction_total{{node="n",reason="CPUEvict"}} {2 * MOST_EVICTED}' in told


def test_a_disturbed_pod_has_a_state_that_goes_back() -> None:
    registry = CollectorRegistry()
    metrics = AgentMetrics(registry, 1)
    labels = {"node": "n", "pod_uid": "u", "kind": "psi-cpu"}
    told: dict[str, Any] = {"contention": "c", "pod_uid": "u", "signal": "psi-cpu"}
    began = InterferenceDetected(**told, namespace="default", name="web", qos="LS", value=30.0, threshold=20.0)
    metrics.protected("n", {}, [began])
    assert registry.get_sample_value("koordlet_interference_state", labels) == 1.0
    metrics.protected("n", {}, [InterferenceEnded(**told, lasted_seconds=10.0)])
    assert registry.get_sample_value("koordlet_interference_state", labels) == 0.0


async def test_halves_name_no_pod_and_no_node_to_strangers() -> None:
    """An agent on Kubernetes has no access file: everybody is a stranger."""
    registry = CollectorRegistry()
    for name, labels in (
        ("koordlet_node_used_cpu_cores", {"node": "secret-node"}),
        ("koordlet_pod_psi", {"node": "secret-node", "pod_name": "secret-pod", "pod_uid": "u"}),
    ):
        Gauge(name, name, list(labels), registry=registry).labels(**labels).set(1)
    Gauge("koordlet_tsdb_series", "Series", registry=registry).set(2)

    async def shown(scope: Scope, receive: Receive, send: Send) -> None:
        await Starlette(routes=metrics_routes(registry))({**scope, **known}, receive, send)

    known: dict[str, Any] = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=shown), base_url="http://agent") as client:
        told = [(await client.get(f"/{half}-metrics")).text for half in ("internal", "external")]
        assert "secret" not in "".join(told)
        assert "koordlet_tsdb_series 2.0" in told[1]
        known[IDENTITY] = Identity(subject="token:prometheus", roles=frozenset((Role.METRICS,)))
        assert "secret-node" in (await client.get("/internal-metrics")).text
        assert "secret-pod" in (await client.get("/external-metrics")).text


async def test_the_two_halves_together_are_the_whole() -> None:
    registry = CollectorRegistry()
    for name in ("koordlet_node_used_cpu_cores", "koordlet_pod_psi", "koordlet_tsdb_series"):
        Gauge(name, name, registry=registry).set(1)
    ResourceUpdates(registry).observe("cpu.cfs_quota_us", written=True, seconds=0.000_02)
    transport = httpx.ASGITransport(app=Starlette(routes=metrics_routes(registry)))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        internal = (await client.get("/internal-metrics")).text
        external = (await client.get("/external-metrics")).text
    assert {line.split()[0] for line in external.splitlines() if line[0] != "#"} == {
        "koordlet_pod_psi",
        "koordlet_tsdb_series",
    }
    assert "koordlet_node_used_cpu_cores 1.0" in internal
    assert 'milliseconds_bucket{le="0.04",status="success",type="cpu.cfs_quota_us"} 1.0' in internal
    assert "pod_psi" not in internal
