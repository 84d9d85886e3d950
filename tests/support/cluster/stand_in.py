"""A second node of the cluster, on which nothing runs: the API server has it, and its pods are reported as running."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

from koordctl.stack.kubernetes import api
from koordctl.stack.kubernetes.kubelets import register_nodes, serve_pods
from koordctl.stack.kubernetes.programs import admin_kubeconfig
from support.cluster.cluster import Cluster
from support.kubernetes.kubelets import in_background, node_document

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEW_SECONDS: Final = 5.0


@contextmanager
def stand_in_node(cluster: Cluster, name: str) -> Generator[None]:
    """Register a node of 2 CPUs, and let its pods run, until the context ends. Then the node and its pods are gone."""

    async def renew(client: Any) -> None:
        await client.post(LEASES, json={"metadata": {"name": name}, "spec": {"holderIdentity": name}})
        while True:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"spec": {"renewTime": now, "leaseDurationSeconds": 40}}
            await api.patch(client, f"{LEASES}/{name}", api.MERGE_PATCH, spec)
            await asyncio.sleep(RENEW_SECONDS)

    async def serve() -> None:
        async with api.read_kubeconfig(admin_kubeconfig(cluster.folder)).client() as client:
            await register_nodes(client, [node_document(name, cpu=2, memory="4Gi")])
            async with asyncio.TaskGroup() as group:
                group.create_task(renew(client))
                group.create_task(serve_pods(client, lambda on: on == name))

    try:
        with in_background(serve):
            yield
    finally:
        cluster.plane.kubectl("delete", "node", name, "--ignore-not-found")
        left = ("delete", "pod", "-A", f"--field-selector=spec.nodeName={name}", "--force", "--grace-period=0")
        cluster.plane.kubectl(*left)
        cluster.plane.kubectl("delete", "lease", name, "-n", "kube-node-lease", "--ignore-not-found")
