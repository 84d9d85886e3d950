"""A gang whose placement is more than a server takes at once by default, one member for each of 2,000 nodes."""

import contextlib
from collections.abc import AsyncGenerator, Sequence

from koordcore.bus.factory import Bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, NewEvent, Origin
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded
from koordcore.ports.eventlog import MOST_AT_ONCE, Appended
from koordcore.protocol import keys
from koordcore.protocol.objects import Node
from support.scheduler.processes import cluster
from support.scheduler.scheduling import node, pod, with_metadata

MEMBERS = 2_000


def _host(number: int) -> Node:
    return node(f"n{number}", cpu="1")


def _facts() -> list[NewEvent]:
    """The nodes but the first, and the members."""
    gang = {keys.GANG_NAME: "g", keys.GANG_MIN_AVAILABLE: str(MEMBERS)}
    members = [with_metadata(pod(f"m{number}", {"cpu": "1"}), annotations=gang) for number in range(MEMBERS)]
    drafts = [
        Draft(AggregateRef("nodespec", f"n{number}"), NodeSpecAdded(object=_host(number)), 0)
        for number in range(1, MEMBERS)
    ]
    drafts += [Draft(AggregateRef("podspec", each.metadata.uid), PodSpecAdded(object=each), 0) for each in members]
    origin = Origin(causation_id="test", correlation_id="g", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    return CATALOGUE.seal(drafts, origin)


async def append(bus: Bus, events: Sequence[NewEvent]) -> None:
    for begin in range(0, len(events), MOST_AT_ONCE):
        assert isinstance(await bus.events.append(events[begin : begin + MOST_AT_ONCE]), Appended)


@contextlib.asynccontextmanager
async def all_but_one_member(server: NatsServer, name: str) -> AsyncGenerator[tuple[Bus, list[NewEvent]]]:
    """A cluster in which one member is missing, so that nobody may be placed; and the fact of this member."""
    events = _facts()
    async with cluster(server, name, [_host(0)]) as bus:
        await append(bus, events[:-1])
        yield bus, events[-1:]
