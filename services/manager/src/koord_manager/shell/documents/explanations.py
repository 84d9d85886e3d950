"""Publish admission decisions that changed or denied an object to the stream of explanations, and log denials.

If an object was neither changed nor denied, the fact of the object is enough. Dry runs are not published.

Source:
    manager spec, 17.3
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from koordcore.events.admission import AdmissionDecided, admission_ref
from koordcore.events.envelope import Origin
from koordcore.ports.eventlog import ObservationLog
from koordcore.protocol.manifests import CustomObject
from koordcore.requests.objects import ChangeNode, PatchObject
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec

from koord_manager.domain.admission.json_patch import Operation, json_patch, without_secrets
from koord_manager.domain.admission.options import Options, changed_settings
from koord_manager.domain.admission.recorded_object import digest_of, recorded_part, recorded_violations
from koord_manager.domain.admission.request import AdmissionDecision, JsonObject
from koord_manager.domain.documents.admitting import Applied
from koord_manager.domain.documents.apply import Target
from koord_manager.shell.intake import Work

MAX_PATCH_OPERATIONS: Final = 200
MAX_PATCH_BYTES: Final = 64 * 1024
"""Maximum size of a recorded patch, because messages of the bus are limited."""
MAX_NAME: Final = 253
"""Maximum length of a name or uid, because a webhook is called before the API server validates names."""
MAX_USER: Final = 512
_SUBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PLURALS: Final = {
    "Pod": "pods",
    "Node": "nodes",
    "ConfigMap": "configmaps",
    "Namespace": "namespaces",
    "PriorityClass": "priorityclasses",
    "Deployment": "deployments",
    "Job": "jobs",
}


class Teller(Protocol):
    """The services that `tell` uses to publish an admission decision: stream, logger and options.

    `ManagerContext` and the webhooks' `Desk` implement it.
    """

    @property
    def explanations(self) -> ObservationLog | None: ...

    @property
    def actor(self) -> str: ...

    @property
    def logger(self) -> Logger: ...

    @property
    def options(self) -> Options: ...


class Subject(NamedTuple):
    uid: str
    source: str  # "webhook", "apply", or "change" if another service asked for it
    resource: str  # Plural of its kind, such as `pods`
    namespace: str
    name: str
    operation: str  # Operation of the request, such as CREATE
    user: str = ""  # Name of the user, or empty if unknown
    webhook: str = ""  # "mutate" or "validate", or empty for `koord apply`
    subresource: str = ""  # Subresource of the request, or empty
    # The submitted object, or the patch of a change; None on DELETE and for a change of a node.
    object: JsonObject | None = None
    old_object: JsonObject | None = None  # The stored object, or None for `koord apply`

    @property
    def shown(self) -> str:
        """Resource with its subresource, such as `pods-binding`, or the resource alone."""
        return f"{self.resource}-{self.subresource}" if self.subresource else self.resource


class Occasion(NamedTuple):
    now: str  # Time, RFC 3339
    traceparent: str
    based_on: int  # Position of the log that was folded
    # Seed of the random numbers for profiles with a probability. If empty, it is the uid of the request.
    draws: str = ""
    # Names of quotas with an accepted change that is not folded yet; the decision counted the change. At most 20. Empty
    # if the request is not about a pod or a quota, and for `koord apply`.
    pending: Sequence[str] = ()


async def record_applied(context: Teller, work: Work, applied: Applied, occasion: Occasion) -> None:
    operation = "CREATE" if applied.action == "created" else "UPDATE"
    decision = AdmissionDecision(object=applied.made, steps=applied.steps)
    patch = json_patch(applied.given, applied.made) if applied.given and applied.made else []
    await tell(context, _subject(work, operation), decision, patch, occasion)


async def record_refused(context: Teller, work: Work, decision: AdmissionDecision, occasion: Occasion) -> None:
    """Publish why a document of `koord apply` was denied; no-op for a dry run."""
    if not work.dry_run:
        operation = "DELETE" if isinstance(work.subject, Target) else "APPLY"
        await tell(context, _subject(work, operation), decision, (), occasion)


async def tell(
    context: Teller, subject: Subject, decision: AdmissionDecision, patch: Sequence[Operation], occasion: Occasion
) -> None:
    """Publish one admission decision to the stream of explanations, without waiting for its answer, and log a denial.

    Args:
        patch: RFC 6902 operations that describe what changed.
    """
    rules, fields = recorded_violations(decision.violations)
    shown, name, uid = subject.shown[:MAX_NAME], subject.name[:MAX_NAME], subject.uid[:MAX_NAME]
    if not decision.allowed:
        context.logger.info(
            "admission_refused",
            source=subject.source,
            resource=shown,
            namespace=subject.namespace[:MAX_NAME],
            name=name,
            operation=subject.operation,
            rules=rules,
            reason=decision.message[:500],
        )
    if context.explanations is None:
        return
    event = AdmissionDecided(
        uid=uid,
        source=subject.source,
        resource=shown,
        namespace=subject.namespace[:MAX_NAME],
        name=name,
        operation=subject.operation,
        user=subject.user[:MAX_USER],
        allowed=decision.allowed,
        steps=list(decision.steps),
        rules=rules,
        fields=fields,
        message=decision.message[:2000],
        patch=_beginning(without_secrets(patch[:MAX_PATCH_OPERATIONS])),
        webhook=subject.webhook,
        subresource=subject.subresource,
        object=recorded_part(subject.resource, subject.object),
        old_object=recorded_part(subject.resource, subject.old_object),
        result=digest_of(subject.resource, decision.object) if decision.steps else "",
        draws=occasion.draws,
        settings=changed_settings(context.options),
        pending=list(occasion.pending),
    )
    ref = admission_ref(subject.shown, *_told_as(subject, allowed=decision.allowed))
    origin = Origin(
        causation_id=uid,
        correlation_id=uid,
        actor=context.actor,
        occurred_at=occasion.now,
        based_on=occasion.based_on,
        traceparent=occasion.traceparent,
    )
    await context.explanations.publish(ref, event, origin)


def _told_as(subject: Subject, *, allowed: bool) -> tuple[str, str]:
    """Return the namespace and the name of the object, as parts of the NATS subject of its explanation.

    If the API server generates the name of a pod later, the id of the request is used, so that pods of a workload do
    not replace each other in the stream. If such a pod is denied, its `generateName` is used, because its controller
    retries with new names.
    """
    namespace, name, request = (
        text if _SUBJECT_NAME.fullmatch(text) else "" for text in (subject.namespace, subject.name, subject.uid)
    )
    if not allowed and subject.operation == "CREATE":
        metadata: Any = (subject.object or {}).get("metadata")
        prefix: Any = cast("JsonObject", metadata).get("generateName") if isinstance(metadata, dict) else None
        if isinstance(prefix, str) and _SUBJECT_NAME.fullmatch(prefix.removesuffix("-")):
            return namespace, prefix
    return namespace, name or request or "unnamed"


def _beginning(patch: Sequence[Operation]) -> list[Operation]:
    """Return the first operations of a patch that together have at most `MAX_PATCH_BYTES`."""
    left = MAX_PATCH_BYTES
    told: list[Operation] = []
    for operation in patch:
        left -= len(codec.encode(operation))
        if left < 0:
            break
        told.append(operation)
    return told


def _subject(work: Work, operation: str) -> Subject:
    uid = f"{work.request_id}/{work.number}"
    subject = work.subject
    if isinstance(subject, Target):
        return Subject(uid, "apply", _PLURALS.get(subject.kind, subject.kind.lower()), *subject[1:], operation)
    if isinstance(subject, ChangeNode):
        return Subject(uid, "change", "nodes", "", subject.name, operation)
    if isinstance(subject, PatchObject):
        resource = _PLURALS.get(subject.kind, subject.kind.lower())
        return Subject(uid, "change", resource, subject.namespace, subject.name, operation, object=subject.patch)
    meta = subject.object.metadata
    custom = subject.object.resource.plural if isinstance(subject.object, CustomObject) else None
    resource = custom or _PLURALS.get(subject.kind, subject.kind.lower())
    document = subject.document
    return Subject(uid, "apply", resource, meta.namespace, meta.name, operation, object=document)
