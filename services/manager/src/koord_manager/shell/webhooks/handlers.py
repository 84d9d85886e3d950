"""Answer one AdmissionReview: run the pure chain on the present fold, ask the quota gate, and record the decision.

Explanations are published after the answers, so that no request waits for them. Publishing ten explanations at once
takes as long as three single ones, so they are collected for a tenth of a second.

Source:
    manager spec, 7.1, 10.4, 10.7, 17.3
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import ObservationLog
from koordcore.protocol import keys
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.admission.chain import UNREADABLE, Surroundings, mutate, read_pod, surroundings, validate
from koord_manager.domain.admission.colocation_profile import pod_namespace
from koord_manager.domain.admission.context.quota import Quota, read_quota, resources_of
from koord_manager.domain.admission.json_object import seen, text
from koord_manager.domain.admission.json_patch import json_patch
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.pods.validating import BoundPod, validate_binding
from koord_manager.domain.admission.quotas.evaluation import evaluated_request, quota_to_evaluate
from koord_manager.domain.admission.quotas.pending_quotas import PendingQuotas
from koord_manager.domain.admission.request import AdmissionDecision, Operation, Request, Violation, violation_of
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.warnings import document_warnings
from koord_manager.shell.documents.explanations import Occasion, Subject, tell
from koord_manager.shell.webhooks.metrics import WebhookMetrics
from koord_manager.shell.webhooks.quota_gate import ObjectsApi, QuotaGate, missing_quotas, read_quotas
from koord_manager.shell.webhooks.review import INTERNAL, Asked, read_review, write_review

GATHER_SECONDS: Final = 0.1
MAX_PENDING: Final = 1000
"""While more explanations are pending, they are published without answering requests in between."""

Publish = Callable[[], Awaitable[None]]


class ExplanationQueue:
    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._pending: deque[Publish] = deque()
        self._news = asyncio.Event()

    def add(self, publish: Publish) -> None:
        """Queue the function that publishes an explanation. It is called within `GATHER_SECONDS`."""
        self._pending.append(publish)
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(GATHER_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Publish all queued explanations now. If one cannot be published, it is logged and dropped."""
        self._news.clear()
        while self._pending:
            publish = self._pending.popleft()
            try:
                await publish()
            except Exception as error:
                self._logger.error(
                    "explanation_not_published", error=f"{type(error).__name__}: {error}", exc_info=error
                )
            if len(self._pending) <= MAX_PENDING:
                await asyncio.sleep(0)


Kind = Literal["mutate", "validate"]
_QUOTAS: Final = "elasticquotas"
_JUDGED_BY_QUOTAS: Final = frozenset((_QUOTAS, "pods"))
_MOST_PENDING: Final = 20
"""Maximum number of pending quotas recorded with one decision."""


class Desk(NamedTuple):
    view: ManagerView
    options: Options
    pending: PendingQuotas  # Accepted quotas that were not observed yet
    gate: QuotaGate | None  # Quota admission, or None without an API server; then pods with a quota are denied
    metrics: WebhookMetrics
    tracer: Tracer
    clock: Clock
    steady: Callable[[], float]  # Returns the seconds of a monotonic clock
    logger: Logger
    actor: str  # Name of this service in the events that it publishes
    explanations: ObservationLog | None  # Stream for admission decisions, or None if they are not published
    explanation_queue: ExplanationQueue
    api: ObjectsApi | None = None  # Client of the API server, or None without one


class Decided(NamedTuple):
    """The admission decision of one webhook request, and the RFC 6902 patch that describes its changes."""

    decision: AdmissionDecision
    patch: list[dict[str, Any]]


Pending = Mapping[str, Quota | None]
"""Accepted quotas that were not observed yet; None for a deletion."""


async def review(desk: Desk, kind: Kind, body: bytes) -> bytes:
    """Answer one AdmissionReview: decide its request, and return the AdmissionReview with the response as JSON.

    A decision that changed or denied the object is published later, except for a dry run. If deciding raises an error,
    the request is denied with status 500.

    Args:
        kind: "mutate" or "validate".

    Raises:
        InvalidInput: The body is not an AdmissionReview of version v1 or v1beta1.
    """
    asked = read_review(body)
    request = asked.request
    began, position = desk.steady(), desk.view.state.position
    pending = desk.pending.current(desk.view.admission.quotas, began)
    with desk.tracer.span(f"manager.{kind}.{request.resource}") as span:
        try:
            decided = await _decide(desk, kind, request, pending)
            if not decided.decision.allowed and await _learn(desk, request, pending):
                pending = desk.pending.current(desk.view.admission.quotas, desk.steady())
                decided = await _decide(desk, kind, request, pending)
        except Exception as error:  # noqa: BLE001 - told with its cause; the request is answered, not broken off
            return _broken(desk, kind, asked, error)
    decision = decided.decision
    status = "allowed" if decision.allowed else "rejected"
    plugin = decision.steps[0].partition("/")[0] if decision.steps else (decision.violations or [_NONE])[0].rule
    desk.metrics.decided(kind, request.resource, request.operation, plugin, status, seconds=desk.steady() - began)
    warnings = (*decision.warnings, *_ignored_parts(kind, request))
    answer = write_review(
        asked, allowed=decision.allowed, message=decision.message, patch=decided.patch, warnings=warnings
    )
    if not request.dry_run and (decision.steps or not decision.allowed):
        now, traceparent = rfc3339(desk.clock.now()), span.context.traceparent
        judged_with = sorted(islice(pending, _MOST_PENDING)) if request.resource in _JUDGED_BY_QUOTAS else ()
        occasion = Occasion(now, traceparent, position, pending=judged_with)
        desk.explanation_queue.add(lambda: tell(desk, _subject(asked, kind), decision, decided.patch, occasion))
    return answer


def _ignored_parts(kind: Kind, request: Request) -> tuple[str, ...]:
    """Return a warning for each part of a new pod that is accepted and ignored; only the validating webhook warns."""
    if kind != "validate" or request.resource != "pods" or request.subresource:
        return ()
    return document_warnings(request.object) if request.operation is Operation.CREATE else ()


def _broken(desk: Desk, kind: Kind, asked: Asked, error: Exception) -> bytes:
    """Return the answer if deciding raised an error: denied with status 500, as Koordinator does.

    Source: manager spec, 7.1.
    """
    request = asked.request
    cause = f"{type(error).__name__}: {error}"
    named = f"{request.resource} {request.namespace}/{_subject(asked, kind).name}"
    desk.logger.error("review_failed", kind=kind, object=named, uid=request.uid, error=cause, exc_info=error)
    desk.metrics.decided(kind, request.resource, request.operation, "failed", "rejected", seconds=0)
    return write_review(asked, allowed=False, message=f"internal failure: {cause}", code=INTERNAL)


async def _learn(desk: Desk, request: Request, pending: Pending) -> bool:
    """Read the quotas that the request refers to and that the fold lacks; return whether there are any."""
    names = missing_quotas(request, lambda name: name in pending or desk.view.admission.quotas.get(name) is not None)
    if not names or desk.api is None:
        return False
    found = await read_quotas(desk.api, names)
    for quota in found:
        desk.pending.accept(quota.name, quota, desk.steady())
    return bool(found)


_NONE: Final = Violation(rule="", field="", message="")


async def _decide(desk: Desk, kind: Kind, request: Request, pending: Pending) -> Decided:
    around = surroundings(request, desk.view.admission, desk.options, pending=pending)
    if kind == "mutate":
        decision = mutate(request, around)
        patch = _patch(request, decision)
        if isinstance(patch, InvalidInput):
            return Decided(AdmissionDecision(object=request.object, violations=[violation_of(patch, UNREADABLE)]), [])
        if decision.allowed and request.resource == _QUOTAS and not request.dry_run:
            _count_weight(desk, decision)
        return Decided(decision, patch)
    if (request.resource, request.subresource) == ("pods", "binding"):
        return Decided(_binding(desk, request), [])
    decision = validate(request, around)
    if decision.allowed and _is_counted(desk.options, request):
        decision = await _quota_admission(desk, request, around)
    if decision.allowed and request.resource == _QUOTAS and not request.subresource and not request.dry_run:
        _remember(desk, request)
    return Decided(decision, [])


def _patch(request: Request, decision: AdmissionDecision) -> list[dict[str, Any]] | InvalidInput:
    if not decision.steps or request.object is None or decision.object is None:
        return []
    try:
        return json_patch(request.object, decision.object)
    except InvalidInput as error:
        return error


def _count_weight(desk: Desk, decision: AdmissionDecision) -> None:
    if not decision.steps or decision.object is None:
        return
    quota = read_quota(decision.object)
    weights = resources_of(quota.annotations, keys.QUOTA_SHARED_WEIGHT)
    desk.metrics.shared_weights.set(quota.name, {name: amount.nano / 1e9 for name, amount in weights.items()})


def _remember(desk: Desk, request: Request) -> None:
    if request.operation is Operation.DELETE:
        name = request.name or (read_quota(request.old_object).name if request.old_object else "")
        desk.pending.accept(name, None, desk.steady())
    elif request.object is not None:
        quota = read_quota(request.object)
        desk.pending.accept(quota.name, quota, desk.steady())


def _is_counted(options: Options, request: Request) -> bool:
    return request.resource == "pods" and not request.subresource and options.enabled("EnableQuotaAdmission")


async def _quota_admission(desk: Desk, request: Request, around: Surroundings) -> AdmissionDecision:
    """Return the decision of quota admission, which charges the pod's quota; a dry run charges nothing."""
    if request.object is None:
        return AdmissionDecision(object=None)
    try:
        pod = read_pod(request.object)
        old = read_pod(request.old_object) if request.operation is Operation.UPDATE and request.old_object else None
        namespace = pod_namespace(request.object, request.namespace)
        name = quota_to_evaluate(pod, old, namespace, around.quotas, desk.options)
        if name is None or request.dry_run:
            return AdmissionDecision(object=request.object)
        asked_for = evaluated_request(pod, desk.options)
    except InvalidInput as error:
        return AdmissionDecision(object=request.object, violations=[violation_of(error, UNREADABLE)])
    field = f"labels.{keys.QUOTA_NAME}"
    quota = around.quotas.get(name)
    if quota is None:
        found = Violation(rule="quota-not-found", field=field, message=f"quota {name} does not exist")
    elif desk.gate is None:
        found = Violation(
            rule="quota-gate", field=field, message="quota admission needs the API server to keep its accounts in"
        )
    else:
        answer = await desk.gate.ask(quota, asked_for)
        if answer.allowed:
            return AdmissionDecision(object=request.object)
        found = Violation(rule="quota-exceeded", field=field, message=answer.message)
    return AdmissionDecision(object=request.object, violations=[found])


def _binding(desk: Desk, request: Request) -> AdmissionDecision:
    enabled = desk.options.enabled("PodValidatingWebhook") and desk.options.enabled("BindingAdmissionWebhook")
    if not enabled or request.operation is not Operation.CREATE:
        return AdmissionDecision(object=request.object)
    found = desk.view.pod(request.namespace, request.name)
    metadata = found[1].object.metadata if found else None
    pod = BoundPod(metadata.labels, metadata.annotations) if metadata else None
    decision = validate_binding(desk.options.binding, request.user, request.namespace, pod)
    desk.metrics.binding_decisions.labels(decision.decision).inc()
    if decision.allowed:
        return AdmissionDecision(object=request.object)
    violation = Violation(rule="binding-denied", field="userInfo.username", message=decision.message)
    return AdmissionDecision(object=request.object, violations=[violation])


def _subject(asked: Asked, kind: Kind) -> Subject:
    request = asked.request
    try:
        metadata = seen(request.object or request.old_object, "metadata")
        named = text(metadata, "name") or text(metadata, "generateName")
    except InvalidInput:
        named = ""
    return Subject(
        uid=request.uid,
        source="webhook",
        resource=request.resource,
        namespace=request.namespace,
        name=request.name or named,
        operation=str(request.operation),
        user=request.user,
        webhook=kind,
        subresource=request.subresource,
        object=request.object,
        old_object=request.old_object,
    )
