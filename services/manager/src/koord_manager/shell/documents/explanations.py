"""Telling what admission changed and refused: one decision on the stream of explanations, one log line for a refusal.

An object that was neither changed nor refused has its own event, and nothing more is to be said about it. Dry runs are
never told.

source    manager spec, 17.3
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from koordcore.events.envelope import Origin
from koordcore.events.management.admission import AdmissionDecided, admission_ref
from koordcore.ports.observations import ObservationLog
from koordcore.protocol.manifests import CustomObject
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec

from koord_manager.domain.admission.options import Options, changed_settings
from koord_manager.domain.admission.recording.json_patch import Operation, json_patch, without_secrets
from koord_manager.domain.admission.recording.recorded_object import digest_of, kept_of, violations_told
from koord_manager.domain.admission.request import AdmissionDecision, JsonObject
from koord_manager.domain.documents.applied import Applied
from koord_manager.domain.documents.delete import Target
from koord_manager.shell.intake import Work

MAX_PATCH_OPERATIONS: Final = 200
MAX_PATCH_BYTES: Final = 64 * 1024
"""Of a larger patch the beginning is told: a message of the bus has a size, and who sends a larger one is cut off."""
MAX_NAME: Final = 253
"""Letters of a name or a uid: a webhook is asked before the API server looks at names, and by whoever reaches it."""
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
    """What telling needs of the cycle's context."""

    @property
    def explanations(self) -> ObservationLog | None:
        """The stream of explanations; None: nowhere."""
        ...

    @property
    def actor(self) -> str:
        """Who decided."""
        ...

    @property
    def logger(self) -> Logger:
        """For refusals."""
        ...

    @property
    def options(self) -> Options:
        """Gates and flags of admission."""
        ...


class Subject(NamedTuple):
    """The object that was judged, and the request about it.

    webhook      which was asked; empty for "apply"
    old_object   as stored; None for "apply"
    """

    uid: str
    source: str
    resource: str
    namespace: str
    name: str
    operation: str
    user: str = ""
    webhook: str = ""
    subresource: str = ""
    object: JsonObject | None = None
    old_object: JsonObject | None = None

    @property
    def shown(self) -> str:
        """Resource and subresource in one."""
        return f"{self.resource}-{self.subresource}" if self.subresource else self.resource


class Occasion(NamedTuple):
    """When and on what it was decided.

    now        RFC 3339
    based_on   position of the fold
    draws      what draws of profiles with a probability follow from, "" for the uid of the request
    pending    quotas that had not been observed yet, the first of them when there are many
    """

    now: str
    traceparent: str
    based_on: int
    draws: str = ""
    pending: Sequence[str] = ()


async def record_applied(context: Teller, work: Work, applied: Applied, occasion: Occasion) -> None:
    """Tells what admission changed in a document that was applied."""
    operation = "CREATE" if applied.action == "created" else "UPDATE"
    decision = AdmissionDecision(object=applied.made, steps=applied.steps)
    patch = json_patch(applied.given, applied.made) if applied.given and applied.made else []
    await tell(context, _subject(work, operation), decision, patch, occasion)


async def record_refused(context: Teller, work: Work, decision: AdmissionDecision, occasion: Occasion) -> None:
    """Tells why a document was refused; nothing of a dry run."""
    if not work.dry_run:
        operation = "DELETE" if isinstance(work.subject, Target) else "APPLY"
        await tell(context, _subject(work, operation), decision, (), occasion)


async def tell(
    context: Teller, subject: Subject, decision: AdmissionDecision, patch: Sequence[Operation], occasion: Occasion
) -> None:
    """Publishes one decision; returns at once, also while the bus is away (the newest are kept)."""
    rules, fields = violations_told(decision.violations)
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
        object=kept_of(subject.resource, subject.object),
        old_object=kept_of(subject.resource, subject.old_object),
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
    """Namespace and name in the subject of a decision, where only a name may stand.

    A pod whose name the API server has yet to make goes by its request, so that those of a workload do not push each
    other out of the stream; one that was not let in, by its `generateName`: a controller tries again, with a name that
    nobody has seen, for as long as it is refused.
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
    """As many operations as MAX_PATCH_BYTES take."""
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
    meta = subject.object.metadata
    custom = subject.object.resource.plural if isinstance(subject.object, CustomObject) else None
    resource = custom or _PLURALS.get(subject.kind, subject.kind.lower())
    document = subject.document
    return Subject(uid, "apply", resource, meta.namespace, meta.name, operation, object=document)
