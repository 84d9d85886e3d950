"""What `koord up` and the demo tell the manager, and what they say if the log is full.

Nothing that somebody has changed since the last start is taken back.
"""

from pathlib import Path

import httpx
import pytest
from koord_manager.compose import assemble
from koord_manager.settings import ManagerSettings
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.embedded.errors import EmbeddedError
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from koordctl.demo.submitting import delete_pods
from koordctl.demo.trace import NAMESPACE, TracePod, pod_manifest
from koordctl.stack import nodes as embedded_nodes
from koordctl.stack.nodes import register, simulated_nodes, submit
from support.running_service import running_service
from support.until import DEADLINE_SECONDS

LABELED = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-1", "labels": {"rack": "a"}}}


async def compose(shell: Shell[ManagerSettings]) -> None:
    assemble(shell, memory_bus(), SoleLeader("test"))


@pytest.mark.parametrize("change", ["nothing", "more room in the file", "deleted"])
async def test_a_later_start_registers_what_differs_from_the_last_one(tmp_path: Path, change: str) -> None:
    nodes, registered = simulated_nodes("2"), tmp_path / "registered.json"
    settings = ManagerSettings.load(["--log-level=error"], {})
    async with (
        running_service(settings, compose) as shell,
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
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


async def test_a_full_log_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_nodes, "PATIENCE_SECONDS", 0.0)
    log = MemoryLog()

    async def compose_on_log(shell: Shell[ManagerSettings]) -> None:
        assemble(shell, memory_bus(log=log), SoleLeader("test"))

    pod = TracePod(name="p", cpu_milli=1000, memory_mib=1024, gpus=0, gpu_milli=0, models=(), qos="Guaranteed")
    full = r"^manager: \w+/{} failed: the log is full \(0 events\): enlarge it \(koord bus bootstrap --log-size\), or "
    async with (
        running_service(ManagerSettings.load(["--log-level=error"], {}), compose_on_log) as shell,
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        await submit(client, [pod_manifest(pod)])
        log.max_events = 0

        with pytest.raises(EmbeddedError, match=full.format("node-1")):
            await submit(client, [LABELED])
        with pytest.raises(EmbeddedError, match=full.format(pod.name)):
            await delete_pods(client, [pod])

        log.max_events = None
        await delete_pods(client, [pod])
        assert (await client.get(f"/v1/objects/Pod/{pod.name}?namespace={NAMESPACE}")).status_code == 404
