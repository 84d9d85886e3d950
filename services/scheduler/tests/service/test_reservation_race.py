"""Two scheduler processes that race for Reservations which may be taken once, on one server and on three (R1, R3)."""

from collections import Counter

import pytest
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin
from koordcore.events.objects import CustomObjectObserved, NodeSpecAdded, PodSpecAdded, custom_ref
from koordcore.ports.eventlog import Appended
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger, PodState, ReservationState
from koordcore.values.allocation import is_reservation
from support.bus.nats_cluster import NatsCluster
from support.scheduler.processes import SMALL, end, start
from support.scheduler.reservations import reservation, sums
from support.scheduler.scheduling import node, pod, with_metadata
from support.until import until

pytestmark = pytest.mark.nats

RESERVATIONS, OWNERS, NODES = 12, 40, 3


@pytest.fixture(params=["nats_server", pytest.param("nats_cluster", marks=pytest.mark.deep)], ids=["R1", "R3"])
def place(request: pytest.FixtureRequest) -> NatsServer | NatsCluster:
    return request.getfixturevalue(request.param)


@pytest.mark.deep
async def test_a_reservation_is_never_taken_twice(place: NatsServer | NatsCluster) -> None:
    replicas = 3 if isinstance(place, NatsCluster) else 1
    first = place.servers[0] if isinstance(place, NatsCluster) else place
    name = f"resv-race-r{replicas}"
    settings = BusSettings(urls=(first.url,), cluster=name)
    await bootstrap_bus(settings, sizes=SMALL, replicas=replicas)
    async with open_bus(settings) as bus:
        await _say(bus, *(("nodespec", f"n{number}", NodeSpecAdded(object=node(f"n{number}", cpu="32")))
                          for number in range(NODES)))  # fmt: skip
        both = [await start(first, name, "--leader-elect=false") for _ in range(2)]
        documents = [reservation(f"r{number}", {"cpu": "2"}, ttl="0s") for number in range(RESERVATIONS)]
        await _say(bus, *((*_ref_of(document), CustomObjectObserved(object=document)) for document in documents))
        await until(lambda: _are_placed(bus, [f"uid-r{number}" for number in range(RESERVATIONS)]))
        owners = [with_metadata(pod(f"p{number}", {"cpu": "1"}), labels={"app": "web"}) for number in range(OWNERS)]
        await _say(bus, *(("podspec", each.metadata.uid, PodSpecAdded(object=each)) for each in owners))
        await until(lambda: _are_placed(bus, [each.metadata.uid for each in owners]))
        await until(lambda: _have_succeeded(bus))
        assert [await end(one) for one in both] == [0, 0]
        state = await _fold(bus)
    taken = Counter(
        used.uid
        for uid, placed in state.of_kind(PodState).items()
        if (used := placed.allocation.reservation) is not None and not is_reservation(uid, placed.allocation)
    )
    assert len(taken) == RESERVATIONS
    assert set(taken.values()) == {1}
    for ledger in state.of_kind(NodeLedger).values():
        assert ledger.requested == sums(ledger)
    assert sum(ledger.requested["cpu"] for ledger in state.of_kind(NodeLedger).values()) == 1000 * OWNERS


def _ref_of(document: dict[str, dict[str, str]]) -> tuple[str, str]:
    ref = custom_ref("reservations", "", document["metadata"]["name"])
    return ref.kind, ref.id


async def _say(bus: Bus, *facts: tuple[str, str, Event]) -> None:
    """Append facts about new objects at once."""
    drafts = [Draft(AggregateRef(kind, id_), event, 0) for kind, id_, event in facts]
    origin = Origin(
        causation_id=f"{drafts[0].ref}", correlation_id="all", actor="test", occurred_at="2026-01-01T00:00:00.000000Z"
    )
    assert isinstance(await bus.events.append(CATALOGUE.seal(drafts, origin)), Appended)


async def _fold(bus: Bus) -> ClusterState:
    state = ClusterState()
    head = await bus.events.head()
    async for batch in bus.events.history(0, head.last_seq):
        for stored in batch:
            state.apply(stored)
    return state


async def _are_placed(bus: Bus, uids: list[str]) -> bool:
    placed = (await _fold(bus)).of_kind(PodState)
    return all(uid in placed and (placed[uid].node or placed[uid].placements) for uid in uids)


async def _have_succeeded(bus: Bus) -> bool:
    state = await _fold(bus)
    ended = [each for each in state.of_kind(ReservationState).values() if each.phase == "Succeeded"]
    held = [uid for ledger in state.of_kind(NodeLedger).values() for uid in ledger.pods if uid.startswith("uid-r")]
    return len(ended) == RESERVATIONS and not held
