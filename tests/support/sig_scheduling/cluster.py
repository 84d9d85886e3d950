"""A control plane whose pods are placed by our scheduler under the name of kube-scheduler, on simulated nodes.

with running_cluster() as plane:
    async with scheduled_by_us(plane, nats, directory): ...
"""

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from koordcore.embedded.nats import NatsServer
from koordctl.stack.kubernetes import api
from support.kubernetes.control_plane import ControlPlane, running_control_plane
from support.kubernetes.installation import Installation, installation, reachable, rendered, shipped_flags
from support.kubernetes.kubelets import add_nodes, node_document, running_kubelets
from support.servers import server_directory

Json = dict[str, Any]

NODES: Final = {"node-0": "zone-a", "node-1": "zone-b"}
"""Node -> its zone. With four nodes, a test of preemption looks at its pods for longer than their hooks sleep."""
WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
STATUS_SECONDS: Final = 0.5
PER_NODE: Final = "kube-proxy-fluentd-elasticsearch-node-problem-detector"
"""A pod of this name counts as the three pods that the tests expect on each node, and wait a minute for."""


def simulated_node(name: str, zone: str, number: int) -> Json:
    """A node as kubelets register them."""
    node = node_document(name, cpu=4, memory="8Gi", labels={HOST: name, ZONE: zone, "kubernetes.io/os": "linux"})
    node["status"]["addresses"] = [
        {"type": "InternalIP", "address": f"10.77.0.{number + 1}"},
        {"type": "Hostname", "address": name},
    ]
    return node


def system_pod(node: str) -> Json:
    """A pod that somebody else put on a node."""
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "pause"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{PER_NODE}-{node}", "namespace": "kube-system"},
        "spec": spec,
    }


@contextmanager
def running_cluster() -> Generator[ControlPlane]:
    """Start a control plane with the simulated nodes, and apply k8s/overlays/dev without its workloads.

    Processes of this machine stand in for the workloads.
    """
    with server_directory() as directory, running_control_plane(directory) as plane, running_kubelets(plane):
        plane.apply(*(item for item in reachable(rendered()) if item["kind"] not in WORKLOADS))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
        add_nodes(plane, *(simulated_node(name, zone, number) for number, (name, zone) in enumerate(NODES.items())))
        plane.apply(*map(system_pod, NODES))
        yield plane


async def offer_extended_resources(plane: ControlPlane) -> None:
    """Do what kubelets do with a capacity that others wrote into the status of their node: offer it to pods."""
    async with plane.files.admin.client() as client:
        while True:
            nodes: list[Json] = api.require_success(await client.get("/api/v1/nodes")).json()["items"]
            for node in nodes:
                await _offer(client, node)
            await asyncio.sleep(STATUS_SECONDS)


async def _offer(client: httpx.AsyncClient, node: Mapping[str, Any]) -> None:
    capacity, allocatable = (
        {name: amount for name, amount in node["status"][field].items() if "/" in name}
        for field in ("capacity", "allocatable")
    )
    if capacity != allocatable:
        change = {**dict.fromkeys(allocatable), **capacity}
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        # The version keeps this from overwriting what the tests write at the same time.
        meta = {"resourceVersion": node["metadata"]["resourceVersion"]}
        body = {"metadata": meta, "status": {"allocatable": change}}
        await api.patch(client, path, api.MERGE_PATCH, body)


async def end_pods_without_port(plane: ControlPlane, told: list[str]) -> None:
    """End pods that are refused because their port of the host is taken, and keep what they were told.

    A test waits five minutes for such a pod, until it is not pending any more, and does not look at the outcome.
    """
    async with plane.files.admin.client() as client:
        while True:
            pods: list[Json] = api.require_success(await client.get("/api/v1/pods")).json()["items"]
            for pod in pods:
                conditions = pod["status"].get("conditions", ())
                message = next((item.get("message", "") for item in conditions if item["type"] == "PodScheduled"), "")
                if pod["status"]["phase"] == "Pending" and "didn't have free ports" in message:
                    told.append(message)
                    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
                    await api.patch(client, path, api.MERGE_PATCH, {"status": {"phase": "Failed"}})
            await asyncio.sleep(STATUS_SECONDS)


@asynccontextmanager
async def scheduled_by_us(plane: ControlPlane, nats: NatsServer, directory: Path) -> AsyncGenerator[Installation]:
    """Run a manager, and a scheduler that serves the name default-scheduler."""
    async with installation(plane, nats, directory) as whole:
        flags = [flag for flag in shipped_flags("scheduler.yaml") if not flag.startswith("--scheduler-name")]
        scheduler = whole.start("scheduler", "koord_scheduler", (*flags, "--scheduler-name=default-scheduler"))
        await asyncio.gather(whole.start_manager("manager"), scheduler)
        await whole.until_ready("manager")
        offering = asyncio.create_task(offer_extended_resources(plane))
        try:
            yield whole
        finally:
            offering.cancel()
