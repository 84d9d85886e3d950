"""One run of one row on one side: objects per second from the first submission until all are bound.

Twenty times a second, the last submitted pod is read. When it is bound, the pods without a node are counted until there
are none. Then the events of the bound pods are waited for, so that the CPU time
contains all work for the pods.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.kubernetes_perf.api import EVENTS, INITIAL_EVENTS, INITIAL_PODS, PODS
from bench.kubernetes_perf.machine import Machine, cpu_seconds, resident_mib
from bench.kubernetes_perf.objects import encoded, node_name, plain, reserved
from bench.kubernetes_perf.rows import RESERVATIONS, Row
from bench.kubernetes_perf.sides import Side

LOOK_SECONDS: Final = 0.05
EVENT_LOOK_SECONDS: Final = 0.25
EVENTS_STILL_LOOKS: Final = 8
"""Looks without a new event after which no more are expected."""
PATIENCE_SECONDS: Final = 60.0
LEAST_PER_SECOND: Final = 2
WARM_UP: Final = 50
HARNESS: Final = "harness"


class NotBound(Exception):
    """Raised if objects did not get a node in the time that they had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run showed.

    Attributes:
        side: Name of the side.
        per_second: Objects per second, from the first submission to the last binding.
        cpu_ms: Process -> its CPU milliseconds for each object, events included.
        events: Events that were written for each object.
        tail_seconds: Time from the last binding to the last event.
        resident_mib: Process -> its memory at the end, that of the API server and of etcd included.
        own: Processes of the side.
    """

    side: str
    per_second: float
    cpu_ms: Mapping[str, float]
    events: float
    tail_seconds: float
    resident_mib: Mapping[str, float]
    own: frozenset[str]

    def __str__(self) -> str:
        """Return the figures for the note of a result."""
        spent = ", ".join(f"{name} {ms:.2f}" for name, ms in self.cpu_ms.items())
        after = f"{self.events:.2f} events each, {self.tail_seconds:.1f} s after"
        memory = ", ".join(f"{name} {mib:,.0f}" for name, mib in self.resident_mib.items())
        busy = f"cores busy: {self.cores(self.cpu_ms):.2f}, {self.cores(self.own):.2f} of them its own"
        return f"{self.per_second:,.0f}/s; CPU ms each: {spent}; {busy}; {after}; MiB: {memory}"

    def cores(self, processes: Iterable[str]) -> float:
        """Return how many cores processes kept busy on average, events included."""
        return sum(self.cpu_ms[name] for name in processes) * self.per_second / 1000

    @property
    def own_cpu_ms(self) -> float:
        """CPU milliseconds for each object of the side's own processes."""
        return sum(ms for name, ms in self.cpu_ms.items() if name in self.own)


async def measure(machine: Machine, side: Side, row: Row, scale: float, name: str) -> Run:
    """Prepare a row on a side that is idle, and measure it.

    Args:
        machine: The API server.
        side: The running side.
        row: The row.
        scale: Factor of the numbers of objects.
        name: Prefix of the names of objects, unique on this API server.

    Raises:
        NotBound: Objects did not get a node.
    """
    await place(machine, side, [plain(f"{name}-warm-{number}", number) for number in range(WARM_UP)])
    reservations = [reserved(f"{name}-r-{number}", number) for number in range(round(row.reservations * scale))]
    if reservations:
        await place(machine, side, reservations, RESERVATIONS)
    count = max(1, round(row.measured * scale) // row.group) * row.group
    documents = [row.make(f"{name}-m-{number}", number) for number in range(count)]
    await _until_events_stop(machine, time.monotonic())
    events = await machine.api.count(EVENTS)
    pids = {**machine.pids, **side.pids}
    before, own = cpu_seconds(pids), time.process_time()
    began = time.monotonic()
    await place(machine, side, documents, row.path)
    seconds = time.monotonic() - began
    harness = time.process_time() - own
    if row.annotation:
        await _require_annotation(machine, documents[-1]["metadata"]["name"], row.annotation)
    tail = await _until_events_stop(machine, time.monotonic())
    spent = {pid: used - before[pid] for pid, used in cpu_seconds(pids).items()}
    return Run(
        side=side.name,
        per_second=count / seconds,
        cpu_ms={pid: 1000 * used / count for pid, used in {**spent, HARNESS: harness}.items()},
        events=(await machine.api.count(EVENTS) - events) / count,
        tail_seconds=tail,
        resident_mib={pid: resident_mib(number) for pid, number in pids.items()},
        own=frozenset(side.pids),
    )


async def place(machine: Machine, side: Side, documents: list[dict[str, Any]], path: str = PODS) -> None:
    """Submit objects and wait until each has a node."""
    for document in documents:
        spec = document["spec"]["template"]["spec"] if path == RESERVATIONS else document["spec"]
        spec["schedulerName"] = side.scheduler
    last = documents[-1]["metadata"]["name"]
    end = time.monotonic() + PATIENCE_SECONDS + len(documents) / LEAST_PER_SECOND
    await machine.api.create(path, [encoded(document) for document in documents])
    while time.monotonic() < end:
        await asyncio.sleep(LOOK_SECONDS)
        if await _is_placed(machine, path, last) and not await _waiting(machine, path):
            return
    raise NotBound(f"{side.name}: {await _waiting(machine, path)} of {len(documents)} have no node")


async def place_initial(machine: Machine, side: Side, row: Row, scale: float) -> None:
    """Place the pods that stay during all runs of a row."""
    await place(machine, side, _initial(row, scale), INITIAL_PODS)


async def fill(machine: Machine, row: Row, scale: float) -> None:
    """Create the pods that stay during all runs of a row, as many on each node."""
    documents = _initial(row, scale)
    for number, document in enumerate(documents):
        document["spec"]["nodeName"] = node_name(number % machine.nodes)
    await machine.api.create(INITIAL_PODS, [encoded(document) for document in documents])


def _initial(row: Row, scale: float) -> list[dict[str, Any]]:
    return [row.make_initial(f"{row.key}-i-{number}", number) for number in range(round(row.initial * scale))]


async def _require_annotation(machine: Machine, pod: str, annotation: str) -> None:
    found = (await machine.api.get(f"{PODS}/{pod}"))["metadata"].get("annotations", {})
    if annotation not in found:
        raise NotBound(f"pod {pod} must have the annotation {annotation}, got {sorted(found)}")


async def _is_placed(machine: Machine, path: str, name: str) -> bool:
    if path != RESERVATIONS:
        return await machine.api.is_bound(f"{path}/{name}")
    found = await machine.api.get(f"{path}/{name}")
    return found.get("status", {}).get("phase") == "Available"


async def _waiting(machine: Machine, path: str) -> int:
    if path != RESERVATIONS:
        return await machine.api.unbound(path)
    items = (await machine.api.get(f"{path}?resourceVersion=0"))["items"]
    return sum(item.get("status", {}).get("phase") != "Available" for item in items)


async def _until_events_stop(machine: Machine, began: float) -> float:
    """Wait until no new event is written, and return the time until the last one in seconds."""
    last, changed, same = -1, began, 0
    while same < EVENTS_STILL_LOOKS:
        found = await machine.api.count(EVENTS)
        if found == last:
            same += 1
        else:
            last, changed, same = found, time.monotonic(), 0
        await asyncio.sleep(EVENT_LOOK_SECONDS)
    return changed - began


async def clear(machine: Machine) -> None:
    """Delete the pods, Reservations and events of an earlier run; the initial pods stay."""
    for path in (PODS, RESERVATIONS, EVENTS):
        await machine.api.clear(path)


async def clear_all(machine: Machine) -> None:
    """Delete the pods, Reservations and events of earlier rows."""
    await clear(machine)
    for path in (INITIAL_PODS, INITIAL_EVENTS):
        await machine.api.clear(path)
