"""Stand in for the kubelets of a real API server: bound pods run, and deleted pods leave.

with running_kubelets(plane):
    ...
"""

import ssl
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
from support.kubernetes.control_plane import ADMIN_TOKEN, ControlPlane

Json = dict[str, Any]
MERGE_PATCH = {"content-type": "application/merge-patch+json"}
PERIOD_SECONDS = 0.2


def api_client(plane: ControlPlane, token: str = ADMIN_TOKEN) -> httpx.Client:
    """Return a client that sends the token of a user."""
    return httpx.Client(
        base_url=plane.url,
        verify=ssl.create_default_context(cafile=plane.tls.ca),
        headers={"authorization": f"Bearer {token}"},
        timeout=60,
        trust_env=False,
    )


def node_document(name: str, cpu: int = 16, memory: str = "32Gi", labels: Mapping[str, str] | None = None) -> Json:
    """Return a Node; the status is stored by `add_node`."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}} | {
        "status": {
            "capacity": {"cpu": str(cpu), "memory": memory, "pods": "110"},
            "allocatable": {"cpu": str(cpu), "memory": memory, "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
        }
    }


def add_nodes(plane: ControlPlane, *nodes: Json) -> None:
    """Register nodes as kubelets do: the API server drops the taint of a new node only if it is ready."""
    with api_client(plane) as client:
        for node in nodes:
            made = client.post("/api/v1/nodes", json=node)
            assert made.status_code in (201, 409), made.text
            path = f"/api/v1/nodes/{node['metadata']['name']}"
            body = {"status": node["status"]}
            client.patch(f"{path}/status", json=body, headers=MERGE_PATCH).raise_for_status()
            # The node lifecycle controller, which does not run, would remove the taint `not-ready`.
            client.patch(path, json={"spec": {"taints": None}}, headers=MERGE_PATCH).raise_for_status()


@contextmanager
def running_kubelets(plane: ControlPlane) -> Generator[None]:
    """Let pods run on their nodes until the context ends."""
    ended = threading.Event()
    worker = threading.Thread(target=_serve, args=(plane, ended), daemon=True)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


def _serve(plane: ControlPlane, ended: threading.Event) -> None:
    with api_client(plane) as client:
        while not ended.wait(PERIOD_SECONDS):
            pods: list[Json] = client.get("/api/v1/pods", params={"resourceVersion": "0"}).json()["items"]
            for pod in pods:
                if pod["spec"].get("nodeName"):
                    _carry_out(client, pod)


def _carry_out(client: httpx.Client, pod: Json) -> None:
    """Report that a bound pod runs, or remove it once it is deleted."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    if "deletionTimestamp" in metadata:
        client.request("DELETE", path, json={"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})
    elif pod["status"].get("phase") == "Pending":
        ready = {"type": "Ready", "status": "True"}
        client.patch(
            f"{path}/status",
            json={"metadata": {"uid": metadata["uid"]}, "status": {"phase": "Running", "conditions": [ready]}},
            headers={"content-type": "application/strategic-merge-patch+json"},
        )
