"""What `kubectl describe` shows: an eviction that a disruption budget refuses, a gang that is not complete."""

import pytest
from koordcore.bus.factory import BusSettings, open_bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.gateway import PodEvictionRequested
from koordcore.service.clock import SystemClock
from koordcore.values.timestamps import rfc3339
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kubelets import add_nodes, node_document
from support.kubernetes.services import CLUSTER

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, object]
LABELS = {"app": "guarded"}


def budget(least: int) -> Json:
    spec = {"minAvailable": least, "selector": {"matchLabels": LABELS}}
    metadata = {"name": "guard", "namespace": "default"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


async def request_eviction(installed: Installation, uid: str) -> None:
    """Append the fact that the descheduler appends."""
    request = PodEvictionRequested(namespace="default", name="guarded", initiator="descheduler", reason="LowNodeLoad")
    origin = Origin(causation_id="t", correlation_id=uid, actor="t", occurred_at=rfc3339(SystemClock().now()))
    async with open_bus(BusSettings(urls=(installed.nats.url,), cluster=CLUSTER)) as bus:
        await bus.events.append(CATALOGUE.seal([Draft(AggregateRef("eviction", uid), request, 0)], origin))


async def test_an_eviction_waits_for_its_budget_and_says_so(plane: ControlPlane, installed: Installation) -> None:
    add_nodes(plane, node_document("node-0"))
    await installed.start_manager("manager")
    await installed.until_ready("manager")
    container = {"name": "main", "image": "pause"}
    metadata = {"name": "guarded", "namespace": "default", "labels": LABELS}
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"nodeName": "node-0", "containers": [container]},
        }
    )
    plane.apply(budget(1))

    def disruptions() -> object:
        return plane.get("pdb", "guard", "-n", "default").get("status", {}).get("currentHealthy")

    await installed.until(lambda: disruptions() == 1, "the budget counts the pod")
    await request_eviction(installed, plane.get("pod", "guarded", "-n", "default")["metadata"]["uid"])

    def blocked() -> list[str]:
        found = plane.get("events", "-n", "default", "--field-selector", "reason=EvictionBlocked")["items"]
        return [event["message"] for event in found]

    await installed.until(blocked, "the pod has the event")
    assert "disruption budget" in blocked()[0]
    assert plane.ask("get", "pod", "guarded", "-n", "default").code == 0
    plane.apply(budget(0))
    await installed.until(lambda: plane.ask("get", "pod", "guarded", "-n", "default").code, "the pod is evicted")
    plane.kubectl("delete", "pdb", "guard", "-n", "default")


async def test_a_member_of_an_incomplete_gang_says_what_it_waits_for(
    plane: ControlPlane, installed: Installation
) -> None:
    add_nodes(plane, node_document("node-0"))
    await installed.start_both()
    group = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2}}
    plane.apply({**group, "metadata": {"name": "gang", "namespace": "default"}})
    labels = {"pod-group.scheduling.sigs.k8s.io": "gang"}
    spec = {"schedulerName": "koord-scheduler", "containers": [{"name": "main", "image": "pause"}]}
    metadata = {"name": "member", "namespace": "default", "labels": labels}
    plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def condition() -> str:
        conditions = plane.get("pod", "member", "-n", "default")["status"].get("conditions", [])
        return next((item.get("message", "") for item in conditions if item["type"] == "PodScheduled"), "")

    await installed.until(condition, "the pod has the condition")
    assert "default/gang" in condition()

    def events() -> list[str]:
        found = plane.get("events", "-n", "default", "--field-selector", "involvedObject.name=member")["items"]
        return [event["message"] for event in found if event["reason"] == "FailedScheduling"]

    await installed.until(events, "the pod has the event")
    assert "default/gang" in events()[0]
    plane.kubectl("delete", "podgroup/gang", "-n", "default")
