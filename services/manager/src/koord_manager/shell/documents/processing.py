"""Process documents on the leader: admit them on the folded view, append the facts, and answer when these are folded.

take -> decide each against the view -> append -> wait until folded -> answer

Only the leader decides. Every instance folds and answers reads.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
from koordcore.events.envelope import Draft, Origin
from koordcore.events.objects import CustomObjectObserved, PodSpecAdded, PodSpecChanged
from koordcore.ports.eventlog import Appended, Conflict, Full, Misconfigured, Unavailable, Unsendable
from koordcore.protocol.manifests import InvalidManifest, Manifest
from koordcore.protocol.objects import ConfigMap, Pod, PriorityClass
from koordcore.requests.objects import ChangeNode, PatchObject
from koordcore.service.failpoints import failpoint
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.admission.quotas.evaluation import quota_to_evaluate
from koord_manager.domain.cluster.withdrawn_evictions import with_withdrawals
from koord_manager.domain.documents.admitting import AdmissionRefused, Applied, pod_document
from koord_manager.domain.documents.apply import Target, decide_apply, decide_delete
from koord_manager.domain.documents.config_verdict import ConfigVerdict, config_question, judge_config
from koord_manager.domain.documents.object_changes import decide_change
from koord_manager.shell.appender import Decision, NotAppended, append_each
from koord_manager.shell.context import ManagerContext, epoch_of, reached, reason_not_to_decide
from koord_manager.shell.documents.explanations import Occasion, record_applied, record_refused
from koord_manager.shell.intake import FieldError, Result, Work, WorkSubject, field_errors

MAX_DOCUMENTS = 500
"""Maximum number of documents decided at once."""
DEFINERS = frozenset(
    (
        "PriorityClass",
        "Node",
        "ConfigMap",
        "Namespace",
        "ClusterColocationProfile",
        "ElasticQuota",
        "ElasticQuotaProfile",
    )
)
"""Kinds that later documents depend on; those wait until these are folded."""
JUDGED_BY_ALL = frozenset(("ElasticQuota",))
"""Kinds that depend on documents of any kind before them: quotas depend on other quotas and on their users."""
LONG_CONFIG = 16 * 1024
"""Characters of slo-controller-config from which on it is judged in a thread."""
REFOLDS = 8
"""Number of refusals of the log after which a document fails (event-bus spec, 4.3)."""
_FULL = "the log is full ({}): enlarge it (koord bus bootstrap --log-size), or give its servers more disk"


async def serve_documents(context: ManagerContext) -> None:
    """Process documents until the queue is closed and empty, so that every request gets an answer at shutdown."""
    while works := await context.intake.take(MAX_DOCUMENTS):
        await process_documents(context, works)


async def process_documents(context: ManagerContext, works: Sequence[Work]) -> None:
    """Decide documents, append their facts, and answer each of them when the facts are folded.

    Documents about one object are decided in order, each on the result of the one before.
    """
    waiting = list(works)
    refusals: dict[Work, int] = {}
    while waiting:
        reason = await reason_not_to_decide(context)  # asked again: the term may end between two groups
        if reason is not None:
            for work in waiting:
                _answer(work, _failed(work, reason))
            return
        group, waiting = _without_repeats(context, waiting)
        again: list[Work] = []
        for work in await _process_group(context, group):
            refusals[work] = refusals.get(work, 0) + 1
            if refusals[work] < REFOLDS:
                again.append(work)
            else:
                _answer(
                    work, _failed(work, f"refused by the log {REFOLDS} times: the object is being changed concurrently")
                )
        if again:
            await asyncio.sleep(context.conflict_pause())  # else two writers in step may refuse each other for ever
        waiting = [*again, *waiting]


def _without_repeats(context: ManagerContext, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
    """Split documents into a group that can be decided together, and the rest.

    The group ends before a document that may depend on an object of the group. So every document is decided on the
    result of the documents before it.
    """
    seen: set[tuple[str, ...]] = set()
    first: list[Work] = []
    later: list[Work] = []
    for index, work in enumerate(works):
        kind, before = _identity(work.subject)[0], _identity(works[index - 1].subject)[0] if index else ""
        depends = kind in JUDGED_BY_ALL or (before in DEFINERS and kind != before)
        if index and depends:
            later.extend(works[index:])
            break
        claims = _claims(context, work.subject)
        (later if claims & seen else first).append(work)
        seen |= claims
    return first, later


def _claims(context: ManagerContext, subject: WorkSubject) -> set[tuple[str, ...]]:
    """Return keys that documents of one group must not share: of the object, of the quota that a pod charges, and of
    the only place of a default PriorityClass.
    """
    claims: set[tuple[str, ...]] = {_identity(subject)}
    if isinstance(subject, Manifest) and isinstance(subject.object, PriorityClass) and subject.object.global_default:
        claims.add(("default PriorityClass",))
    if isinstance(subject, Manifest) and isinstance(subject.object, Pod):
        pod = subject.object
        try:
            quota = quota_to_evaluate(pod, None, pod.metadata.namespace, context.view.admission.quotas, context.options)
        except Exception:  # noqa: BLE001 - what is wrong with the document is said when it is decided
            quota = None
        if quota is not None:
            claims.add(("quota", quota))
    return claims


def _identity(subject: WorkSubject) -> tuple[str, str, str]:
    if isinstance(subject, ChangeNode):
        return "Node", "", subject.name
    if isinstance(subject, Target | PatchObject):
        return subject.kind, subject.namespace, subject.name
    meta = subject.object.metadata
    return subject.kind, meta.namespace, meta.name


async def _process_group(context: ManagerContext, works: Sequence[Work]) -> list[Work]:
    """Decide and append documents about different objects, and return those that have to be decided again."""
    now = rfc3339(context.clock.now())
    decisions: list[Decision] = []
    results: list[tuple[Work, Result, Applied, Occasion]] = []
    for work in works:
        # 1. decide
        judged = await _judged(context, work)
        with context.tracer.span("manager.apply") as span:
            traceparent = span.context.traceparent
            occasion = Occasion(now, traceparent, context.view.state.position, draws=context.new_uid())
            try:
                applied = _decide(context, work, now, occasion.draws, judged)
            except InvalidManifest as refused:
                _answer(work, _result(work, "refused", errors=field_errors(refused)))
                if isinstance(refused, AdmissionRefused):
                    await _told(context, record_refused(context, work, refused.decision, occasion))
                continue
            except Exception as error:
                context.logger.error("document_not_decided", object=_identity(work.subject), exc_info=error)
                _answer(work, _failed(work, f"the document cannot be decided: {type(error).__name__}: {error}"))
                continue
        applied = applied._replace(drafts=with_withdrawals(context.view, applied.drafts))
        action, uid, drafts, refusal = applied[:4]
        if work.dry_run:
            errors = field_errors(refusal) if refusal else []
            result = _result(work, "refused" if refusal else action, errors=errors, warnings=applied.warnings)
            _answer(work, msgspec.structs.replace(result, object=_object_of(drafts)))
            continue
        origin = Origin(
            causation_id=f"{work.request_id}/{work.number}",
            correlation_id=uid or (str(drafts[0].ref) if drafts else ""),
            actor=context.actor,
            epoch=epoch_of(context),
            occurred_at=now,
            based_on=occasion.based_on,
            traceparent=traceparent,
        )
        decisions.append(Decision(drafts, origin))
        result = _result(work, action, uid=uid, traceparent=traceparent, warnings=applied.warnings)
        results.append((work, result, applied, occasion))
    # 2. append
    failpoint("documents_decided_before_append")
    try:
        outcomes = await append_each(context.log, decisions)
    except Misconfigured as error:
        context.logger.error("documents_not_stored", documents=len(decisions), reason=str(error))
        for work, *_ in results:
            _answer(
                work,
                _failed(
                    work, f"whether the document is stored is unknown, because the log cannot store anything: {error}"
                ),
            )
        return []
    failpoint("documents_appended_before_answer")
    # 3. wait until what is now in the log is folded, so that the next decision and the next read see it
    halted = await context.folded(max((reached(outcome) for outcome in outcomes), default=0))
    # 4. answer
    again: list[Work] = []
    for (work, result, applied, occasion), outcome in zip(results, outcomes, strict=True):
        match outcome:
            case Appended(last_seq=seq):
                errors = field_errors(applied.refusal) if applied.refusal else []
                action = "refused" if applied.refusal else result.action
                _answer(work, msgspec.structs.replace(result, action=action, seq=seq, errors=errors))
                if applied.steps:
                    await _told(context, record_applied(context, work, applied, occasion))
            case Conflict() if halted is not None:
                _answer(work, _failed(work, halted))
            case Conflict():
                again.append(work)
            case NotAppended(error=Unsendable() as error):
                _answer(work, _result(work, "refused", errors=[FieldError("", f"cannot be stored: {error}", "")]))
            case NotAppended(error=error):
                context.logger.error("document_not_stored", kind=result.kind, name=result.name, exc_info=error)
                _answer(
                    work, _failed(work, f"whether the document is stored is unknown: {type(error).__name__}: {error}")
                )
            case Full(reason=reason) | Unavailable(reason=reason):
                context.logger.error("document_not_stored", kind=result.kind, name=result.name, reason=reason)
                _answer(work, _failed(work, _FULL.format(reason) if isinstance(outcome, Full) else reason))
    return again


async def _told(context: ManagerContext, recording: Coroutine[None, None, None]) -> None:
    """Publish an explanation. If that fails, log it: the document is answered, and the other ones must be, too."""
    try:
        await recording
    except Exception as error:
        context.logger.error("explanation_not_published", error=f"{type(error).__name__}: {error}", exc_info=error)


async def _judged(context: ManagerContext, work: Work) -> ConfigVerdict | None:
    """Return the verdict about slo-controller-config, judged in a thread if the text is long; None for all others.

    Only this task applies documents, so the data in force does not change meanwhile.
    """
    if not isinstance(work.subject, Manifest) or not isinstance(work.subject.object, ConfigMap):
        return None
    config = work.subject.object
    if sum(len(text) for text in config.data.values()) < LONG_CONFIG:
        return None
    question = config_question(context.view, config, context.options)
    try:
        return None if question is None else await asyncio.to_thread(judge_config, question)
    except Exception:  # noqa: BLE001 - the decision meets it again, and answers the document
        return None


def _decide(context: ManagerContext, work: Work, now: str, new_uid: str, judged: ConfigVerdict | None) -> Applied:
    if isinstance(work.subject, Target):
        drafts = decide_delete(context.view, work.subject, context.options)
        return Applied("deleted", "", drafts) if drafts is not None else Applied("not-found", "", [])
    if isinstance(work.subject, ChangeNode | PatchObject):
        return decide_change(context.view, work.subject, new_uid=new_uid, options=context.options)
    return decide_apply(context.view, work.subject, new_uid=new_uid, now=now, options=context.options, judged=judged)


def _result(
    work: Work,
    action: str,
    *,
    uid: str = "",
    traceparent: str = "",
    errors: list[FieldError] | None = None,
    warnings: Sequence[str] = (),
) -> Result:
    kind, namespace, name = _identity(work.subject)
    told = [*work.warnings, *warnings]
    return Result(action, kind, namespace, name, uid, 0, traceparent, errors or [], told)


def _object_of(drafts: Sequence[Draft]) -> dict[str, Any] | None:
    """Return the pod or custom resource that the first fact states; None if it states something else."""
    match [draft.event for draft in drafts[:1]]:
        case [PodSpecAdded(object=pod) | PodSpecChanged(object=pod)]:
            return pod_document(pod)
        case [CustomObjectObserved(object=document)]:
            return document
        case _:
            return None


def _failed(work: Work, reason: str) -> Result:
    return _result(work, "failed", errors=[FieldError("", reason, "")])


def _answer(work: Work, result: Result) -> None:
    if not work.done.done():
        work.done.set_result(result)
