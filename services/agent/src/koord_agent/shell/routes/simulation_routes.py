"""GET and PUT /simulation: load factors of the simulated pods of this process, the same on all nodes.

    {"latencySensitiveLoad": 1.0, "bestEffortLoad": 4.0}     factors on the usage of their profiles

A demo uses it to show a load peak with the same pods, with and without protection.
"""

import msgspec
from koordcore.values import codec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koord_agent.shell.host.simulated import SimulatedFleet

HIGHEST = 10.0


class Load(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Factors on CPU usage. An absent factor is 1."""

    latency_sensitive_load: float = 1.0
    best_effort_load: float = 1.0


def simulation_routes(fleet: SimulatedFleet) -> list[Route]:
    """Return the route for simulated nodes. Status 400 means that a load is outside 0..10."""

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

    return [Route("/simulation", load, methods=["GET", "PUT"])]
