"""Register the nodes of a trace, submit its pods at their times, and wait until each is placed or explained.

The demo on a stack of its own (`run`) and the demo on a running system (`on_running`) share it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from koordctl.demo.arrivals import arrivals
from koordctl.demo.configuration import slo_controller_config
from koordctl.demo.tail import PodCounts, Tail
from koordctl.demo.trace import NAMESPACE, TraceNode, TracePod, node_manifest, pod_manifest, topology_manifest
from koordctl.documents.priority_classes import priority_class_manifests
from koordctl.embedded.nodes import CHUNK, Manifest, submit

WARM_UP_SECONDS: Final = 180.0
"""Time within which the nodes must have batch resources and devices."""
VERIFY_SECONDS: Final = 300.0
"""Time that manager and projector may take to answer the verification."""
SETTLE_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """The functions that the demo calls to show its progress.

    Attributes:
        step: Receives a sentence when a part begins or ends.
        progress: Receives counts a few times a second while pods arrive.
    """

    step: Callable[[str], None]
    progress: Callable[[PodCounts], None]


async def register_nodes(
    client: httpx.AsyncClient,
    nodes: Sequence[TraceNode],
    speed: float,
    others: Sequence[Manifest] = (),
    *,
    rdma_functions: int = 0,
) -> None:
    """Apply the configuration of the demo, its namespace and priority classes, and the nodes with their topology.

    Args:
        client: Client of the manager.
        nodes: Nodes of the trace.
        speed: Simulated seconds per real second.
        others: Further objects.
        rdma_functions: Virtual functions of the RDMA adapter at each PCIe switch with GPUs; 0: no adapters.
    """
    namespace: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await submit(client, [namespace, *priority_class_manifests(), slo_controller_config(speed), *others])
    for begin in range(0, len(nodes), CHUNK):
        part = nodes[begin : begin + CHUNK]
        await submit(
            client,
            [
                manifest
                for node in part
                for manifest in (node_manifest(node, rdma_functions=rdma_functions), topology_manifest(node))
            ],
        )


async def submit_pods(
    client: httpx.AsyncClient,
    pods: Sequence[TracePod],
    seconds: float,
    sent: Callable[[int], Awaitable[None]],
    manifest_of: Callable[[TracePod], Manifest] = pod_manifest,
) -> None:
    """Submit every group of pods at its time.

    If the manager is slower than the trace, the next group waits for its answer.

    Args:
        client: Client of the manager.
        pods: Pods of the trace, in order.
        seconds: Real time during which they arrive.
        sent: Called after each group with the number of pods submitted so far.
        manifest_of: Returns the Kubernetes Pod for a pod of the trace.
    """
    began = time.monotonic()
    for group in arrivals(len(pods), seconds):
        ahead = group.at_seconds - (time.monotonic() - began)
        if ahead > 0:
            await asyncio.sleep(ahead)
        await submit(client, [manifest_of(pod) for pod in pods[group.begin : group.end]])
        await sent(group.end)


async def delete_pods(client: httpx.AsyncClient, pods: Sequence[TracePod]) -> None:
    """Delete pods of the trace.

    Raises:
        EmbeddedError: The manager refused; the message is the first refusal.
    """
    for begin in range(0, len(pods), CHUNK):
        part = pods[begin : begin + CHUNK]
        items = [{"kind": "Pod", "namespace": NAMESPACE, "name": pod.name} for pod in part]
        await submit(client, items, "/v1/delete")


async def settle(sent: int, tail: Tail, watching: Watching) -> None:
    """Wait until every pod is placed or explained and placements have stopped, but at most `SETTLE_SECONDS`.

    Args:
        sent: Number of submitted pods.
        tail: Counts of pods from the log.
        watching: Receives the progress.
    """
    end = time.monotonic() + SETTLE_SECONDS
    placed, changed_at = len(tail.placed), time.monotonic()
    while time.monotonic() < end:
        if len(tail.placed) != placed:
            placed, changed_at = len(tail.placed), time.monotonic()
        if tail.unanswered(sent) <= 0 and time.monotonic() - changed_at > QUIET_SECONDS:
            return
        watching.progress(tail.counts(sent, sent))
        await asyncio.sleep(0.2)


async def wait_until(condition: Callable[[], bool], tail: Tail, seconds: float) -> bool:
    """Wait until the condition holds, and return True. Return False if the time is over first.

    Args:
        condition: The condition. It is checked again after each batch of events that `tail` has read.
        tail: Follows the log.
        seconds: Real seconds to wait.
    """
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                tail.moved.clear()
                await tail.moved.wait()
    except TimeoutError:
        return False
    return True
