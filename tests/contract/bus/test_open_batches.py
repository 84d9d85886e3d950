"""Whoever may append facts can hold batches open, and the server refuses those of others. The writer says so."""

import logging

import pytest
from koordcore.bus.client.wire import encode_headers, hpub
from koordcore.bus.factory import bus_on
from koordcore.bus.metrics import BusMetrics
from koordcore.bus.names import BusNames
from koordcore.bus.setup.manifest import BOOTSTRAP, OPERATOR, SCHEDULER
from koordcore.events.node_ledger import NodeResourcesReturned
from koordcore.events.pod import PodReleased
from koordcore.ports.eventlog import Appended
from support.bus.bus_worlds import sealed
from support.bus.guarded import Guarded
from support.servers import server_directory
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.nats, pytest.mark.slow]

MORE_THAN_THE_SERVER_KEEPS_OPEN = 60  # It keeps 50


class Refusals(BusMetrics):
    count = 0

    def batch_refused(self) -> None:
        self.count += 1


async def test_a_writer_names_open_batches_of_others_and_appends_when_the_server_has_dropped_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "koordcore.bus")
    names, refusals = BusNames("batches"), Refusals()
    release = PodReleased(namespace="d", name="p", node="n1", reason="deleted")
    both = [sealed("pod", "p1", release), sealed("node", "n1", NodeResourcesReturned(pods=[]))]
    with server_directory() as directory:
        server = Guarded(directory, names, (BOOTSTRAP, SCHEDULER, OPERATOR))
        await server.start()
        try:
            async with server.connected("operator") as attacker, server.connected("scheduler") as scheduler:
                for number in range(MORE_THAN_THE_SERVER_KEEPS_OPEN):
                    opens = encode_headers({"Nats-Batch-Id": f"open{number}", "Nats-Batch-Sequence": "1"})
                    attacker.write(hpub(f"{names.prefix('ev')}fold.x", "", opens, b"{}"))
                await attacker.client.flush()
                events = bus_on(scheduler, names, metrics=refusals).events
                assert isinstance(await events.append(both, deadline=DEADLINE_SECONDS), Appended)
                assert refusals.count >= 1
                assert "atomic batches are refused because too many others are open" in caplog.text
        finally:
            await server.kill()
