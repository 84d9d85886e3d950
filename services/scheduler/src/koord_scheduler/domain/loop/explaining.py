"""Answers ScheduleExplanations and publishes their statuses.

    new object -> the waiting pods of its key are attempted at once; pods with a node are answers already
    failed attempt, placement -> outlook of the pod
    once a second -> status of each object with changes; once a minute of all; a last status when an object expires

Source: scheduler-core spec, 13.3
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import numpy as np
from koordcore.events.envelope import AggregateRef
from koordcore.events.explanations import DecisionAbandoned, Diagnosis, NodeFailure, PodUnschedulable
from koordcore.events.schedule_explanation import (
    DomainOutlook,
    FeasiblePlacement,
    PossibleVictim,
    ScheduleExplanationComputed,
    SchedulingOutlook,
)
from koordcore.protocol import keys
from koordcore.values.timestamps import rfc3339

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import row_list
from koord_scheduler.domain.loop.cycle.diagnosis import failure_of, failure_order
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.loop.status.schedule_explanations import KIND, PodOutlook, Question, keys_of

MOST_NAMED: Final = 100
"""Maximum number of members with a node that a status names."""
MOST_IN_SHORT: Final = 500
"""Maximum number of characters of the message of an answer that is given in short."""
_TOO_LARGE: Final = "The whole answer is too large for the log."


def hear(state: SchedulerState, explanations: Iterable[PodExplanation]) -> None:
    """Store what attempts that have just failed mean for the ScheduleExplanations that ask about their pods. Call it
    before any node changes.
    """
    book = state.status.explanations
    if not book.questions:
        return
    for explanation in explanations:
        pod, event = state.pods.get(explanation.uid), explanation.event
        asked = book.asked(keys_of(pod, state.books.gangs.roster)) if pod is not None else []
        if pod is None or not asked or isinstance(event, DecisionAbandoned):
            continue
        if isinstance(event, PodUnschedulable):
            domains = tuple(_domains(state, pod, event))
        else:
            domains = (_refused(event.message),)
        known = PodOutlook(uid=pod.uid, namespace=pod.namespace, name=pod.name, message=event.message, domains=domains)
        for key in asked:
            book.answer(key, known)


def explanation_facts(state: SchedulerState, now: float) -> Iterator[tuple[AggregateRef, ScheduleExplanationComputed]]:
    """(Aggregate, status) of each ScheduleExplanation to publish now; it is recorded as published."""
    book = state.status.explanations
    if not book.questions:
        return
    _seek(state, book.take_new())
    moment = rfc3339(datetime.fromtimestamp(now, UTC))
    for id_ in book.due(now):
        question = book.questions[id_]
        is_expired = question.expires_at is not None and question.expires_at <= now
        if not book.is_over(id_):
            status = _status(state, id_, question, moment)
            event = msgspec.structs.replace(status, expired=is_expired)
            book.published[id_] = event
            yield AggregateRef(KIND, id_), event


def _seek(state: SchedulerState, wanted: set[str]) -> None:
    """Record the placed pods that new ScheduleExplanations ask about, and wake the pending ones."""
    book, roster = state.status.explanations, state.books.gangs.roster
    for pod in state.pods.values() if wanted else ():
        if wanted.isdisjoint(keys_of(pod, roster)):
            continue
        node = pod.node or pod.bound_node
        if node:
            book.placed(pod, node, roster)
        elif state.queue.get(pod.uid) is not None:
            state.queue.wake_pod(pod.uid, pod.trigger)


# --- statuses --------------------------------------------------------------------------------------------------------


def _status(state: SchedulerState, id_: str, question: Question, moment: str) -> ScheduleExplanationComputed:
    answers = state.status.explanations.answers_to(question.key)
    failed = [answer for answer in answers if not answer.node]
    published = state.status.explanations.published.get(id_)
    if not answers and published is not None:
        return msgspec.structs.replace(published, last_update_time=moment)
    if failed:
        latest = failed[-1]
        message, domains = latest.message, list(latest.domains)
    elif answers:
        message, domains = "", [_placed(answers)]
    else:
        message, domains = _unknown(question), []
    is_placed = bool(answers) and not failed
    is_helped = is_placed or any(domain.preemption.schedulable for domain in domains)
    if id_ in state.status.explanations.too_large:
        message, domains = "" if is_placed else f"{_TOO_LARGE} {message[:MOST_IN_SHORT]}", []
    return ScheduleExplanationComputed(
        namespace=question.namespace,
        name=question.name,
        uid=question.uid,
        last_update_time=moment,
        failed_message=message,
        schedulable=is_placed,
        schedulable_after_preemption=is_helped,
        domains=domains,
    )


def _unknown(question: Question) -> str:
    if not question.key:
        return "spec.questionObjectKey is empty; questionObjectTemplate is not supported"
    return f"nothing has been attempted for {question.key} yet"


def _placed(answers: Sequence[PodOutlook]) -> DomainOutlook:
    feasible = [
        FeasiblePlacement(namespace=answer.namespace, name=answer.name, uid=answer.uid, node=answer.node)
        for answer in answers[:MOST_NAMED]
    ]
    found = SchedulingOutlook(schedulable=True, feasible=feasible)
    return DomainOutlook(scheduling=found, preemption=SchedulingOutlook(schedulable=True))


def _refused(message: str) -> DomainOutlook:
    return DomainOutlook(scheduling=SchedulingOutlook(failed_message=message), preemption=SchedulingOutlook())


# --- failed attempts -------------------------------------------------------------------------------------------------


def _domains(state: SchedulerState, pod: PodRecord, event: PodUnschedulable) -> Iterator[DomainOutlook]:
    diagnosis = event.diagnosis
    if diagnosis is None:
        yield _refused(event.message)
        return
    key = pod.pod.metadata.labels.get(keys.TOPOLOGY_KEY_TO_EXPLAIN, "") if pod.pod is not None else ""
    failures = {"": diagnosis.failures}
    if key and diagnosis.failures:
        failures = _failures_by_domain(state, pod, key)
    preemption = diagnosis.preemption
    chosen = preemption.node if preemption is not None else ""
    home = state.nodes.labels_of(chosen).get(key, "") if key and state.nodes.row(chosen) is not None else ""
    for domain in sorted(failures):
        refused = failures[domain]
        text = diagnosis.pre_filter_message or _fit_text(refused) or event.message
        found = bool(chosen) and domain == home
        feasible = [FeasiblePlacement(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=chosen)]
        message = preemption.failed_message if preemption is not None else ""
        yield DomainOutlook(
            topology_domain=domain,
            scheduling=SchedulingOutlook(failed_message=text, failures=[_as_published(each) for each in refused]),
            preemption=SchedulingOutlook(schedulable=found, failed_message=message, feasible=feasible if found else []),
            victims={chosen: _victims(state, diagnosis)} if found else {},
        )


def _as_published(failure: NodeFailure) -> NodeFailure:
    """Without amounts: an answer is a fact, and its details name some already."""
    return msgspec.structs.replace(failure, shortages=[], needs="")


def _failures_by_domain(state: SchedulerState, pod: PodRecord, key: str) -> dict[str, list[NodeFailure]]:
    """Return the refusals by value of a node label; "" for nodes without the label."""
    assert pod.subject is not None, f"pod {pod.uid} was attempted without a spec"
    names, labels = state.nodes.names, state.nodes.labels_of
    found: dict[str, list[NodeFailure]] = {}
    engine = state.frameworks.framework_of(pod).engine
    for refusals in engine.refusals(pod.subject):
        rows: dict[str, list[int]] = {}
        for row in row_list(refusals.rows):
            rows.setdefault(labels(names[row]).get(key, ""), []).append(row)
        for domain, own in rows.items():
            part = refusals._replace(rows=np.array(own, np.intp))
            found.setdefault(domain, []).append(failure_of(state, engine, pod.subject, part))
    return {domain: sorted(failures, key=failure_order) for domain, failures in found.items()}


def _fit_text(failures: Sequence[NodeFailure]) -> str:
    """Return the sentence of `fit_error` for the nodes of one domain; "" without nodes."""
    counts: dict[str, int] = {}
    for failure in failures:
        counts[failure.reason] = counts.get(failure.reason, 0) + failure.count
    entries = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{sum(counts.values())} nodes are available: {', '.join(entries)}." if entries else ""


def _victims(state: SchedulerState, diagnosis: Diagnosis) -> list[PossibleVictim]:
    victims = diagnosis.preemption.victims if diagnosis.preemption is not None else []
    return [
        PossibleVictim(
            namespace=victim.namespace,
            name=victim.name,
            uid=victim.uid,
            is_nominated=bool(state.nominator.node_of(victim.uid)),
        )
        for victim in victims
    ]
