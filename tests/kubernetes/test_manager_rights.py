"""What the manager's token is refused by a real API server: more than its rules, and than the policy about pods."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import NODE_NAMESPACE
from support.kubernetes.kubelets import api_client

pytestmark = [pytest.mark.kubernetes]

POD = "of-somebody"
HIS = ("pod", POD, "-n", NODE_NAMESPACE)
"""In a namespace whose pods ask no webhook, because no manager runs."""
TOLERATED = {"operator": "Exists", "effect": "NoExecute"}
"""With it the API server adds no tolerations of its own; any pod may get more, and none may lose one."""


@pytest.fixture(scope="module")
def somebody(plane: ControlPlane) -> Iterator[str]:
    """A pod of a user, which is not placed."""
    containers = [{"name": "main", "image": "pause"}]
    spec = {"schedulerName": "nobody", "tolerations": [TOLERATED], "containers": containers}
    metadata = {"name": POD, "namespace": NODE_NAMESPACE}
    plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    yield POD
    plane.kubectl("delete", *HIS, "--force", "--grace-period=0")


def refusal(plane: ControlPlane, patch: Any, subresource: str = "") -> str:
    """Return why the manager may not patch the pod; "" if it may."""
    content_type = {"Content-Type": "application/strategic-merge-patch+json"}
    path = f"/api/v1/namespaces/{NODE_NAMESPACE}/pods/{POD}{subresource}"
    with api_client(plane, plane.token("koord-manager")) as client:  # kubectl would read the subresource first
        answer = client.patch(path, content=json.dumps(patch), headers=content_type)
    return "" if answer.is_success else answer.text


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"name": "main", "image": "miner"}]}},
        {"spec": {"tolerations": [TOLERATED, {"operator": "Exists"}]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"finalizers": ["example.com/for-ever"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}},
    ],
)
def test_the_manager_changes_no_spec_and_no_owner(plane: ControlPlane, somebody: str, patch: Any) -> None:
    assert "koord-manager changes" in refusal(plane, patch)


@pytest.mark.parametrize(
    "status",
    [{"phase": "Failed"}, {"podIPs": [{"ip": "10.0.0.1"}]}],
)
def test_the_manager_changes_no_phase_and_no_address(plane: ControlPlane, somebody: str, status: Any) -> None:
    assert "koord-manager changes conditions" in refusal(plane, {"status": status}, "/status")


def test_what_the_gateway_writes_is_permitted(plane: ControlPlane, somebody: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    status = {"status": {"conditions": [condition], "nominatedNodeName": "n1"}}

    assert refusal(plane, {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}) == ""
    assert refusal(plane, status, "/status") == ""


def test_the_manager_reads_the_configuration_and_no_other_config_map(plane: ControlPlane) -> None:
    user = plane.kubeconfig("manager", plane.token("koord-manager"))

    def answered(namespace: str, *words: str) -> bool:
        return plane.ask("get", "configmaps", "-n", namespace, *words, user=user).code == 0

    assert answered("koordinator-system", "--field-selector=metadata.name=slo-controller-config")
    assert not answered("koordinator-system")
    assert not answered("koordinator-system", "koord-descheduler-config")
    assert not answered("kube-system")
