"""`PUT /debug/flags/v` changes the verbosity of a running process's log, as Kubernetes' components do."""

from typing import Final, Literal

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koordcore.service.telemetry.logging import set_level
from koordcore.values.invalid import InvalidInput

DEBUG_VERBOSITY: Final = 4
"""Least verbosity at which everything is logged."""


def level_of(verbosity: str) -> Literal["debug", "info"]:
    """Return the level of the log for a verbosity: `debug` from 4 on.

    Args:
        verbosity: Text of a number, 0 or greater.

    Raises:
        InvalidInput: The text is no such number.
    """
    if not verbosity.strip().isdecimal():
        raise InvalidInput("a number, 0 or greater", verbosity, "v")
    return "debug" if int(verbosity) >= DEBUG_VERBOSITY else "info"


async def _set_verbosity(request: Request) -> Response:
    """Set the verbosity that the body of a request has."""
    verbosity = (await request.body()).decode(errors="replace")
    set_level(level_of(verbosity))
    return PlainTextResponse(f"successfully set v to {verbosity.strip()}")


VERBOSITY: Final = Route("/debug/flags/v", _set_verbosity, methods=["PUT"])
"""For services that have no other debug flags."""
