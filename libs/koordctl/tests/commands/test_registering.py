"""What `koord up` registers at each start: nothing that somebody has changed since the last one is taken back."""

from pathlib import Path

import httpx
import pytest
from koord_manager.compose import assemble
from koord_manager.settings import ManagerSettings
from koordcore.bus.factory import memory_bus
from koordcore.service.leader.sole_leader import SoleLeader
from koordcore.service.run import Shell
from koordctl.embedded.nodes import register, simulated_nodes, submit
from support.running_service import running_service

LABELED = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-1", "labels": {"rack": "a"}}}


async def compose(shell: Shell[ManagerSettings]) -> None:
    assemble(shell, memory_bus(), SoleLeader("test"))


@pytest.mark.parametrize("change", ["nothing", "more room in the file", "deleted"])
async def test_a_later_start_registers_what_differs_from_the_last_one(tmp_path: Path, change: str) -> None:
    nodes, registered = simulated_nodes("2"), tmp_path / "registered.json"
    settings = ManagerSettings.load(["--log-level=error"], {})
    async with (
        running_service(settings, compose) as shell,
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=20) as client,
    ):
        await register(shell.http.url, nodes, registered)
        await submit(client, [LABELED])
        again = simulated_nodes("2")
        if change == "more room in the file":
            again[0]["status"]["capacity"]["cpu"] = "32"
        if change == "deleted":
            assert (await client.post("/v1/delete", json={"kind": "Node", "name": "node-1"})).is_success

        await register(shell.http.url, again, registered)

        first = (await client.get("/v1/objects/Node/node-1")).json()
        assert first["status"]["capacity"]["cpu"] == ("32" if change == "more room in the file" else "16")
        if change == "nothing":
            assert first["metadata"]["labels"]["rack"] == "a"
        assert (await client.get("/v1/objects/Node/node-2")).is_success
