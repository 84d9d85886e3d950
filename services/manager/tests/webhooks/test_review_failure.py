"""A failure of the manager itself is an answer: refused with 500 in the review, told with its cause."""

import json
import time
from typing import Any

from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.quotas.pending_quotas import PendingQuotas
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.shell.webhooks.handlers import Desk, ExplanationQueue, review
from koord_manager.shell.webhooks.metrics import WebhookMetrics
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.tracing import make_tracer
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from support.manager.webhook_world import review_body
from support.manual_clock import ManualClock


class BrokenOptions(Options):
    """Choices that cannot be had."""

    def enabled(self, gate: str) -> bool:
        raise LookupError(gate)


async def test_a_review_that_cannot_be_decided_is_refused_with_500_and_named_in_the_log() -> None:
    tracer = make_tracer("m", instance="t", cluster="t", otlp_endpoint=None, trace_file=None, sample_ratio=0)
    desk = Desk(
        view=ManagerView(),
        options=BrokenOptions(),
        pending=PendingQuotas(),
        gate=None,
        metrics=WebhookMetrics(CollectorRegistry()),
        tracer=tracer,
        clock=ManualClock(),
        steady=time.monotonic,
        logger=logger("test"),
        actor="manager/t",
        explanations=None,
        explanation_queue=ExplanationQueue(logger("test")),
    )
    body: dict[str, Any] = review_body("/mutate-pod", {"metadata": {"name": "p"}, "spec": {}}, namespace="team")
    with capture_logs() as lines:
        answer = json.loads(await review(desk, "mutate", json.dumps(body).encode()))["response"]

    assert answer["uid"] == body["request"]["uid"]
    assert answer["allowed"] is False
    assert answer["status"]["code"] == 500
    assert answer["status"]["message"] == "internal failure: LookupError: PodMutatingWebhook"
    assert [(line["event"], line["object"]) for line in lines] == [("review_failed", "pods team/p")]
