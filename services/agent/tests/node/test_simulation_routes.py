"""The load of simulated pods can be turned up and down while they run; what makes no sense is refused."""

import httpx
import pytest
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koord_agent.simulator.routes import simulation_routes
from starlette.applications import Starlette


@pytest.fixture
def fleet() -> SimulatedFleet:
    return SimulatedFleet([SimulatedNode(name="n", cpu_milli=8_000, memory_bytes=1 << 34)])


def client_of(fleet: SimulatedFleet) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=Starlette(routes=simulation_routes(fleet)))
    return httpx.AsyncClient(transport=transport, base_url="http://agent")


async def test_load_is_set_and_told(fleet: SimulatedFleet) -> None:
    async with client_of(fleet) as client:
        assert (await client.get("/simulation")).json() == {"latencySensitiveLoad": 1.0, "bestEffortLoad": 1.0}
        assert (await client.put("/simulation", json={"bestEffortLoad": 4})).json()["bestEffortLoad"] == 4.0
    assert (fleet.ls_load, fleet.be_load) == (1.0, 4.0)


@pytest.mark.parametrize("body", ["", "{", '{"bestEffortLoad": "much"}', '{"bestEffortLoad": -1}', '{"load": 2}'])
async def test_what_is_no_load_changes_nothing(fleet: SimulatedFleet, body: str) -> None:
    async with client_of(fleet) as client:
        assert (await client.put("/simulation", content=body)).status_code == 400
    assert (fleet.ls_load, fleet.be_load) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("devices", {"node": "g", "type": "rdma", "minor": 1, "fault": "PortInactive"}, 200),
        ("devices", {"node": "g", "minor": 4, "fault": "Xid79"}, 404),
        ("devices", {"node": "x", "minor": 0, "fault": "Xid79"}, 404),
        ("devices", {"node": "g", "type": "fpga", "minor": 0}, 400),
        ("inventory", {"node": "g", "found": False}, 200),
        ("inventory", {"node": "x", "found": False}, 404),
        ("inventory", {"node": "g"}, 400),
    ],
)
async def test_devices_fail_and_vanish_by_request(path: str, body: dict[str, object], status: int) -> None:
    fleet = SimulatedFleet(
        [SimulatedNode(name="g", cpu_milli=8_000, memory_bytes=1 << 34, gpus=4, gpu_model="T4", rdma_functions=1)]
    )
    async with client_of(fleet) as client:
        assert (await client.put(f"/simulation/{path}", json=body)).status_code == status
        hardware = fleet.host("g").hardware
        assert bool(hardware.faults) == (status == 200 and path == "devices")
        assert hardware.are_gone == (status == 200 and path == "inventory")
        for undo, change in (("devices", {"fault": ""}), ("inventory", {"found": True})):
            if undo == path and status == 200:
                await client.put(f"/simulation/{path}", json={**body, **change})
        assert (hardware.faults, hardware.are_gone) == ({}, False)
