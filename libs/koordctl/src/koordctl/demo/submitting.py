"""Register the nodes of a trace, submit its pods at their times, and wait until each is placed or explained.

The demo on a stack of its own (`run`) and the demo on a running system (`on_running`) share it. The trace spans five
months with hours of silence. The demo keeps the order of the pods, drops the gaps, and spreads them evenly over a given
time.

The ConfigMap slo-controller-config of the demo enables colocation and best-effort suppression. Its intervals are times
of the run: at speed 360, one report per simulated hour is one report per ten real seconds.
"""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import httpx

from koordctl.demo.tail import PodCounts, Tail
from koordctl.demo.trace import NAMESPACE, TraceNode, TracePod, node_manifest, pod_manifest, topology_manifest
from koordctl.objects.priority_classes import priority_class_manifests
from koordctl.stack.nodes import CHUNK, Manifest, submit

TICK_SECONDS = 0.1
REPORT_REAL_SECONDS: Final = 10.0
DEGRADE_REPORTS: Final = 12
"""Batch resources are withdrawn after this number of missed reports; a busy machine may be late with some."""
CPU_RECLAIM_PERCENT: Final = 65
SUPPRESS_PERCENT: Final = 65
WARM_UP_SECONDS: Final = 180.0
"""Time within which the nodes must have batch resources and devices."""
SETTLE_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 3.0
FIRST_ATTEMPT_SECONDS: Final = 60.0
"""Longest time without a first attempt while pods wait for theirs. After it, they count as unexplained."""


class Arrival(NamedTuple):
    """The pods from index `begin` up to `end` (exclusive), sent `at_seconds` after the first group."""

    at_seconds: float
    begin: int
    end: int


def arrivals(count: int, seconds: float, *, tick_seconds: float = TICK_SECONDS) -> Iterator[Arrival]:
    """Yield the groups in which pods are submitted, in order. Together they hold every pod exactly once.

    Args:
        seconds: Real time in which all groups are sent; 0 sends all at once.
        tick_seconds: Time between two groups.
    """
    ticks = max(1, int(seconds / tick_seconds))
    begin = 0
    for tick in range(ticks):
        end = (tick + 1) * count // ticks
        if end > begin:
            yield Arrival(tick * tick_seconds, begin, end)
        begin = end


def report_interval_seconds(speed: float) -> int:
    """Simulated seconds between two usage reports of a node: 10 real seconds, at least 1."""
    return max(1, round(REPORT_REAL_SECONDS * speed))


def slo_controller_config(speed: float, *, protect: bool = True) -> dict[str, Any]:
    """Return the ConfigMap slo-controller-config for a run of the demo.

    Args:
        protect: Whether best-effort pods are suppressed when latency-sensitive pods need their CPU.
    """
    interval = report_interval_seconds(speed)
    colocation = {
        "enable": True,
        "metricReportIntervalSeconds": interval,
        "metricAggregateDurationSeconds": interval,
        "cpuReclaimThresholdPercent": CPU_RECLAIM_PERCENT,
        "memoryReclaimThresholdPercent": CPU_RECLAIM_PERCENT,
        "degradeTimeMinutes": max(1, math.ceil(interval * DEGRADE_REPORTS / 60)),
        "updateTimeThresholdSeconds": interval * 3,
        "resourceDiffThreshold": 0.1,
    }
    thresholds = {
        "clusterStrategy": {
            "enable": protect,
            "cpuSuppressThresholdPercent": SUPPRESS_PERCENT,
            "cpuSuppressPolicy": "cfsQuota",
        }
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {
            "colocation-config": json.dumps(colocation, indent=2),
            "resource-threshold-config": json.dumps(thresholds, indent=2),
        },
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    step: Callable[[str], None]  # Receives a sentence when a part begins or ends
    progress: Callable[[PodCounts], None]  # Receives counts a few times a second while pods arrive


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
    """Submit every group of pods at its time; each waits for the manager's answer to the group before.

    Args:
        seconds: Real time during which they arrive.
        sent: Called after each group with the number of pods submitted so far.
    """
    began = time.monotonic()
    for group in arrivals(len(pods), seconds):
        ahead = group.at_seconds - (time.monotonic() - began)
        if ahead > 0:
            await asyncio.sleep(ahead)
        await submit(client, [manifest_of(pod) for pod in pods[group.begin : group.end]])
        await sent(group.end)


async def delete_pods(client: httpx.AsyncClient, pods: Sequence[TracePod]) -> None:
    """Raises:
    EmbeddedError: The manager refused; the message is the first refusal.
    """
    for begin in range(0, len(pods), CHUNK):
        part = pods[begin : begin + CHUNK]
        items = [{"kind": "Pod", "namespace": NAMESPACE, "name": pod.name} for pod in part]
        await submit(client, items, "/v1/delete")


async def settle(sent: int, tail: Tail, watching: Watching) -> None:
    """Wait until every pod is placed or explained and placements have stopped, but at most `SETTLE_SECONDS`. As long as
    first attempts go on, wait for those that are left: a pod that was not attempted has no explanation yet.
    """
    end = time.monotonic() + SETTLE_SECONDS
    placed, changed_at = len(tail.placed), time.monotonic()
    unanswered, answered_at = tail.unanswered(sent), time.monotonic()
    while (now := time.monotonic()) < end or (unanswered > 0 and now - answered_at < FIRST_ATTEMPT_SECONDS):
        if len(tail.placed) != placed:
            placed, changed_at = len(tail.placed), now
        if tail.unanswered(sent) < unanswered:
            unanswered, answered_at = tail.unanswered(sent), now
        if unanswered <= 0 and now - changed_at > QUIET_SECONDS:
            return
        watching.progress(tail.counts(sent, sent))
        await asyncio.sleep(0.2)


async def wait_until(condition: Callable[[], bool], tail: Tail, seconds: float) -> bool:
    """Wait until the condition holds, and return True. Return False if the (real) time is over first.

    The condition is checked again after each batch of events that `tail` has read.
    """
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                tail.moved.clear()
                await tail.moved.wait()
    except TimeoutError:
        return False
    return True
