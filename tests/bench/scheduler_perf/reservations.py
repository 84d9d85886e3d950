"""Workloads with Reservations: owners that take them, plain pods beside them, and Reservations that are placed.

Each is measured beside `basic`, one after the other in every run, so that the machine's other work changes both.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bench.scheduler_perf.checks import NotWhatItIsAbout
from bench.scheduler_perf.cluster import running_cluster, sealed
from bench.scheduler_perf.engine import Decisions
from bench.scheduler_perf.objects import PodTemplate
from bench.scheduler_perf.throughput import Throughput, figures
from bench.scheduler_perf.workloads import BASIC, BY_KEY, MakePod, Sized
from koordcore.events.envelope import NewEvent
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.objects import Pod
from koordcore.service.run import collect_rarely
from support.scheduler.reservations import reservation
from support.scheduler.scheduling import Scheduler, SmallLog

OWNERS: Final = PodTemplate(labels={"app": "web"})
BASIC_KEY: Final = "basic"


def _owner_pod(uid: str, _number: int) -> Pod:
    return OWNERS.pod(uid)


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """A workload with Reservations.

    reservations  how many, all for pods labelled `app: web`
    measured      how many pods are measured; 0: the Reservations themselves are
    pod           the pods that are measured
    once          whether the first owner consumes a Reservation; it ends then, which is three more facts
    takes         whether the last of them has to have taken from a Reservation
    target        of row `basic` in the same run
    is_cost       whether CPU time is compared, where less is better
    """

    key: str
    title: str
    reservations: int
    measured: int = 0
    pod: MakePod = BASIC
    once: bool = False
    takes: bool = False
    target: float
    is_cost: bool = False


RESERVED: Sequence[Reserved] = (
    Reserved(
        key="reservation-owners",
        title="owner pods by label, one Reservation a node",
        reservations=5000,
        measured=5000,
        pod=_owner_pod,
        takes=True,
        target=0.5,
    ),
    Reserved(
        key="reservation-once",
        title="owner pods by label, Reservations that end with them",
        reservations=5000,
        measured=5000,
        pod=_owner_pod,
        once=True,
        takes=True,
        target=0.5,
    ),
    Reserved(
        key="reservation-plain",
        title="plain pods beside 5,000 Reservations",
        reservations=5000,
        measured=5000,
        target=1.05,
        is_cost=True,
    ),
    Reserved(key="reservation-placing", title="Reservations being placed", reservations=2000, target=0.7),
)


def reservations(count: int, *, owners: int = 1, once: bool = False) -> list[NewEvent]:
    """Reservations of the amounts of some pods. once: the first owner consumes them."""
    amounts = {"cpu": f"{100 * owners}m", "memory": f"{500 * owners}Mi"}
    return [_observed(reservation(f"r-{number:06d}", amounts, allocateOnce=once)) for number in range(count)]


def _observed(document: dict[str, Any]) -> NewEvent:
    ref = custom_ref("reservations", "", document["metadata"]["name"])
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    document["metadata"]["creationTimestamp"] = created
    return sealed(ref, CustomObjectObserved(object=document))


def _uid(event: NewEvent) -> str:
    return f"uid-{event.ref.id.partition('=')[2]}"


def basic_of(row: Reserved, scale: float) -> Sized:
    """Plain pods without Reservations, as many as the row measures."""
    return replace(BY_KEY[BASIC_KEY], measured=row.measured or row.reservations).at(scale)


async def run_reserved(row: Reserved, scale: float, *, profile: bool = False) -> Throughput:
    """Set a cluster up with its Reservations, and measure the pods, or the Reservations themselves.

    raises    NotPlaced, NotWhatItIsAbout
    """
    sized = basic_of(row, scale)
    async with running_cluster(profile=profile) as cluster:
        await cluster.create(sized.objects())
        documents = reservations(sized.count(row.reservations), once=row.once)
        measured, uids = documents, [_uid(event) for event in documents]
        if row.measured:
            after = (await cluster.bus.events.head()).last_seq
            await cluster.create(documents)
            await cluster.placed(uids, after=after)
            measured = replace(sized, workload=replace(sized.workload, pod=row.pod)).measured_pods()
            uids = [event.ref.id for event in measured]
        after = (await cluster.bus.events.head()).last_seq
        before = await cluster.effort()
        began_ns = time.time_ns()
        placing = asyncio.create_task(cluster.placed(uids, after=after))
        await cluster.create(measured)
        placed = await placing
        spent = await cluster.effort()
        if row.takes and not await cluster.took_from_reservation(uids[-1]):
            raise NotWhatItIsAbout("the last pod took nothing from a Reservation")
        return figures(began_ns, placed, before, spent, cluster.resident_mib())


def decide_beside(count: int, nodes: int, pods: int, *, owners: int) -> Decisions:
    """Time decisions for owner pods, in this process without a log.

    count     Reservations; each has room for so many `owners`
    """
    collect_rarely()
    log = SmallLog()
    scheduler = Scheduler(log)
    sized = replace(BY_KEY[BASIC_KEY], nodes=nodes, measured=pods, pod=_owner_pod).at(1.0)
    _say(log, sized.objects)
    _say(log, lambda: reservations(count, owners=owners))
    scheduler.run()
    _say(log, sized.measured_pods)
    scheduler.follow()
    began, began_cpu, decided = time.perf_counter(), time.process_time(), 0
    while scheduler.decide() is not None:
        decided += 1
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    assert decided == pods, f"{decided} of {pods} pods were decided"
    return Decisions(pods_per_second=decided / seconds, cpu_ms=1000 * cpu_seconds / decided)


def _say(log: SmallLog, made: Callable[[], list[NewEvent]]) -> None:
    stored = log.append(made())
    assert stored is not None, "the objects are new"
