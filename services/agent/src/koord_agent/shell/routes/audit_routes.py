"""GET /events: pages of the audit log over HTTP.

Source: agent spec, 19.
"""

from collections.abc import Callable

from koordcore.values import codec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koord_agent.domain.reporting.audit import BadRequest
from koord_agent.shell.store.audit_log import AuditLog, AuditQueries, UnknownToken, text_of

NEXT_PAGE_TOKEN = "Next-Page-Token"  # noqa: S105 - a header's name


def audit_routes(log: AuditLog, queries: AuditQueries, monotonic: Callable[[], float]) -> list[Route]:
    """Return the route GET /events.

    Status 200 has text lines, or with `Accept: application/json` an object {"NextPageToken", "Events"}. Status 400
    means a wrong size, 409 an unknown or closed token.
    """

    async def events(request: Request) -> Response:
        parameters = request.query_params
        log.flush()  # what happened a moment ago is what is asked for
        try:
            page = queries.page(parameters.get("size", ""), parameters.get("pageToken", ""), monotonic())
        except BadRequest as error:
            return PlainTextResponse(f"{error}\n", status_code=400)
        except UnknownToken as error:
            return PlainTextResponse(f"{error.args[0]}\n", status_code=409)
        if request.headers.get("accept", "") == "application/json":
            body = codec.encode({"NextPageToken": page.next_token, "Events": page.events})
            return Response(body, media_type="application/json")
        headers = {NEXT_PAGE_TOKEN: page.next_token} if page.next_token else {}
        return PlainTextResponse(text_of(page.events), headers=headers)

    return [Route("/events", events, methods=["GET"])]
