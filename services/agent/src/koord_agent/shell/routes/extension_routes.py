"""HTTP pages of installed packages on the agent's port: `extension_points.HttpHandler`.

Each page has a thread of its own, which answers one request after the other.
"""

import asyncio
from functools import partial

from koordcore.service.telemetry.logging import Logger
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koord_agent.domain.extending.extension_points import HttpHandler, HttpReply, HttpRequest, Point
from koord_agent.domain.extending.extensions import ExtensionFailed, Extensions


def extension_routes(extensions: Extensions, logger: Logger) -> list[Route]:
    """Return the routes of all HTTP handlers of extensions.

    Status 500 has the reason if a handler fails, takes too long or is still answering another request.
    """
    return [
        Route(path, partial(_answer, extensions, handler, logger), methods=["GET", "POST"])
        for path, handler in sorted(extensions.http.items())
    ]


async def _answer(extensions: Extensions, handler: HttpHandler, logger: Logger, request: Request) -> Response:
    path = request.url.path
    asked = HttpRequest(method=request.method, path=path, query=dict(request.query_params), body=await request.body())

    def answer() -> HttpReply:
        reply = handler(asked)
        Response(reply.body, status_code=reply.status, media_type=reply.content_type)
        return reply

    try:
        reply = await asyncio.to_thread(extensions.call, Point.HTTP, path, answer)
    except ExtensionFailed as failed:
        logger.warning("extension_failed", point=str(Point.HTTP), name=path, reason=str(failed))
        return PlainTextResponse(f"{failed}\n", status_code=500)
    return Response(reply.body, status_code=reply.status, media_type=reply.content_type)
