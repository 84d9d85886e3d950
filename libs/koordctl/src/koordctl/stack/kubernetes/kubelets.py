"""Stand in for the kubelets of an embedded control plane: nodes are registered, bound pods run, deleted pods leave.

No container runs. `koord up --kubernetes` starts this module as a process; tests run `serve_pods` in a thread.
"""

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import httpx
from koordcore.embedded.errors import EmbeddedError
from koordcore.values import codec

from koordctl.render.output import errors
from koordctl.stack.kubernetes import api

RETRY_SECONDS: Final = 1.0
WATCH_SECONDS: Final = 300
NOT_READY: Final = "node.kubernetes.io/not-ready"
AT_ONCE: Final = 16
"""Requests that are under way at the same time."""
_CONFLICT, _NOT_FOUND = 409, 404
_BOUND: Final = {"fieldSelector": "spec.nodeName!="}
_CONDITIONS: Final = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
_PODS: Final = "/api/v1/pods"
_NODES: Final = "/api/v1/nodes"


async def register_nodes(client: httpx.AsyncClient, nodes: Sequence[api.Manifest]) -> None:
    """Create the nodes that are absent, and report all as ready.

    Labels and taints of nodes that exist stay as they are, except the taint `not-ready`.

    Raises:
        EmbeddedError: The API server refused a node.
        httpx.HTTPError: The API server does not answer.
    """
    for node in nodes:
        name = node["metadata"]["name"]
        made = await client.post(_NODES, json=node)
        if made.status_code != _CONFLICT:
            api.require_success(made)
        status = {**node.get("status", {}), "conditions": [_condition("Ready", "KubeletReady")]}
        found = await api.patch(client, f"{_NODES}/{name}/status", api.MERGE_PATCH, {"status": status})
        reported: api.Manifest = api.require_success(found).json()
        if is_not_ready(reported):
            # The API server gives new nodes this taint. The controller that removes it does not run.
            left = [taint for taint in reported["spec"]["taints"] if taint["key"] != NOT_READY]
            spec = {"spec": {"taints": left}}
            api.require_success(await api.patch(client, f"{_NODES}/{name}", api.MERGE_PATCH, spec))


def is_not_ready(node: api.Manifest) -> bool:
    """Whether a node has the taint `not-ready`."""
    return any(taint["key"] == NOT_READY for taint in node["spec"].get("taints", ()))


async def serve_pods(client: httpx.AsyncClient, runs: Callable[[str], bool]) -> None:
    """Let bound pods run, and remove deleted pods, until cancelled. Failed requests are repeated.

    Args:
        runs: Whether pods run on the node with this name. On other nodes they only leave.
    """
    slots = asyncio.Semaphore(AT_ONCE)

    async def serve(pod: api.Manifest, seconds: float) -> None:
        await asyncio.sleep(seconds)
        async with slots:
            await _carry_out(client, pod, runs)

    while True:
        try:
            async with asyncio.TaskGroup() as group:
                lingering: list[asyncio.Task[None]] = []
                async for pod in _changes(client):
                    seconds = lingering_seconds(pod, datetime.now(UTC))
                    task = group.create_task(serve(pod, seconds))
                    if seconds:
                        lingering.append(task)
                for task in lingering:
                    task.cancel()  # the next list has these pods again
        except* (httpx.HTTPError, EmbeddedError, ValueError) as group_error:
            errors.print(f"pods are listed again: {group_error.exceptions[0]}")
        await asyncio.sleep(RETRY_SECONDS)


async def _changes(client: httpx.AsyncClient) -> AsyncIterator[api.Manifest]:
    """Every bound pod, then each that changes, until the API server ends the watch."""
    listed = api.require_success(await client.get(_PODS, params={**_BOUND, "resourceVersion": "0"})).json()
    for pod in listed["items"]:
        yield pod
    version = listed["metadata"]["resourceVersion"]
    query = {**_BOUND, "watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
    async with client.stream("GET", _PODS, params=query, timeout=httpx.Timeout(30, read=WATCH_SECONDS + 30)) as lines:
        if not lines.is_success:
            await lines.aread()
        api.require_success(lines)
        async for line in lines.aiter_lines():
            event: dict[str, Any] = json.loads(line)
            if event["type"] == "ERROR":  # for example an expired version
                raise EmbeddedError(f"the watch of pods ended: {event['object'].get('message')}")
            if event["type"] != "DELETED":
                yield event["object"]


async def _carry_out(client: httpx.AsyncClient, pod: api.Manifest, runs: Callable[[str], bool]) -> None:
    """Report that a bound pod runs, or remove it once it is deleted."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    uid = {"uid": metadata["uid"]}
    if "deletionTimestamp" in metadata:
        body = {"gracePeriodSeconds": 0, "preconditions": uid}
        answer = await client.request("DELETE", path, json=body)
    elif pod["status"].get("phase") == "Pending" and runs(pod["spec"]["nodeName"]):
        body = {"metadata": uid, "status": running_status(pod)}
        answer = await api.patch(client, f"{path}/status", api.STRATEGIC_PATCH, body)
    else:
        return
    if answer.status_code not in (_CONFLICT, _NOT_FOUND):  # another pod of this name, or none
        api.require_success(answer)


def lingering_seconds(pod: api.Manifest, now: datetime) -> float:
    """How long the containers of a deleted pod still run: while their preStop hooks sleep, within its grace period.

    0 for a pod that is not deleted.
    """
    metadata = pod["metadata"]
    if "deletionTimestamp" not in metadata:
        return 0.0
    grace: int = metadata.get("deletionGracePeriodSeconds") or 0
    hooks = (container.get("lifecycle", {}).get("preStop", {}) for container in pod["spec"]["containers"])
    asleep = max(hook.get("sleep", {}).get("seconds", 0) for hook in hooks)
    # The API server adds the grace period to the moment of the deletion.
    passed = (now - datetime.fromisoformat(metadata["deletionTimestamp"])).total_seconds() + grace
    return max(0.0, min(asleep, grace) - passed)


def running_status(pod: api.Manifest) -> api.Manifest:
    """The status of a pod whose containers all run."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for container in pod["spec"]["containers"]
    ]
    conditions = [{"type": name, "status": "True"} for name in _CONDITIONS]
    return {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": containers}


def _condition(name: str, reason: str) -> api.Manifest:
    return {"type": name, "status": "True", "reason": reason, "message": ""}


async def _run(kubeconfig: Path, nodes: Sequence[api.Manifest], idle: frozenset[str]) -> None:
    names = {node["metadata"]["name"] for node in nodes}
    async with api.read_kubeconfig(kubeconfig).client() as client:
        while True:
            try:
                await register_nodes(client, nodes)
                break
            except httpx.HTTPError as error:
                errors.print(f"nodes are not registered: {error}")
                await asyncio.sleep(RETRY_SECONDS)
        await serve_pods(client, lambda name: name in names and name not in idle)


def main() -> None:
    parser = argparse.ArgumentParser(prog="kubelets", description="Stand in for the kubelets of simulated nodes.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="Kubeconfig of the user koord-kubelets.")
    parser.add_argument("--nodes", type=Path, required=True, help="File with a List of Nodes to register.")
    parser.add_argument("--idle", action="append", default=[], help="Node on which pods do not run.")
    given = parser.parse_args()
    nodes = cast("list[api.Manifest]", codec.decode(given.nodes.read_bytes(), dict[str, Any])["items"])
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(given.kubeconfig, nodes, frozenset(given.idle)))


if __name__ == "__main__":
    main()
