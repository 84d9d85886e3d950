"""Whether a workload did what it is about: a fast placement that breaks its constraint is none.

Each check raises `NotWhatItIsAbout`; a row that fails it has no result.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from bench.scheduler_perf.cluster import LOOK_SECONDS, Cluster, Placement
from bench.scheduler_perf.objects import ZONES, node_name, zone_of
from koordcore.events.envelope import AggregateRef

FOLLOWS_SECONDS = 10.0
"""For what comes a moment after the last placement: a status, the place of a preemptor."""


class NotWhatItIsAbout(Exception):
    """The placements are not those of this workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a check looks at: the cluster still running, and what was placed."""

    cluster: Cluster
    initial: Sequence[Placement]
    measured: Sequence[Placement]


Check = Callable[[Run], Awaitable[None]]


async def nothing(_run: Run) -> None:
    """Every placement is as good as another."""


async def one_per_node(run: Run) -> None:
    """No node has two of the pods."""
    node, pods = Counter(placement.node for placement in (*run.initial, *run.measured)).most_common(1)[0]
    _require(pods == 1, f"{pods} pods that keep apart are on {node}")


def in_zones(*zones: str) -> Check:
    """Every measured pod is in one of the zones."""

    async def check(run: Run) -> None:
        outside = [placement.uid for placement in run.measured if zone_of(placement.node) not in zones]
        _require(not outside, f"{len(outside)} pods are outside of {zones}")

    return check


def spread_over_zones(skew: int) -> Check:
    """The measured pods of two zones differ by at most the skew."""

    async def check(run: Run) -> None:
        counts = Counter(zone_of(placement.node) for placement in run.measured)
        found = max(counts.values()) - min(counts.get(zone, 0) for zone in ZONES)
        _require(found <= skew, f"the skew is {found}, more than {skew}")

    return check


async def named_node(run: Run) -> None:
    """Every pod is on the node that it names."""
    wrong = [one.uid for one in run.measured if one.node != node_name(int(one.uid.rpartition("-")[2]) // 2)]
    _require(not wrong, f"{len(wrong)} pods are not on the node that they name")


async def refused_some(run: Run) -> None:
    """The large pods were tried and found no node."""
    values = await run.cluster.metrics()
    name = "scheduler_schedule_attempts_total"
    refused = sum(value for (metric, labels), value in values.items() if metric == name and '"unsch' in labels)
    _require(refused > 0, "no attempt failed")


async def preempted(run: Run) -> None:
    """Victims were evicted, and a preemptor got their place."""
    ref = AggregateRef("pod", "preemptor-000000")

    async def is_placed() -> bool:
        return any(stored.type == "PodPlaced" for stored in await run.cluster.bus.events.read_aggregate(ref))

    placed = await _within(FOLLOWS_SECONDS, is_placed)
    _require(await run.cluster.count("eviction") > 0, "nothing was evicted")
    _require(placed, "the first preemptor was not placed")


async def gangs_were_whole(run: Run) -> None:
    """The gangs were placed as such: the log says so of each."""
    gangs: set[str] = set()
    head = (await run.cluster.bus.events.head()).last_seq
    async for batch in run.cluster.bus.events.history(0, head, kinds=("gang",)):
        gangs.update(stored.ref.id for stored in batch if stored.type == "GangPlaced")
    expected = len(run.measured) // 8
    _require(len(gangs) == expected, f"{len(gangs)} of {expected} gangs were placed as gangs")


class _Based(msgspec.Struct):
    obs: int = 0


class _Explained(msgspec.Struct):
    based_on: _Based


class _Placed(msgspec.Struct):
    explanation: _Explained


async def quotas_and_loads_were_read(run: Run) -> None:
    """The placements were decided on load reports, and the quotas say what is used of them."""
    last = await run.cluster.bus.events.last_of(AggregateRef("pod", run.measured[-1].uid))
    assert last is not None, "it was placed"
    observed = msgspec.json.decode(last.body, type=_Placed).explanation.based_on.obs
    _require(observed > 0, "no load report was read before the last placement")

    async def is_said() -> bool:
        return await run.cluster.count("quota") > 0

    _require(await _within(FOLLOWS_SECONDS, is_said), "the status of no quota was computed")


async def _within(seconds: float, holds: Callable[[], Awaitable[bool]]) -> bool:
    """Whether something holds now or soon."""
    end = time.monotonic() + seconds
    while not await holds():
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotWhatItIsAbout(otherwise)
