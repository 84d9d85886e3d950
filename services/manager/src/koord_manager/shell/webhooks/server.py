"""The HTTPS server of the webhooks, on its own port.

It serves the paths of the webhooks whose gates are on, `/convert` for ConversionReviews, and `/elasticQuota` with the
quota tree as JSON. `keeper` maintains its certificate. Every replica answers after it has folded the log, whether it
leads or not.

Source:
    manager spec, 2.1, 7.1
"""

from collections.abc import Callable
from typing import Any, cast

from koordcore.service.web.http_guard import JsonPost
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import format_resources
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from koord_manager.domain.admission.context.quota import Quota
from koord_manager.domain.admission.webhooks import served
from koord_manager.shell.webhooks.handlers import Desk, Kind, review

_JSON = "application/json"


class WebhookRoutes:
    """The HTTP routes of the webhook server.

    Args:
        unready: Returns the reason why requests cannot be answered yet, or None if they can.
    """

    def __init__(self, desk: Desk, unready: Callable[[], str | None]) -> None:
        self._desk = desk
        self._unready = unready

    def posts(self) -> dict[str, JsonPost]:
        webhooks = served(self._desk.options)
        return {webhook.path: _Review(self._desk, webhook.kind, self._unready) for webhook in webhooks}

    def routes(self) -> list[Route]:
        """Return the routes besides the admission webhooks: `/convert` and `/elasticQuota`."""
        return [
            Route("/convert", self.convert, methods=["POST"]),
            Route("/elasticQuota", self.quotas, methods=["GET"]),
        ]

    async def convert(self, request: Request) -> Response:
        """Handle `POST /convert`: change only `apiVersion`, because all versions of a kind have the same shape."""
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
        del request
        tree = self._desk.view.admission.quotas
        return Response(codec.encode({quota.name: _shown(quota) for quota in tree.all()}), media_type=_JSON)


class _Review:
    def __init__(self, desk: Desk, kind: Kind, unready: Callable[[], str | None]) -> None:
        self.__name__ = kind  # what metrics call it
        self._desk = desk
        self._kind: Kind = kind
        self._unready = unready

    async def __call__(self, body: bytes) -> bytes:
        """Return the answer to one AdmissionReview.

        Raise HTTPException with status 503 if requests cannot be answered yet.
        """
        reason = self._unready()
        if reason is not None:
            raise HTTPException(503, f"{reason}\n")
        return await review(self._desk, self._kind, body)


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
