"""The HTTPS server of the webhooks: `koordcore.service.http` on its own port, with the certificate that `keeper` keeps.

    POST /mutate-..., /validate-...   AdmissionReview; only those whose gates are on
    POST /convert                     ConversionReview: versions of a kind have one shape, objects come back as they are
    GET  /elasticQuota                the quota tree as JSON

Every replica answers, whether it leads or not, once it has folded the log.

source    manager spec, 2.1, 7.1
"""

from collections.abc import Callable
from typing import Any, cast

from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import format_resources
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from koord_manager.domain.admission.quota import Quota
from koord_manager.domain.admission.webhooks import served
from koord_manager.shell.webhooks.handlers import Desk, Kind, review

_JSON = "application/json"


class WebhookRoutes:
    """The routes over a desk.

    unready    why requests cannot be answered yet; None when they can
    """

    def __init__(self, desk: Desk, unready: Callable[[], str | None]) -> None:
        self._desk = desk
        self._unready = unready

    def routes(self) -> list[Route]:
        """For the HTTPS server."""
        kinds: dict[str, Kind] = {webhook.path: webhook.kind for webhook in served(self._desk.options)}
        return [
            *(Route(path, _Review(self._desk, kind, self._unready), methods=["POST"]) for path, kind in kinds.items()),
            Route("/convert", self.convert, methods=["POST"]),
            Route("/elasticQuota", self.quotas, methods=["GET"]),
        ]

    async def convert(self, request: Request) -> Response:
        """Objects come back as they are: every kind is stored in one version and served in others of the same shape."""
        body = await request.body()
        try:
            asked = codec.decode(body, dict[str, Any])
            wanted = cast("dict[str, Any]", asked["request"])
            version = str(wanted["desiredAPIVersion"])
            objects = [{**entry, "apiVersion": version} for entry in cast("list[dict[str, Any]]", wanted["objects"])]
            uid = str(wanted["uid"])
        except (codec.DecodeError, RecursionError, KeyError, TypeError) as error:
            raise InvalidInput("a ConversionReview", str(error), "body") from error
        response = {"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}}
        answer = {"apiVersion": asked.get("apiVersion"), "kind": "ConversionReview", "response": response}
        return Response(codec.encode(answer), media_type=_JSON)

    async def quotas(self, request: Request) -> Response:
        """Every quota as admission sees it, by name."""
        del request
        tree = self._desk.view.admission.quotas
        return Response(codec.encode({quota.name: _shown(quota) for quota in tree.all()}), media_type=_JSON)


class _Review:
    """One webhook as an ASGI application: a review passes no more of the framework than it needs."""

    def __init__(self, desk: Desk, kind: Kind, unready: Callable[[], str | None]) -> None:
        self.__name__ = kind  # what metrics call it
        self._desk = desk
        self._kind: Kind = kind
        self._unready = unready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one review, then tells it: nobody waits for that."""
        reason = self._unready()
        if reason is not None:
            await PlainTextResponse(f"{reason}\n", 503)(scope, receive, send)
            return
        answered = await review(self._desk, self._kind, await Request(scope, receive).body())
        await Response(answered.body, media_type=_JSON)(scope, receive, send)
        if answered.telling is not None:
            await answered.telling()


def _shown(quota: Quota) -> dict[str, Any]:
    return {
        "namespace": quota.namespace,
        "parent": quota.parent,
        "isParent": quota.is_parent,
        "treeID": quota.tree_id,
        "namespaces": list(quota.namespaces),
        "min": format_resources(quota.min),
        "max": format_resources(quota.max),
        "guaranteed": format_resources(quota.guaranteed),
    }
