"""What a binding sets on a pod, as a real API server does it."""

import json
from typing import Any

import pytest
from koord_manager.shell.gateway.reading import read_pod
from koordcore.events.gateway import PodBound
from koordcore.protocol.objects import POD_SCHEDULED
from koordcore.state.evolution.api_objects import bound_pod
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
LABELS = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
POD = "/api/v1/namespaces/kube-system/pods/to-bind"


@pytest.mark.parametrize("conditions", [[], [{"type": POD_SCHEDULED, "status": "False", "reason": "Unschedulable"}]])
async def test_the_fact_of_a_binding_gives_the_pod_that_the_api_server_has(
    plane: ControlPlane, conditions: list[Json]
) -> None:
    add_nodes(plane, node_document("node-of-binding", labels={**LABELS, "other": "label"}))
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "to-bind", "namespace": "kube-system", "labels": {"app": "a"}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "pause"}]},
        }
    )
    async with plane.files.admin.client() as client:
        status = {"status": {"conditions": conditions, "nominatedNodeName": "node-of-binding"}}
        merge = {"content-type": "application/merge-patch+json"}
        (await client.patch(f"{POD}/status", content=json.dumps(status), headers=merge)).raise_for_status()
        before = read_pod((await client.get(POD)).content)
        meta = {"name": "to-bind", "annotations": {"key": "text"}}
        target = {"kind": "Node", "name": "node-of-binding"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        (await client.post(f"{POD}/binding", json=binding)).raise_for_status()
        after = read_pod((await client.get(POD)).content)
    plane.kubectl("delete", "pod", "to-bind", "-n", "kube-system", "--force", "--grace-period=0")

    (condition,) = (each for each in after.status.conditions if each.type == POD_SCHEDULED)
    fact = PodBound(
        node="node-of-binding",
        placement=1,
        bound_at=condition.last_transition_time or "",
        annotations={"key": "text"},
        labels=LABELS,
    )
    predicted = bound_pod(before, fact)
    assert (predicted.metadata, predicted.spec) == (after.metadata, after.spec)
    # A stand-in for the kubelet may have written the rest of the status meanwhile.
    assert condition in predicted.status.conditions
    assert predicted.status.nominated_node_name == after.status.nominated_node_name == ""
