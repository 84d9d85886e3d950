"""A real API server resizes pods for the manager, and lets it change nothing else of them so."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from koord_manager.domain.gateway.resizes import PendingResize, judge_resize, resize_request
from koordcore.events.gateway import PodResizeAnswered, ResizedContainer
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.kubelets import api_client

pytestmark = [pytest.mark.kubernetes]

POD = "/api/v1/namespaces/default/pods/resized"


@pytest.fixture(name="uid")
def _uid(plane: ControlPlane) -> Iterator[str]:
    """The uid of a pod on a node, which requests one core."""
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    containers = [{"name": name, "image": "i", "resources": resources} for name in ("app", "side")]
    spec = {"nodeName": "none", "containers": containers, "terminationGracePeriodSeconds": 0}
    plane.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "resized", "namespace": "default"}, "spec": spec}
    )
    # Kubelets that can resize write the resources in force; without them, the API server refuses.
    told: dict[str, Any] = {"ready": True, "restartCount": 0, "image": "i", "imageID": "i", "state": {"running": {}}}
    statuses = [{**told, "name": name, "resources": resources} for name in ("app", "side")]
    patch = json.dumps({"status": {"phase": "Running", "containerStatuses": statuses}})
    plane.kubectl("patch", "pod", "resized", "--subresource=status", "--type=merge", "-p", patch)
    yield _sent(plane, "GET", POD).json()["metadata"]["uid"]
    plane.kubectl("delete", "pod", "resized", "--force", "--wait=false")


def _sent(plane: ControlPlane, method: str, path: str, body: Any = None, content_type: str = "") -> httpx.Response:
    with api_client(plane, plane.token("koord-manager")) as client:
        return client.request(method, path, content=json.dumps(body), headers={"Content-Type": content_type})


def _answer(plane: ControlPlane, uid: str, **resources: dict[str, str]) -> PodResizeAnswered | None:
    resize = PendingResize(uid, "default", "resized", [ResizedContainer(name="app", **resources)], 7)
    request = resize_request(resize)
    answer = _sent(plane, request.method, request.path, request.body, request.content_type)
    return judge_resize(resize, answer.status_code, answer.text)


def test_resources_of_one_container_change_and_the_others_stay(plane: ControlPlane, uid: str) -> None:
    assert _answer(plane, uid, requests={"cpu": "500m", "memory": str(1 << 29)}) == PodResizeAnswered(request=7)
    spec = _sent(plane, "GET", POD).json()["spec"]
    requests = {each["name"]: each["resources"]["requests"] for each in spec["containers"]}
    assert requests == {"app": {"cpu": "500m", "memory": str(1 << 29)}, "side": {"cpu": "1", "memory": "1Gi"}}


def test_a_resize_that_is_not_valid_and_one_of_another_pod_are_refused(plane: ControlPlane, uid: str) -> None:
    refused = _answer(plane, uid, requests={"cpu": "2"}, limits={"cpu": "1"})
    assert refused is not None
    assert (refused.failure, "must be less than or equal to cpu limit" in refused.message) == ("Invalid", True)
    other = _answer(plane, "00000000-0000-0000-0000-000000000000", requests={"cpu": "2"})
    assert other is not None
    assert (other.failure, "metadata.uid" in other.message) == ("Invalid", True), (
        "a new pod with the name of an old one"
    )


def test_the_manager_changes_no_image_by_a_resize(plane: ControlPlane, uid: str) -> None:
    body = {"spec": {"containers": [{"name": "app", "image": "evil"}]}}
    _sent(plane, "PATCH", f"{POD}/resize", body, "application/strategic-merge-patch+json")
    assert [each["image"] for each in _sent(plane, "GET", POD).json()["spec"]["containers"]] == ["i", "i"]
