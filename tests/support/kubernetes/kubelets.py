"""Stand in for the kubelets of a real API server, with those of `koord up --kubernetes`.

with running_kubelets(plane):
    ...
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
from koordcore.ending import end_tasks
from koordctl.stack.kubernetes.kubelets import register_nodes, serve_pods
from support.kubernetes.control_plane import ControlPlane

Json = dict[str, Any]


def api_client(plane: ControlPlane, token: str | None = None) -> httpx.Client:
    """Return a client that sends the token of a user; None for the administrator."""
    return httpx.Client(
        base_url=plane.url,
        verify=ssl.create_default_context(cafile=plane.tls.ca),
        headers={"authorization": f"Bearer {token or plane.admin_token}"},
        timeout=60,
        trust_env=False,
    )


def node_document(name: str, cpu: int = 16, memory: str = "32Gi", labels: Mapping[str, str] | None = None) -> Json:
    """Return a Node; the status is stored by `add_node`."""
    amounts = {"cpu": str(cpu), "memory": memory, "pods": "110", "ephemeral-storage": "100Gi"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}} | {
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}],
        }
    }


def add_nodes(plane: ControlPlane, *nodes: Json) -> None:
    """Register nodes as kubelets do."""

    async def register() -> None:
        async with plane.files.admin.client() as client:
            await register_nodes(client, nodes)

    with ThreadPoolExecutor(1) as thread:  # asynchronous tests call this, too
        thread.submit(lambda: asyncio.run(register())).result()


@contextmanager
def in_background(work: Callable[[], Coroutine[Any, Any, object]]) -> Generator[None]:
    """Run work that does not end in a thread and loop of its own, until the context ends."""
    ended = threading.Event()

    async def serve() -> None:
        serving = asyncio.create_task(work())
        await asyncio.to_thread(ended.wait)
        await end_tasks(serving)

    with ThreadPoolExecutor(1) as thread:
        served = thread.submit(lambda: asyncio.run(serve()))
        try:
            yield
        finally:
            ended.set()
            served.result()


@contextmanager
def running_kubelets(plane: ControlPlane) -> Generator[None]:
    """Let pods run on their nodes until the context ends."""

    async def serve() -> None:
        async with plane.files.admin.client() as client:
            await serve_pods(client, lambda _: True)

    with in_background(serve):
        yield
