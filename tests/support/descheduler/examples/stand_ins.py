"""Stand-ins for what surrounds the services in a cluster with the examples: kubelets, controllers, node agents.

async with stand_ins(day, clusters): ...
"""

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

from koordcore.values.timestamps import rfc3339
from support.descheduler.examples.clusters import USAGE, ExampleCluster, Json, owners_of
from support.descheduler.examples.native import SYSTEM_USAGE_MILLI
from support.kubernetes.apiserver import ApiServer

SUCCESSOR = "-successor"
"""Suffix of the name of the pod that takes the place of another one."""
_PLURALS = {"Node": "nodes", "Pod": "pods", "ReplicaSet": "replicasets"}


def store(server: ApiServer, clusters: Sequence[ExampleCluster]) -> None:
    """Store the objects of examples, with their ages and states, as an API server has them that has run for long."""
    pods = [pod for cluster in clusters for pod in cluster.pods]
    for document in [*(node for cluster in clusters for node in cluster.nodes), *owners_of(pods), *pods]:
        _put(server, document)


def placed_successors(server: ApiServer) -> dict[str, str]:
    """Return uid of a pod that is gone -> the node of its successor, of successors that have one."""
    return {
        pod["metadata"]["uid"].removesuffix(SUCCESSOR): node
        for pod in server.objects("pods")
        if pod["metadata"]["name"].endswith(SUCCESSOR) and (node := pod["spec"].get("nodeName"))
    }


@contextlib.asynccontextmanager
async def stand_ins(server: ApiServer, clusters: Sequence[ExampleCluster]) -> AsyncGenerator[None]:
    """Let pods end, get successors and run, and report the usage of nodes, until the context ends."""
    hot = {pod["spec"]["nodeName"] for each in clusters for pod in each.pods if USAGE in pod["metadata"]["annotations"]}
    reporting = {node for each in clusters for node in _names(each.nodes) if _names(each.nodes) & hot}

    async def serve() -> None:
        known = {pod["metadata"]["uid"]: pod for pod in server.objects("pods")}
        while True:
            await _run_pods(server)
            existing = {pod["metadata"]["uid"] for pod in server.objects("pods")}
            for uid in known.keys() - existing:
                gone = known.pop(uid)
                if any(owner["kind"] == "ReplicaSet" for owner in gone["metadata"]["ownerReferences"]):
                    _put(server, _successor(gone))
            for node in sorted(reporting):
                await _report(server, node)
            await asyncio.sleep(0.2)

    serving = asyncio.create_task(serve())
    try:
        yield
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def _names(documents: Sequence[Json]) -> set[str]:
    return {document["metadata"]["name"] for document in documents}


def _put(server: ApiServer, document: Json) -> None:
    meta = document["metadata"]
    key = (meta.get("namespace", ""), meta["name"])
    server.store.put(server.resource(_PLURALS[document["kind"]]).store_key, key, document)


async def _run_pods(server: ApiServer) -> None:
    """Remove pods that were asked to end, and let successors with a node run, as kubelets do."""
    for pod in server.objects("pods"):
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            await server.delete("pods", meta["namespace"], meta["name"])
        elif meta["name"].endswith(SUCCESSOR) and pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending":
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await server.patch_status("pods", meta["namespace"], meta["name"], status)


def _successor(gone: Json) -> Json:
    """Return the pod that a ReplicaSet creates when one of its pods is gone."""
    pod = copy.deepcopy(gone)
    meta = pod["metadata"]
    for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
        meta.pop(name, None)
    now = rfc3339(datetime.now(UTC))
    pod["metadata"] = {
        **meta,
        "name": meta["name"] + SUCCESSOR,
        "uid": meta["uid"] + SUCCESSOR,
        "creationTimestamp": now,
    }
    del pod["spec"]["nodeName"]
    pod["status"] = {"phase": "Pending"}
    return pod


async def _report(server: ApiServer, node: str) -> None:
    """Report the usage of a node as Koordinator's node agent does, once the manager has created its NodeMetric."""
    if server.object("nodemetrics", "", node) is None:
        return
    used = {
        (pod["metadata"]["namespace"], pod["metadata"]["name"]): int(pod["metadata"]["annotations"].get(USAGE, "20"))
        for pod in server.objects("pods")
        if pod["spec"].get("nodeName") == node and pod["status"]["phase"] == "Running"
    }
    status = {
        "updateTime": rfc3339(datetime.now(UTC)),
        "nodeMetric": {
            "nodeUsage": _amounts(sum(used.values()) + SYSTEM_USAGE_MILLI),
            "systemUsage": _amounts(SYSTEM_USAGE_MILLI),
        },
        "podsMetric": [
            {"namespace": namespace, "name": name, "podUsage": _amounts(milli)}
            for (namespace, name), milli in used.items()
        ],
    }
    await server.patch_status("nodemetrics", "", node, status)


def _amounts(cpu_milli: int) -> Json:
    return {"resources": {"cpu": f"{cpu_milli}m", "memory": "64Mi"}}
