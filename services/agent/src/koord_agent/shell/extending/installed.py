"""Load extensions of installed packages, enable their strategies, and serve their HTTP pages on the agent's port.

Each page has a thread of its own, which answers one request after the other.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from koordcore.service.telemetry.logging import Logger
from koordcore.values.invalid import InvalidInput
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koord_agent.domain.extending.extension_points import HttpHandler, HttpReply, HttpRequest, Point
from koord_agent.domain.extending.extensions import ExtensionFailed, Extensions
from koord_agent.domain.failure import failure

ENTRY_POINTS: Final = "koord_agent.extensions"
"""Entry point group of functions that take an `Extensions` and register extensions."""


def installed_extensions(logger: Logger, switches: tuple[str, ...] = ()) -> Extensions:
    """A package that fails is logged, counted and left out. Switches are `<strategy>=true|false`.

    Raises:
        InvalidInput: Two packages use the same name, or a switch names an unknown strategy (unless a package failed).
    """
    extensions = Extensions()
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        more = Extensions()
        try:
            _registering(entry)(more)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others must not keep a node unprotected
            extensions.failures[Point.PACKAGE, entry.name] += 1
            reason = failure(f"{Point.PACKAGE} {entry.name}", error)
            logger.error("extension_failed", point=str(Point.PACKAGE), name=entry.name, reason=reason)
            continue
        extensions.include(more)
    wanted = dict(_switch(text) for text in switches)
    if extensions.failures:
        missing = sorted(set(wanted) - set(extensions.strategies))
        for name in missing:
            logger.error("strategy_missing", strategy=name, reason="a package could not be loaded")
        wanted = {name: on for name, on in wanted.items() if name not in missing}
    extensions.switch(wanted)
    return extensions


def _registering(entry: EntryPoint) -> Callable[[Extensions], object]:
    register: object = entry.load()
    if not callable(register):
        raise InvalidInput("a function that takes Extensions", entry.value, f"entry point {entry.name}")
    return register


def _switch(text: str) -> tuple[str, bool]:
    name, equals, value = text.partition("=")
    if not equals or value not in ("true", "false"):
        raise InvalidInput("<strategy>=true or <strategy>=false", text, "qos-extension-plugins")
    return name, value == "true"


def extension_routes(extensions: Extensions, logger: Logger) -> list[Route]:
    """Status 500 has the reason if a handler fails, takes too long or is still answering another request."""
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
