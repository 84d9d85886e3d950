"""GET and PUT /simulation: load factors of the simulated pods of this process, the same on all nodes.

    {"latencySensitiveLoad": 1.0, "bestEffortLoad": 4.0}     factors on the usage of their profiles

PUT /simulation/devices: a GPU or RDMA adapter of one node fails, or is healthy again ("" = healthy).

    {"node": "a", "type": "gpu", "minor": 0, "fault": "Xid79"}

PUT /simulation/inventory: all devices of one node vanish, or are back.

    {"node": "a", "found": false}

A demo uses it to show a load peak with the same pods, with and without protection, and devices that fail.
"""

from typing import Literal

import msgspec
from koordcore.values import codec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koord_agent.simulator.host import SimulatedFleet

HIGHEST = 10.0


class Load(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Factors by which the CPU usage of all simulated pods is multiplied. An absent factor is 1."""

    latency_sensitive_load: float = 1.0
    best_effort_load: float = 1.0


class DeviceFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device of a simulated node that fails; an empty `fault` makes it healthy again."""

    node: str
    minor: int
    type: Literal["gpu", "rdma"] = "gpu"
    fault: str = ""


class Inventory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of the request that hides or shows the devices of a simulated node."""

    node: str
    found: bool


def simulation_routes(fleet: SimulatedFleet) -> list[Route]:
    """GET and PUT /simulation, PUT /simulation/devices and PUT /simulation/inventory.

    Status 400 means a malformed body, 404 an unknown node or device.
    """

    async def load(request: Request) -> Response:
        if request.method == "PUT":
            try:
                wanted = codec.decode(await request.body(), Load)
            except codec.DecodeError as error:
                return PlainTextResponse(f"{error}\n", status_code=400)
            for name, value in msgspec.to_builtins(wanted).items():
                if not 0 <= value <= HIGHEST:
                    return PlainTextResponse(f"{name}: must be 0 to {HIGHEST:g}, is {value}\n", status_code=400)
            fleet.ls_load, fleet.be_load = wanted.latency_sensitive_load, wanted.best_effort_load
        return Response(codec.encode(Load(fleet.ls_load, fleet.be_load)), media_type="application/json")

    async def fail(request: Request) -> Response:
        try:
            wanted = codec.decode(await request.body(), DeviceFault)
            hardware = fleet.host(wanted.node).hardware
        except codec.DecodeError as error:
            return PlainTextResponse(f"{error}\n", status_code=400)
        except KeyError:
            return _unknown_node()
        if not hardware.has(wanted.type, wanted.minor):
            return PlainTextResponse(f"minor: the node has no {wanted.type} {wanted.minor}\n", status_code=404)
        if wanted.fault:
            hardware.faults[wanted.type, wanted.minor] = wanted.fault
        else:
            hardware.faults.pop((wanted.type, wanted.minor), None)
        return Response(codec.encode(wanted), media_type="application/json")

    async def find(request: Request) -> Response:
        try:
            wanted = codec.decode(await request.body(), Inventory)
            fleet.host(wanted.node).hardware.are_gone = not wanted.found
        except codec.DecodeError as error:
            return PlainTextResponse(f"{error}\n", status_code=400)
        except KeyError:
            return _unknown_node()
        return Response(codec.encode(wanted), media_type="application/json")

    return [
        Route("/simulation", load, methods=["GET", "PUT"]),
        Route("/simulation/devices", fail, methods=["PUT"]),
        Route("/simulation/inventory", find, methods=["PUT"]),
    ]


def _unknown_node() -> Response:
    return PlainTextResponse("node: this process does not simulate it\n", status_code=404)
