"""Devices on a real API server: from the Device object to the annotations that device plugins and agents read."""

import json
from typing import Any

import pytest
from koord_agent.domain.hooks.allocated_devices import VISIBLE_DEVICES, gpu_injection
from koordcore.bus.factory import BusSettings, open_bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.pod import PodReleased
from koordcore.protocol import keys
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import Installation
from support.kubernetes.kubelets import add_nodes, node_document
from support.kubernetes.services import CLUSTER
from support.scheduler.devices import CORE, RATIO, device, gpu

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
NODE = "cards"
RESOURCE_API = "resource.k8s.io/v1"


def pod(name: str, requests: dict[str, str], **spec: Any) -> Json:
    container = {"name": "main", "image": "pause", "resources": {"requests": requests, "limits": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "koord-scheduler", "containers": [container], **spec},
    }


def claim_objects() -> list[Json]:
    """Return objects of dynamic resource allocation."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    expression = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    return [
        {
            "apiVersion": RESOURCE_API,
            "kind": "DeviceClass",
            "metadata": {"name": "gpu.example.com"},
            "spec": {"selectors": [expression]},
        },
        {
            "apiVersion": RESOURCE_API,
            "kind": "ResourceSlice",
            "metadata": {"name": "slice"},
            "spec": {"nodeName": NODE, "driver": "gpu.example.com", "pool": pool, "devices": [{"name": "gpu-0"}]},
        },
        {
            "apiVersion": RESOURCE_API,
            "kind": "ResourceClaim",
            "metadata": {"name": "claim", "namespace": "default"},
            "spec": {"devices": {"requests": [request]}},
        },
    ]


def found(plane: ControlPlane, name: str) -> Json:
    return plane.get("pod", name, "-n", "default")


def scheduled(plane: ControlPlane, name: str) -> str:
    """Return the message of the pod's condition PodScheduled."""
    conditions = found(plane, name)["status"].get("conditions", [])
    return next((item.get("message", "") for item in conditions if item["type"] == "PodScheduled"), "")


async def test_device_plugins_read_what_the_device_object_offers_and_claims_are_left_alone(
    plane: ControlPlane, installed: Installation
) -> None:
    add_nodes(plane, node_document(NODE))
    table = {"1": [{"minors": [minor]} for minor in range(4)], "2": [{"minors": [1, 3], "allocationScore": 1}]}
    labels = {keys.GPU_VENDOR: "cambricon", keys.GPU_PARTITION_POLICY: "Honor"}
    cards = [gpu(minor, numa=minor // 2, pcie=str(minor)) for minor in range(4)]
    plane.apply(device(NODE, cards, labels=labels, table=table), *claim_objects())
    dynamic = ("deviceclasses,resourceslices,resourceclaims", "-A")
    before = plane.get(*dynamic)["items"]
    await installed.start_manager("manager")
    await installed.start_scheduler("scheduler", "--feature-gates", "DevicePluginAdaption=true")
    await installed.until_ready("manager")

    def offers_and_tells_the_vendor() -> bool:
        node = plane.get("node", NODE)
        vendor = node["metadata"]["labels"].get(keys.GPU_VENDOR)
        return (node["status"]["allocatable"].get(CORE), vendor) == ("400", "cambricon")

    await installed.until(offers_and_tells_the_vendor, "the node offers")

    # 1. the partition table decides between cards under four switches
    plane.apply(pod("pair", {CORE: "200", RATIO: "200"}))
    await installed.until(lambda: "pair" in installed.bound_pods(), "two GPUs are given")
    annotations = found(plane, "pair")["metadata"]["annotations"]
    assert annotations["scheduling.koordinator.sh/gpu-minors"] == "1,3"
    assert [each["minor"] for each in json.loads(annotations[keys.DEVICE_ALLOCATED])["gpu"]] == [1, 3]
    injected = gpu_injection({}, annotations, pod_uid="pair", container="main")
    assert injected.envs[VISIBLE_DEVICES] == "1,3"

    # 2. a shared card locks the node for the device plugin, which handles one pod at a time
    plane.apply(pod("share", {CORE: "30", RATIO: "30"}))
    await installed.until(lambda: "share" in installed.bound_pods(), "a share is given")
    annotations = found(plane, "share")["metadata"]["annotations"]
    assert annotations["CAMBRICON_DSMLU_PROFILE"] == "0_30_96"
    assert plane.get("node", NODE)["metadata"]["annotations"][keys.CAMBRICON_DSMLU_LOCK].endswith(",default,share")
    plane.apply(pod("waits", {CORE: "30", RATIO: "30"}))
    uid = found(plane, "waits")["metadata"]["uid"]
    async with open_bus(BusSettings(urls=(installed.nats.url,), cluster=CLUSTER)) as bus:

        async def is_refused() -> bool:
            """Return whether the pod is in a back-off after its binding failed. It is bound again and again."""
            last = await bus.events.last_of(AggregateRef("pod", uid))
            event = None if last is None else CATALOGUE.read(last)
            return isinstance(event, PodReleased) and event.reason == "bind-failed"

        await installed.until(is_refused, "the lock refuses the binding")
    plane.kubectl("annotate", "node", NODE, f"{keys.CAMBRICON_DSMLU_LOCK}-")
    await installed.until(lambda: "waits" in installed.bound_pods(), "it is bound without the lock")

    # 3. claims of dynamic resource allocation: refused with the reason, and nothing of them is changed
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "claim"}]}
    plane.apply(pod("claims", {"cpu": "1"}, **claims), pod("elsewhere", {"cpu": "1"}, nodeName=NODE, **claims))
    await installed.until(lambda: scheduled(plane, "claims"), "the pod is refused")
    assert "resource claims (dynamic resource allocation) are not supported" in scheduled(plane, "claims")
    assert found(plane, "elsewhere")["spec"]["resourceClaims"] == claims["resourceClaims"]
    assert plane.get(*dynamic)["items"] == before
    plane.kubectl("delete", "pod", "--all", "-n", "default", "--grace-period=1")
    plane.kubectl("delete", "resourceclaim/claim", "-n", "default")
    plane.kubectl("delete", "resourceslice/slice", "deviceclass/gpu.example.com", f"device/{NODE}", f"node/{NODE}")
