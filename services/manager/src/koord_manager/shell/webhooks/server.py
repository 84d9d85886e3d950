"""The HTTPS server of the webhooks, on its own port, with its certificate.

It serves the paths of the webhooks whose gates are on, `/convert` for ConversionReviews, and `/elasticQuota` with the
quota tree as JSON. `keeper` maintains its certificate. Every replica answers after it has folded the log, whether it
leads or not.

Source:
    manager spec, 2.1, 7
"""

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from koordcore.bus.factory import Bus
from koordcore.service.clock import SystemClock
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.web.http import HttpServer, is_loopback
from koordcore.service.web.http_guard import JsonPost
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import format_resources
from koordcore.values.text_limits import decode_within_limits
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from koord_manager.domain.admission.concerned import Matched, matched_pods
from koord_manager.domain.admission.context.quota import Quota
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.quotas.pending_quotas import PendingQuotas
from koord_manager.domain.admission.webhooks import served
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.settings import ManagerSettings
from koord_manager.shell.webhooks.certificates import Bundle, WebhookEnvironment, read_environment
from koord_manager.shell.webhooks.handlers import Desk, ExplanationQueue, Kind, review
from koord_manager.shell.webhooks.keeper import Keeper, KeptApi
from koord_manager.shell.webhooks.metrics import WebhookMetrics
from koord_manager.shell.webhooks.quota_gate import ObjectsApi, QuotaGate, UpdatePolicy

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
            asked = decode_within_limits(body, dict[str, Any])
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


def are_wanted(settings: ManagerSettings, options: Options, api: ObjectsApi | None) -> bool:
    """Return whether webhooks are served: `--webhooks=on`, or `auto` with an API server, and the gate is on."""
    if not options.enabled("WebhookFramework") or settings.webhooks == "off":
        return False
    return settings.webhooks == "on" or api is not None


class Webhooks(NamedTuple):
    server: HttpServer
    keeper: Keeper


def add_webhooks(
    shell: Shell[ManagerSettings],
    bus: Bus,
    view: ManagerView,
    options: Options,
    api: KeptApi | None,
    *,
    unready: Callable[[], str | None],
    leads: Callable[[], bool],
    environment: WebhookEnvironment | None = None,
) -> Webhooks:
    """Add the webhook server to the service, as the last component, so that it is stopped first.

    Args:
        unready: Returns the reason why requests cannot be answered yet, or None if they can.
        leads: Returns whether this manager leads. Only the leader writes which pods the profiles match.
        environment: Settings of the webhook server, or None to read the environment variables of the process.
    """
    settings = shell.settings
    environment = environment or read_environment(os.environ)
    metrics = WebhookMetrics(shell.metrics.registry, lambda name: view.admission.quotas.get(name) is not None)
    policy = UpdatePolicy(
        max_retries=settings.quota_update_max_retries,
        jitter_seconds=settings.quota_update_retry_jitter,
        total_jitter_seconds=settings.quota_update_max_total_jitter,
    )
    gate = QuotaGate(api, policy, random.random, shell.log) if api is not None else None
    desk = Desk(
        view=view,
        options=options,
        pending=PendingQuotas(),
        gate=gate,
        metrics=metrics,
        tracer=shell.tracer,
        clock=shell.clock,
        steady=SystemClock().monotonic,
        logger=shell.log,
        actor=f"manager/{settings.instance}",
        explanations=bus.explanations,
        explanation_queue=ExplanationQueue(shell.log),
        api=api,
    )

    def renewed(bundle: Bundle) -> None:
        metrics.certificate_expiry.set(bundle.expires().timestamp())
        server.reload_certificate()

    def matched() -> Matched | None:
        facts = view.admission
        if not leads() or unready() is not None:
            return None
        return matched_pods(options, facts.profiles().all, facts.namespaces)

    keeper = Keeper(
        environment,
        options,
        api,
        now=lambda: datetime.now(UTC),
        renewed=renewed,
        logger=shell.log,
        matched=matched,
    )
    served_with = {
        "http_host": settings.webhook_address,
        "http_port": environment.port,
        "http_cert_file": keeper.certificate_file,
        "http_key_file": keeper.key_file,
        "http_client_ca_file": None,
        # on a loopback address only loopback names are served, and the name that the certificate is for
        "http_allowed_hosts": (environment.dns_name,) if is_loopback(settings.webhook_address) else (),
    }
    server = HttpServer(
        settings.model_copy(update=served_with),
        service=shell.service,
        health=shell.health,
        metrics=shell.metrics,
        clock=shell.clock,
    )
    webhooks = WebhookRoutes(desk, unready)
    server.posts.update(webhooks.posts())
    server.routes.extend(webhooks.routes())
    shell.health.add_readiness("webhook-ready", lambda: None if server.is_serving else "the webhooks are not served")
    shell.service.add(Component(name="webhook-certificates", start=keeper.start, run=keeper.run))
    if gate is not None:
        shell.service.add(Component(name="quota-gate", close=gate.close))
    shell.service.add(
        Component(name="explanations", run=desk.explanation_queue.run, close=desk.explanation_queue.flush)
    )
    shell.service.add(Component(name="webhooks", start=server.start, run=server.run, stop=server.stop))
    return Webhooks(server, keeper)
