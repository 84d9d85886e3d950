"""Which pods count on a node: finished ones nowhere, a static pod and its mirror once, and what is theirs with them."""

from typing import Any

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import HeldByPod, KnownPods, kubelet_allocations, pinned_cpus
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json, agent_pod_of_ledger, pods_of_node
from koord_agent.domain.strategies.evict.eviction import best_effort_by_priority
from koord_agent.domain.strategies.evict.thresholds import running_request
from koord_agent.domain.strategies.memory_qos import class_settings, memory_values
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.sensing import container_directories
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.envelope import Event
from koordcore.events.node_ledger import PodOnNode, pod_on_node
from koordcore.events.nodestate import PodsEvictedByAgent, PodsStarted, PodsStopped
from koordcore.ports.desired import DesiredNode
from koordcore.protocol import keys
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.qos import KubeQos
from koordcore.protocol.resource_names import BATCH_CPU

GIB = 1 << 30
CORES = 40
HASH = "8f5d32ab3c6b1c5d1d9d1a3e5f7c9b10"


def batch_pod(name: str, phase: str = "Running", *, profile: str = "") -> dict[str, Any]:
    """A best-effort pod of 4 cores and 4 GiB, as the kubelet lists it."""
    batch = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "4Gi"}
    annotations = {"simulation.koordstream.io/usage": profile} if profile else {}
    labels = {keys.QOS_CLASS: "BE"}
    return {
        "metadata": {"uid": name, "namespace": "d", "name": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"requests": batch, "limits": batch}}]},
        "status": {"phase": phase, "qosClass": "BestEffort"},
    }


class Node:
    """A node of 40 cores whose kubelet lists pods; those that are not finished run."""

    def __init__(
        self, slo: dict[str, Any], documents: list[dict[str, Any]], placed: tuple[PodOnNode, ...] = ()
    ) -> None:
        self.fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=CORES * 1_000, memory_bytes=64 * GIB)])
        self.host = self.fleet.host("n")
        self.monitor = NodeMonitor(collect_interval_ms=1_000)
        self.agent = NodeAgent(
            "n",
            self.host,
            Measurement(monitor=self.monitor),
            interval_ms=1_000,
            settings=AgentSettings.model_validate({"feature_gates": "BECPUEvict=true,BEMemoryEvict=true"}),
        )
        amounts = {"cpu": CORES * 1_000, "memory": 64 * GIB}
        desired = DesiredNode(node="n", slo=slo, capacity=amounts, allocatable=amounts, pods=list(placed))
        self.agent.desired = view_of(desired)
        self.seconds = 0
        self.lists(documents)
        for pod in self.agent.known.pods.values():
            if pod.phase == "Running":
                self.host.start_pod(pod)

    def lists(self, documents: list[dict[str, Any]]) -> None:
        pods = [agent_pod_from_json(document) for document in documents]
        self.agent.known = KnownPods(pods={pod.uid: pod for pod in pods}, at_ms=self.seconds * 1_000)

    def live(self, seconds: int) -> list[Event]:
        facts: list[Event] = []
        for _ in range(seconds):
            self.seconds += 1
            self.fleet.advance(float(self.seconds))
            facts.extend(self.agent.run_cycle(self.seconds * 1_000).facts)
        return facts


HUNGRY = '{"profile": "constant", "mean": 0.95}'
SATISFACTION = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 100,
        "cpuEvictBESatisfactionLowerPercent": 60,
        "cpuEvictBESatisfactionUpperPercent": 80,
        "cpuEvictBEUsageThresholdPercent": 80,
        "cpuEvictTimeWindowSeconds": 10,
    }
}


def test_completed_pods_are_no_demand_that_best_effort_misses() -> None:
    running = [batch_pod(f"run{number}", profile=HUNGRY) for number in range(10)]
    done = [batch_pod(f"done{number}", "Succeeded") for number in range(30)]
    node = Node(SATISFACTION, [*running, *done])
    facts = node.live(40)
    assert not [fact for fact in facts if isinstance(fact, PodsEvictedByAgent)]
    look = node.agent.last_look
    assert look is not None
    assert look.metrics.last(Kind.BE_CPU_REQUEST) == 40_000
    assert set(node.agent.pods.all) == {f"run{number}" for number in range(10)}


def test_finished_pods_are_not_evicted_because_nothing_of_them_runs() -> None:
    pods = [agent_pod_from_json(batch_pod(phase, phase)) for phase in ("Succeeded", "Failed", "Pending", "", "Unknown")]
    order = best_effort_by_priority(pods, feature="BEMemoryEvict", then=lambda one, other: 0)
    assert {pod.phase for pod in order} == {"Pending", "", "Unknown"}


def test_pod_that_finishes_is_forgotten_and_its_end_is_told_once() -> None:
    entry = pod_on_node("job", pod_from_json(batch_pod("job")))
    node = Node({}, [batch_pod("job", profile=HUNGRY)], (entry,))
    assert [fact.pods for fact in node.live(3) if isinstance(fact, PodsStarted)] == [["job"]]
    node.lists([batch_pod("job", "Succeeded")])
    assert [fact.pods for fact in node.live(3) if isinstance(fact, PodsStopped)] == [["job"]]
    assert node.agent.pods.all == {}
    assert node.monitor.store.objects(Kind.POD_CPU) == []


def static_pod(uid: str = HASH, *, mirror: bool = False, name: str = "etcd-n") -> dict[str, Any]:
    annotations = {"kubernetes.io/config.hash": HASH, "kubernetes.io/config.source": "file"}
    if mirror:
        annotations[keys.CONFIG_MIRROR] = HASH
    return {
        "metadata": {"uid": uid, "namespace": "kube-system", "name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "etcd", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [{"name": "etcd", "containerID": "containerd://e", "state": {"running": {}}}],
        },
    }


MIRROR = pod_on_node("api-uid", pod_from_json(static_pod("api-uid", mirror=True)))


def test_static_pod_and_its_mirror_are_one_pod_in_the_cgroup_of_the_kubelets_pod() -> None:
    node = Node({}, [static_pod()], (MIRROR,))
    assert [fact.pods for fact in node.live(3) if isinstance(fact, PodsStarted)] == [["api-uid"]]
    (pod,) = node.agent.pods.all.values()
    assert (pod.uid, pod.cgroup_uid, [c.name for c in pod.containers]) == ("api-uid", HASH, ["etcd"])
    assert node.monitor.store.objects(Kind.POD_CPU) == ["api-uid"], "its own cgroup is measured"
    look = node.agent.last_look
    assert look is not None
    assert look.pod_directory(pod).endswith(f"pod{HASH}.slice")
    assert look.by_cgroup_uid == {HASH: pod}, "a hook names it as the kubelet does"


def test_static_pod_is_measured_without_access_to_the_kubelet() -> None:
    pod = agent_pod_of_ledger(MIRROR)
    assert CgroupLayout(Driver.CGROUPFS).pod_directory(pod.kube_qos, pod.cgroup_uid).endswith(f"pod{HASH}")


def test_static_pod_whose_object_is_invalid_is_frozen_under_the_uid_of_its_mirror() -> None:
    node = Node({}, [static_pod()], (MIRROR,))
    known = node.agent.known
    node.agent.known = KnownPods(pods=known.pods, unclear=frozenset({HASH}), at_ms=1_000)
    node.live(1)
    look = node.agent.last_look
    assert look is not None
    assert look.frozen == {"api-uid"}


def test_mirror_of_somebody_else_takes_no_cgroup_of_another_pod() -> None:
    service = agent_pod_from_json(static_pod("service", name="service"))
    forged = agent_pod_from_json(static_pod("forged", name="forged"))
    placed = {"forged": forged_mirror(forged, "service"), "service": service}
    assert list(pods_of_node(placed, {})) == ["service", "forged"], "the first pod of a directory has it"
    assert set(pods_of_node(placed, {"service": service})) == {"service", "forged"}


def forged_mirror(pod: AgentPod, of: str) -> AgentPod:
    raw = static_pod(pod.uid, name=pod.name)
    raw["metadata"]["annotations"][keys.CONFIG_MIRROR] = of
    return agent_pod_of_ledger(pod_on_node(pod.uid, pod_from_json(raw)))


def test_exclusive_cpus_of_a_static_pod_are_told_once_under_the_uid_of_its_mirror() -> None:
    listed = agent_pod_from_json(static_pod())
    (pod,) = pods_of_node({"api-uid": agent_pod_of_ledger(MIRROR)}, {HASH: listed}).values()
    held = [HeldByPod(namespace="kube-system", name="etcd-n", cpus={"etcd": frozenset({2, 3})})]
    entries = pinned_cpus({HASH: {"etcd": "2-3"}}, held, (pod, listed))
    assert entries == {HASH: {"etcd": "2-3"}}
    allocations, taken = kubelet_allocations(entries, (pod,))
    assert [(each.uid, each.name, each.cpuset) for each in allocations] == [("api-uid", "etcd-n", "2-3")]
    assert taken == {2, 3}


def test_ephemeral_container_is_known_and_counts_in_no_amount() -> None:
    raw = static_pod()
    raw["spec"]["ephemeralContainers"] = [{"name": "debug", "targetContainerName": "etcd"}]
    raw["status"]["ephemeralContainerStatuses"] = [
        {"name": "debug", "containerID": "containerd://d", "state": {"running": {}}}
    ]
    pod = agent_pod_from_json(raw)
    assert [(c.name, c.is_running) for c in pod.created] == [("etcd", True), ("debug", True)]
    assert pod.requests == agent_pod_from_json(static_pod()).requests
    layout = CgroupLayout(Driver.CGROUPFS)
    known = [container.container_id for container in pod.created]
    assert layout.sandbox(known, ["e", "d", "s"]) == "containerd://s"
    host = SimulatedFleet([SimulatedNode(name="n", cpu_milli=1_000, memory_bytes=GIB)]).host("n")
    assert [identity for identity, _ in container_directories(host, pod)] == ["containerd://e", "containerd://d"]


def test_sidecars_and_overhead_count_in_what_an_eviction_releases_and_in_the_memory_of_a_class() -> None:
    raw = batch_pod("p")
    side = {"requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}}
    raw["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always", "resources": side}]
    raw["spec"]["overhead"] = {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "1Gi"}
    pod = agent_pod_from_json(raw)
    assert running_request(pod, BATCH_CPU) == sum(pod.be_requests_milli) == 4_750
    settings = class_settings({"beClass": {"memoryQOS": {"enable": True, "minLimitPercent": 100}}})
    values = memory_values(settings, [pod], allocatable_bytes=64 * GIB, page_size=4096)
    assert values.pods["p"].pod["memory.min"] == 6 * GIB
    assert {name: files["memory.min"] for name, files in values.pods["p"].containers.items()} == {
        "main": 4 * GIB,
        "side": GIB,
    }
    assert values.classes[KubeQos.BEST_EFFORT]["memory.min"] == 6 * GIB
