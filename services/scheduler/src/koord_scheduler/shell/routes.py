"""What the scheduler shows of itself over HTTP: its queue, and its view of one node."""

from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from koord_scheduler.domain.state import SchedulerState

_QUEUE: Final = "/queue"
_NODE: Final = "/apis/v1/nodes/{node}"


def routes(state: SchedulerState) -> list[BaseRoute]:
    """`GET /queue` (pods per place, decisions not yet appended), `GET /apis/v1/nodes/:node` (the node as seen)."""

    async def queue(_: Request) -> Response:
        counts = {place.name.lower(): count for place, count in state.queue.counts().items()}
        return JSONResponse({**counts, "outbox": len(state.outbox), "position": state.position})

    async def node(request: Request) -> Response:
        name = request.path_params["node"]
        row = state.nodes.row(name)
        if row is None:
            return JSONResponse({"message": f"cannot find node {name}"}, status_code=404)
        nodes = state.nodes
        resources = [
            (resource, int(nodes.allocatable[column, row]), int(nodes.requested[column, row]))
            for column, resource in enumerate(nodes.resources)
        ]
        shown = [entry for entry in resources if entry[1] or entry[2]]
        return JSONResponse(
            {
                "node": name,
                "pods": sorted(state.ledgers.pods(name)),
                "allocatable": {resource: allocatable for resource, allocatable, _ in shown},
                "requested": {resource: requested for resource, _, requested in shown},
                "remaining": {resource: allocatable - requested for resource, allocatable, requested in shown},
                "nonZeroRequested": {"cpu": int(nodes.non_zero[0, row]), "memory": int(nodes.non_zero[1, row])},
            }
        )

    return [Route(_QUEUE, queue, methods=["GET"]), Route(_NODE, node, methods=["GET"])]
