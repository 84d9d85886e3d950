"""`python -m bench.large_descheduler <nodes> <pods per node>`: the fold and the views of a large cluster.

It folds the facts and the usage reports of the cluster in a process of its own, makes the first view as the service
does, and prints memory and the longest pauses of the event loop as JSON.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Coroutine, Iterator
from typing import Any

from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.shell.folding import observe_all, views_are_current
from koordcore.bus.read.report_gate import ReportGate
from koordcore.bus.refusals import Refusals
from koordcore.events.envelope import AggregateRef, Draft, Event, StoredEvent
from koordcore.events.objects import CustomObjectObserved, NodeSpecAdded, PodSpecAdded, PodSpecChanged, custom_ref
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.service.run import collect_rarely
from support.histories.recording import stored
from support.manual_clock import ManualClock

GIB = 1 << 30
AT = "2026-01-01T00:00:00.000000Z"
CHANGED_PODS = 500


def main() -> None:
    """Measure the cluster on the command line."""
    print(json.dumps(asyncio.run(_measured(int(sys.argv[1]), int(sys.argv[2])))))


async def _measured(nodes: int, pods: int) -> dict[str, float]:
    collect_rarely()
    builder = ViewBuilder()
    for event in _facts(nodes, pods):
        builder.apply(event)
    builder.load(builder.state)  # as after a snapshot: no view is made yet
    gate = ReportGate(ManualClock(), Refusals("bench"))
    reports = await _beside_other_work(observe_all(builder, list(_reports(nodes, pods)), gate))
    began = time.process_time()
    first = await _beside_other_work(views_are_current(builder))
    seconds = time.process_time() - began
    assert len(builder.view(0.0).pods) == nodes * pods
    for number in range(CHANGED_PODS):
        uid = f"p00000-{number % pods}"
        changed = PodSpecChanged(object=_pod(uid, 0))
        builder.apply(stored(nodes * (pods + 2) + number + 1, Draft(AggregateRef("podspec", uid), changed, 0)))
    later = await _beside_other_work(views_are_current(builder))
    began = time.process_time()
    builder.view(0.0)
    return {
        "first_view_cpu_seconds": seconds,
        "first_view_pause_ms": 1000 * first,
        "reports_pause_ms": 1000 * reports,
        "next_view_pause_ms": 1000 * max(later, time.process_time() - began),
        "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


async def _beside_other_work(work: Coroutine[Any, Any, None]) -> float:
    """Return the longest CPU time between two turns of the event loop during some work, in seconds."""
    longest, last = 0.0, time.process_time()
    running = asyncio.ensure_future(work)
    while not running.done():
        await asyncio.sleep(0)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    await running
    return longest


def _facts(nodes: int, pods: int) -> Iterator[StoredEvent]:
    seq = 0

    def fact(ref: AggregateRef, event: Event) -> StoredEvent:
        nonlocal seq
        seq += 1
        return stored(seq, Draft(ref, event, 0))

    for row in range(nodes):
        name = f"n{row:05}"
        status = {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}}
        node = node_from_json({"metadata": {"name": name}, "status": status})
        yield fact(AggregateRef("nodespec", name), NodeSpecAdded(object=node))
        metadata = {"namespace": "bench", "name": f"set-{row}", "uid": f"set-{row}"}
        document = {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": pods}}
        yield fact(custom_ref("replicasets", "bench", f"set-{row}"), CustomObjectObserved(object=document))
    for row in range(nodes):
        for slot in range(pods):
            uid = f"p{row:05}-{slot}"
            yield fact(AggregateRef("podspec", uid), PodSpecAdded(object=_pod(uid, row)))


def _pod(uid: str, row: int) -> Any:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"set-{row}", "uid": f"set-{row}"}
    return pod_from_json(
        {
            "metadata": {
                "name": uid,
                "namespace": "bench",
                "uid": uid,
                "labels": {"app": f"set-{row}"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {
                "nodeName": f"n{row:05}",
                "schedulerName": "koord-scheduler",
                "containers": [
                    {"name": "main", "image": "i", "resources": {"requests": {"cpu": "800m", "memory": "1Gi"}}}
                ],
            },
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


def _reports(nodes: int, pods: int) -> Iterator[StoredEvent]:
    used = Usage(cpu_milli=600, memory_bytes=GIB)
    for row in range(nodes):
        measured = [
            PodUsage(
                uid=f"p{row:05}-{slot}",
                namespace="bench",
                name=f"p{row:05}-{slot}",
                priority_class="koord-prod",
                qos="LS",
                usage=used,
            )
            for slot in range(pods)
        ]
        report = NodeUsageReported(
            updated_at=AT,
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=used,
            system_usage=used,
            pods=measured,
        )
        yield stored(row + 1, Draft(AggregateRef("node", f"n{row:05}"), report, 0))


if __name__ == "__main__":
    main()
