"""Facts of an aggregate that many pods share are read for a bounded time, as `koord explain pod` does."""

from datetime import timedelta

import pytest
from koordcore.bus.factory import BusSettings, bootstrap_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import COSTS, DRY_RUNS, DeletionCostsCarriedOut
from koordcore.events.envelope import Draft, Origin
from koordcore.ports.eventlog import Appended
from koordctl.access.log import open_log

pytestmark = pytest.mark.nats
NOW = "2026-01-01T00:00:00.000000Z"


async def written(url: str, count: int) -> None:
    """Write facts about deletion costs to a new log."""
    settings = BusSettings(urls=(url,), cluster="dev")
    await bootstrap_bus(settings)
    async with open_bus(settings) as bus:
        for last in range(count):
            draft = Draft(COSTS, DeletionCostsCarriedOut(refused={"u": str(last)}), last)
            origin = Origin(causation_id=f"c-{last}", correlation_id="c", actor="test", occurred_at=NOW)
            assert isinstance(await bus.events.append(CATALOGUE.seal([draft], origin)), Appended)


async def test_facts_older_than_the_time_are_left_out(
    fresh_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(fresh_nats_server.url, 4)
    monkeypatch.setenv("KOORD_NATS", fresh_nats_server.url)
    week, nothing = timedelta(days=7), timedelta(0)
    async with open_log() as log:

        async def read(time: timedelta, after: int = 0, upto: int | None = None) -> list[int]:
            return [each.seq for each in await log.recent(COSTS, time, after=after, upto=upto)]

        assert await read(week) == [1, 2, 3, 4]
        assert await read(week, after=2) == [3, 4]
        assert await read(week, after=1, upto=3) == [2, 3]
        assert await read(nothing) == [4]
        assert await read(nothing, upto=3) == [3]
        assert await log.recent(DRY_RUNS, week) == []
