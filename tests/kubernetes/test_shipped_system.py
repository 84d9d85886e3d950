"""The shipped system on a real API server: pods are admitted, bound and run; another manager takes over."""

import pytest
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, object]


def pod(name: str, scheduler: str = "koord-scheduler") -> Json:
    """A pod of 100 millicores."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = {"schedulerName": scheduler, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def test_pods_are_bound_before_and_after_the_leader_dies(plane: ControlPlane, installed: Installation) -> None:
    add_nodes(plane, *(node_document(f"node-{number}") for number in range(3)))
    await installed.start_manager("manager-a", webhooks=False)
    await installed.until(lambda: installed.leader() == "manager-a", "manager-a leads")
    await installed.start_both(manager="manager-b")

    plane.apply(*(pod(f"first-{number}") for number in range(10)), pod("foreign", "default-scheduler"))
    await installed.until(lambda: len(installed.bound_pods()) == 10, "ten pods are bound")
    await installed.processes["manager-a"].kill()
    plane.apply(*(pod(f"second-{number}") for number in range(10)))
    await installed.until(lambda: len(installed.bound_pods()) == 20, "twenty pods are bound")

    # kube-scheduler's own pods are left to it, although ten younger pods were placed meanwhile
    assert "foreign" not in installed.bound_pods()
    assert installed.leader() == "manager-b"
