"""`koord verify` on a real log with a manager and a projector: it finds changed rows and halted folds, in time."""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import httpx
import psycopg
import pytest
from koord_manager.compose import assemble
from koord_manager.settings import ManagerSettings
from koord_projector.compose import assemble as assemble_projector
from koord_projector.settings import ProjectorSettings
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.bus.read.stream_reader import api, stream_info
from koordcore.bus.setup.streams import StreamSizes
from koordcore.embedded.nats import NatsServer
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.ports.eventlog import Appended
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from koordctl.access.log import LogTrouble
from koordctl.replay.verify import Verification, verify_now
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.nats, pytest.mark.postgres]

NODES = 5


class World(NamedTuple):
    bus: Bus
    dsn: str
    manager: Shell[ManagerSettings]
    projector: Shell[ProjectorSettings]

    async def verified(self, seconds: float = DEADLINE_SECONDS) -> Verification:
        return await verify_now(self.bus, manager=self.manager.http.url, seconds=seconds, tables=True)


@asynccontextmanager
async def world(url: str, dsn: str, cluster: str) -> AsyncGenerator[World]:
    """A manager and a projector on a log with some nodes."""
    settings = BusSettings(urls=(url,), cluster=cluster)
    sizes = StreamSizes(**dict.fromkeys(StreamSizes.__dataclass_fields__, 16 * 1024 * 1024))
    await bootstrap_bus(settings, sizes=sizes)
    async with open_bus(settings) as bus:

        async def manager(shell: Shell[ManagerSettings]) -> None:
            assemble(shell, bus, SoleLeader("test"))

        async def projector(shell: Shell[ProjectorSettings]) -> None:
            assemble_projector(shell, bus)

        asked = ManagerSettings.load(["--log-level=error", f"--cluster={cluster}"], {})
        wanted = ProjectorSettings.model_validate({"dsn": dsn, "cluster": cluster, "log_level": "error"})
        async with (
            running_service(asked, manager) as of_manager,
            running_service(wanted, projector) as of_projector,
            httpx.AsyncClient(base_url=of_manager.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
        ):
            await until(lambda: of_manager.health.is_ready() and of_projector.health.is_ready())
            for number in range(NODES):
                amounts = {"cpu": 4, "memory": "8Gi"}
                node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
                body = json.dumps({**node, "status": {"capacity": amounts, "allocatable": amounts}})
                assert (await client.post("/v1/apply", content=body)).status_code == 200
            yield World(bus, dsn, of_manager, of_projector)


@pytest.mark.deep
async def test_a_changed_row_and_a_halted_fold_are_no_equal_states(nats_server: NatsServer, postgres_dsn: str) -> None:
    async with world(nats_server.url, postgres_dsn, "verified") as it:
        found = await it.verified()
        assert (found.equal, found.differing_tables, found.behind) == (True, [], [])
        assert found.tables is not None
        assert {each.table for each in found.tables.tables if each.rows} >= {"events", "aggregates", "node_versions"}
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute("UPDATE events SET actor = 'nobody' WHERE seq = 2")
        found = await it.verified()
        assert found.equal, "the states are those of before"
        assert found.differing_tables == [
            f"events: at positions 0 to 999: some of {found.position} rows have another content"
        ]

        headers = {"Nats-Msg-Id": "poison-1", "Koord-Type": "NodeSpecAdded", "Koord-Schema": "1"}
        poison = NewEvent(AggregateRef("nodespec", "evil"), headers, b'{"object": "not a node"}', 0)
        stored = await it.bus.events.append([poison])
        assert isinstance(stored, Appended)
        await until(lambda: not it.manager.health.is_ready() and not it.projector.health.is_ready())
        found = await it.verified()
        assert found.equal, "both have halted at the same position"
        end = f"compared up to {stored.last_seq - 1} of {stored.last_seq}"
        manager, projector = found.behind
        assert manager.startswith(f"{end}; manager halted before event {stored.last_seq}")
        assert projector.startswith(f"{end}; projector halted before event {stored.last_seq}")


async def test_a_log_that_is_shorter_than_the_tables_is_an_error_in_time(
    nats_server: NatsServer, postgres_dsn: str
) -> None:
    async with world(nats_server.url, postgres_dsn, "shorter") as it:
        assert it.bus.connection is not None
        assert (await it.verified()).equal
        config = (await stream_info(it.bus.connection, it.bus.names.ev) or {})["config"]
        await api(it.bus.connection, f"$JS.API.STREAM.DELETE.{it.bus.names.ev}", b"")
        await api(it.bus.connection, f"$JS.API.STREAM.CREATE.{it.bus.names.ev}", json.dumps(config).encode())
        began = time.monotonic()
        with pytest.raises(LogTrouble, match=r"the log ends at 0, and the (manager|projector) has folded facts up to"):
            await it.verified(20.0)
        assert time.monotonic() - began < 20.0
