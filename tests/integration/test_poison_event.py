"""A poison event in the real log: the service lives, stays readable, says why it is not ready, and goes on when an
operator records that the event is to be passed over.
"""

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from koord_manager.compose import assemble
from koord_manager.settings import ManagerSettings
from koordcore.bus.factory import BusSettings, bootstrap_bus, open_bus
from koordcore.bus.setup.streams import StreamSizes
from koordcore.embedded.nats import NatsServer
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.ports.eventlog import Appended
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from support.bus.installed_server import koord
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.nats]

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"capacity": {"cpu": 4, "memory": "8Gi"}},
}


async def ready(client: httpx.AsyncClient, status: int) -> str:
    """The readiness page once it has this status."""

    async def page() -> str | None:
        found = await client.get("/readyz")
        return found.text if found.status_code == status else None

    return await until(page)


async def test_a_service_survives_a_poison_event_and_goes_on_after_a_recorded_skip(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    settings = BusSettings(urls=(nats_server.url,), cluster="poison")
    sizes = StreamSizes(**dict.fromkeys(StreamSizes.__dataclass_fields__, 16 * 1024 * 1024))
    await bootstrap_bus(settings, sizes=sizes)
    async with open_bus(settings) as bus:

        async def compose(shell: Shell[ManagerSettings]) -> None:
            assemble(shell, bus, SoleLeader("test"))

        manager_settings = ManagerSettings.load(["--log-level=error", "--cluster=poison"], {})
        async with (
            running_service(manager_settings, compose) as shell,
            httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
        ):
            await ready(client, 200)
            assert (await client.post("/v1/apply", content=json.dumps(NODE))).status_code == 200

            # a broken writer
            headers = {"Nats-Msg-Id": "poison-1", "Koord-Type": "NodeSpecAdded", "Koord-Schema": "1"}
            poison = NewEvent(AggregateRef("nodespec", "evil"), headers, b'{"object": "not a node"}', 0)
            stored = await bus.events.append([poison])
            assert isinstance(stored, Appended)

            page = await ready(client, 503)
            assert f"halted before event {stored.last_seq}" in page
            assert (await client.get("/healthz")).status_code == 200
            nodes = (await client.get("/v1/objects/nodes")).json()["items"]
            assert [node["metadata"]["name"] for node in nodes] == ["n1"]

            words = ("bus", "skip", "manager", str(stored.last_seq), "--reason", "broken writer")
            log = {"KOORD_NATS": nats_server.url, "KOORD_CLUSTER": "poison", "KOORD_VAR": str(tmp_path)}
            said = await asyncio.to_thread(koord, *words, env={**log, "KOORD_MANAGER": shell.http.url})
            assert said.endswith(f": manager skips {stored.last_seq}\n")

            await ready(client, 200)
            changed = {**NODE, "metadata": {"name": "n1", "labels": {"zone": "a"}}}
            answer = (await client.post("/v1/apply", content=json.dumps(changed))).json()
            assert answer["results"][0]["action"] == "configured"
