"""A history is whole also when its consumer is on a server that is behind the leader."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest
from koordcore.bus.read.feed import Feed
from koordcore.bus.read.follower import Follower
from koordcore.bus.read.stream_reader import StreamReader
from koordcore.events.nodestate import PodsStarted
from koordcore.events.objects import NamespaceObserved
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import Namespace
from support.bus.bus_worlds import Place, opened, sealed
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.nats]


@pytest.fixture
async def place(nats_url: str) -> AsyncGenerator[Place]:
    async with opened(nats_url) as found:
        yield found


class Behind(Follower):
    """Its first consumers are made where the stream holds only events of some kinds yet, or none."""

    behind: list[Sequence[str]]

    async def _create_consumer(self, feed: Feed, position: int, kinds: Sequence[str] | None) -> int:
        return await super()._create_consumer(feed, position, self.behind.pop(0) if self.behind else kinds)


def behind(place: Place, *kinds: Sequence[str]) -> Behind:
    names, connection = place.bus.names, place.connection
    stream, prefix = names.stream_of("ev"), names.prefix("ev")
    follower = Behind(connection, stream=stream, prefix=prefix, reader=StreamReader(connection, stream, prefix))
    follower.behind = list(kinds)
    return follower


@pytest.mark.parametrize("behind_with", [[], [["nothing"]], [["nodestate"]], [["nothing"], ["nodestate"], ["nothing"]]])
@pytest.mark.parametrize(("kinds", "wanted"), [(None, range(1, 31)), (["namespace"], range(11, 31)), (["pod"], [])])
async def test_what_a_consumer_does_not_have_yet_is_waited_for(
    place: Place, behind_with: list[Sequence[str]], kinds: Sequence[str] | None, wanted: Sequence[int]
) -> None:
    first = [sealed("nodestate", f"n{number}", PodsStarted(pods=["p"])) for number in range(10)]
    then = [sealed("namespace", f"s{number}", NamespaceObserved(object=Namespace())) for number in range(20)]
    for events in (first, then):
        assert isinstance(await place.bus.events.append(events), Appended)

    seqs: list[int] = []
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for batch in behind(place, *behind_with).history(0, 30, kinds=kinds, batch=7):
            seqs += [event.seq for event in batch if kinds is None or event.ref.kind in kinds]

    assert seqs == list(wanted)
