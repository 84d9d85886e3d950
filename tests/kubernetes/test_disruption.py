"""Pods that leave on a real API server: preemption, disruption budgets, evictions by agents, limits of migrations."""

import asyncio
import json
from typing import Any

import pytest
import yaml
from koord_descheduler.domain.view.workloads import workload_index
from koordctl.stack.nodes import write_nodes
from support.kubernetes.cluster_day import fold_of
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.definitions import SCALES_RIGHT, database, databases, reference_to
from support.kubernetes.installation import CONFIGURATION, NAMESPACE, Installation
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
ZONE = "test/disruption"
SCALED = databases()["metadata"]["name"]
MANAGER = f"{NAMESPACE}:koord-manager"


def priority_class(name: str, value: int) -> Json:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def pod(name: str, priority: str, cpu: str, node: str = "", labels: dict[str, str] | None = None) -> Json:
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    spec: Json = {"schedulerName": "koord-scheduler", "priorityClassName": priority, "containers": [container]}
    spec |= {"nodeName": node} if node else {"nodeSelector": {ZONE: "yes"}}
    meta = {"name": name, "namespace": "default", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def test_preemption_spares_pods_of_a_disruption_budget(plane: ControlPlane, installed: Installation) -> None:
    """Without the budget, the pod of the lowest priority would be the victim."""
    add_nodes(plane, *(node_document(name, cpu=4, labels={ZONE: "yes"}) for name in ("guarded-node", "other-node")))
    plane.apply(priority_class("lowest", 10), priority_class("low", 20), priority_class("high", 1000))
    await installed.start_both()
    labels = {"app": "precious"}
    plane.apply(pod("precious", "lowest", "3", "guarded-node", labels), pod("plain", "low", "3", "other-node"))
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    meta = {"name": "precious", "namespace": "default"}
    plane.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})

    def healthy() -> object:
        return installed.logged("PodDisruptionBudget", "precious").get("status", {}).get("currentHealthy")

    await installed.until(lambda: healthy() == 1, "the budget counts the pod")
    plane.apply(pod("urgent", "high", "3"))
    await installed.until(lambda: "urgent" in installed.bound_pods(), "the pod has a node")

    assert installed.bound_pods()["urgent"] == "other-node"
    assert installed.bound_pods()["precious"] == "guarded-node"
    assert plane.ask("get", "pod", "plain", "-n", "default").code == 1
    fields = ("--field-selector", "reason=Preempted,involvedObject.name=plain")
    await installed.until(lambda: plane.get("events", "-n", "default", *fields)["items"], "the victim has its event")
    plane.kubectl("delete", "pdb", "precious", "-n", "default")
    plane.kubectl("delete", "priorityclass", "lowest", "low", "high")
    plane.kubectl("delete", "node", "guarded-node", "other-node")


async def test_a_pod_that_an_agent_evicts_leaves_through_the_eviction_api(
    plane: ControlPlane, installed: Installation
) -> None:
    """The agent of a simulated node sees too much memory in use, and evicts the best-effort pod."""
    node = node_document("tight-node", cpu=16, memory="32Gi", labels={ZONE: "tight"})
    add_nodes(plane, node)
    thresholds = {"clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 10}}
    data = {
        "colocation-config": json.dumps({"enable": True, "metricReportIntervalSeconds": 5}),
        "resource-threshold-config": json.dumps(thresholds),
    }
    meta = {"name": CONFIGURATION, "namespace": NAMESPACE}
    plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    await installed.start_both()
    nodes = write_nodes(installed.directory / "nodes.json", [node])
    flags = ("--simulated-nodes-file", str(nodes), "--state-dir", str(installed.directory / "agent"))
    await installed.start("agent", "koord_agent", (*flags, "--feature-gates", "BEMemoryEvict=true"))

    def batch() -> bool:
        amounts: dict[str, str] = plane.get("node", "tight-node")["status"]["allocatable"]
        return amounts.get("kubernetes.io/batch-memory", "0") != "0"

    await installed.until(batch, "the node has batch memory")
    amounts = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "8Gi"}
    container = {"name": "main", "image": "pause", "resources": {"requests": amounts, "limits": amounts}}
    usage = {"profile": "constant", "mean": 0.1, "memory": 1.0}
    labels = {"koordinator.sh/qosClass": "BE"}
    annotations = {"simulation.koordstream.io/usage": json.dumps(usage)}
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "hungry", "namespace": "default", "labels": labels, "annotations": annotations},
            "spec": {
                "schedulerName": "koord-scheduler",
                "priorityClassName": "koord-batch",
                "nodeSelector": {ZONE: "tight"},
                "containers": [container],
            },
        }
    )

    def evicted() -> list[str]:
        fields = "involvedObject.name=hungry,reason=Evicted"
        return [item["message"] for item in plane.get("events", "-n", "default", "--field-selector", fields)["items"]]

    await installed.until(lambda: plane.ask("get", "pod", "hungry", "-n", "default").code, "the pod is gone")
    await installed.until(evicted, "the event says so")
    assert "memory" in evicted()[0].lower()
    plane.kubectl("delete", "node", "tight-node")


async def test_the_limits_of_a_migration_read_the_replicas_of_other_kinds_from_their_scale(
    plane: ControlPlane, installed: Installation
) -> None:
    """A pod of three may leave, the only one may not. The role of the manager collects the right from its own role."""
    node = "database-node"
    add_nodes(plane, node_document(node))
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [SCALES_RIGHT]}
    label = {"descheduler.koordinator.sh/aggregate-to-scales": "true"}
    plane.apply(databases(), {**role, "metadata": {"name": "database-scales", "labels": label}})
    plane.kubectl("wait", "--for=condition=Established", "crd", SCALED)
    may_read = ("auth", "can-i", "get", SCALED, "--subresource=scale", f"--as=system:serviceaccount:{MANAGER}")
    await installed.until(lambda: plane.ask(*may_read).code == 0, "the role has the right")
    configuration = installed.directory / "descheduler.yaml"
    configuration.write_text(yaml.safe_dump({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration"}))
    await asyncio.gather(
        installed.start_manager("manager"),
        installed.start("descheduler", "koord_descheduler", ("--config", str(configuration))),
    )
    await installed.until_ready("manager")
    known: dict[str, int] = {}
    for name, instances in {"main": 3, "single": 1}.items():
        plane.apply(database(name, instances))
        owner = reference_to(plane.get("database", name, "-n", "default"))
        known[owner["uid"]] = instances
        for number in range(instances):
            member = pod(f"{name}-{number}", "", "100m", node)
            member["metadata"]["ownerReferences"] = [owner]
            plane.apply(member)

    async def is_known() -> bool:
        views = workload_index(await fold_of(installed.nats)).views
        return known.items() <= {uid: each.replicas for uid, each in views.items()}.items()

    await installed.until(is_known, "the log has the replicas")
    plane.kubectl("wait", "--for=condition=Ready", "pods", "--all", "-n", "default", "--timeout=60s")
    job = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob"}
    for name in ("main-0", "single-0"):
        spec = {"mode": "EvictDirectly", "podRef": {"namespace": "default", "name": name}}
        plane.apply({**job, "metadata": {"name": name}, "spec": spec})

    def ends() -> list[tuple[str, str]]:
        items = plane.get("podmigrationjobs", "main-0", "single-0")["items"]
        return [(each.get("status", {}).get("phase"), each.get("status", {}).get("reason", "")) for each in items]

    await installed.until(lambda: {phase for phase, _ in ends()} == {"Succeeded", "Failed"}, "both jobs have ended")
    assert ends()[1] == ("Failed", "ForbiddenMigratePod")
    assert plane.ask("get", "pod", "main-0", "-n", "default").code == 1
    plane.kubectl("delete", "podmigrationjobs", "main-0", "single-0")
    plane.kubectl("delete", "crd", SCALED)
    plane.kubectl("delete", "clusterrole", "database-scales")
    plane.kubectl("delete", "node", node)
