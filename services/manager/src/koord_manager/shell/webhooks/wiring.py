"""Add the webhook server and its certificate to the service.

Source:
    manager spec, 2.1, 7
"""

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from koordcore.bus.factory import Bus
from koordcore.service.clock import SystemClock
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell
from koordcore.service.web.http import HttpServer, is_loopback

from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.quotas.pending_quotas import PendingQuotas
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.settings import ManagerSettings
from koord_manager.shell.webhooks.certificates import Bundle, WebhookEnvironment, read_environment
from koord_manager.shell.webhooks.handlers import Desk, ExplanationQueue
from koord_manager.shell.webhooks.keeper import Keeper, KeptApi
from koord_manager.shell.webhooks.metrics import WebhookMetrics
from koord_manager.shell.webhooks.quota_gate import ObjectsApi, QuotaGate, UpdatePolicy
from koord_manager.shell.webhooks.server import WebhookRoutes


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
    environment: WebhookEnvironment | None = None,
) -> Webhooks:
    """Add the webhook server to the service, as the last component, so that it is stopped first.

    Args:
        unready: Returns the reason why requests cannot be answered yet, or None if they can.
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

    keeper = Keeper(environment, options, api, now=lambda: datetime.now(UTC), renewed=renewed, logger=shell.log)
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
