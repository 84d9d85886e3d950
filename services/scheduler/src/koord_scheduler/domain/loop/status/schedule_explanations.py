"""ScheduleExplanations: the questions of users, the last answers about their pods, and the published statuses.

Answers are stored only for pods and jobs that a question names, so without questions there is no work.

Source: scheduler-core spec, 13.3; protocol spec, 9.8
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from koordcore.events.schedule_explanation import DomainOutlook, ScheduleExplanationComputed
from koordcore.protocol import keys
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.plugins.gang.roster import Roster

PLURAL: Final = "scheduleexplanations"
KIND: Final = "scheduleexplanation"
"""Kind of the aggregates of the statuses."""
DEFAULT_TTL: Final = "24h"
REPEAT_SECONDS: Final = 60.0
"""Longest age of a published status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question of one ScheduleExplanation object: whether a pod, job or gang finds a node."""

    namespace: str
    name: str
    uid: str
    # "namespace/name" of a pod or job, or the id of a gang group; "" if the object names nothing that can be answered.
    key: str
    expires_at: float | None  # Unix seconds; None if it never expires


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOutlook:
    """The present answer about one pod: its node, or its last failed attempt."""

    uid: str
    namespace: str
    name: str
    node: str = ""  # Name of its node; "" if it has none
    message: str = ""  # Why it has no node, one sentence
    domains: tuple[DomainOutlook, ...] = ()  # Result of the attempt in each topology domain


@dataclass(slots=True)
class ScheduleExplanations:
    """The ScheduleExplanation objects, with the last answers about their pods."""

    # Aggregate id of the object -> its question.
    questions: dict[str, Question] = field(default_factory=dict[str, Question])
    # Aggregate id -> last status that is in the log or is being appended.
    published: dict[str, ScheduleExplanationComputed] = field(default_factory=dict[str, ScheduleExplanationComputed])
    # Ids of the objects whose present answer is larger than the log accepts, so that it is given in short.
    too_large: set[str] = field(default_factory=set[str])
    _asked: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    _answers: dict[str, dict[str, PodOutlook]] = field(default_factory=dict[str, dict[str, PodOutlook]])
    _keys_of: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _of_gone: dict[str, str] = field(default_factory=dict[str, str])
    _changed: dict[str, None] = field(default_factory=dict[str, None])
    _new: dict[str, None] = field(default_factory=dict[str, None])
    _next_repeat: float = 0.0

    # --- questions ---------------------------------------------------------------------------------------------------

    def put(self, id_: str, question: Question) -> None:
        """Add or replace the question of the object with this aggregate id. No-op if only its status changed."""
        before = self.questions.get(id_)
        if before == question:
            return
        if before is not None:
            self.drop(id_)
        self.questions[id_] = question
        self._changed[id_] = None
        if question.key:
            self._asked.setdefault(question.key, {})[id_] = None
            self._new[question.key] = None

    def drop(self, id_: str) -> None:
        """Remove the question of a deleted object. If no other question has its key, remove the stored answers of the
        key.
        """
        question = self.questions.pop(id_, None)
        self.published.pop(id_, None)
        self._changed.pop(id_, None)
        self.too_large.discard(id_)
        asking = self._asked.get(question.key) if question is not None else None
        if question is not None and asking is not None:
            del asking[id_]
            if not asking:
                del self._asked[question.key]
                self._new.pop(question.key, None)
                self._of_gone.pop(question.key, None)
                for uid in self._answers.pop(question.key, ()):
                    self._keep_no_longer(question.key, uid)

    def take_new(self) -> set[str]:
        """Return the keys of questions that were added since the last call and have no answer yet."""
        new = self._new.keys() - self._answers.keys()
        self._new.clear()
        return new

    # --- answers -----------------------------------------------------------------------------------------------------

    def asked(self, among: Iterable[str]) -> list[str]:
        """Return the keys in `among` about which a question is open."""
        return [key for key in among if key in self._asked]

    def answer(self, key: str, answer: PodOutlook) -> None:
        """Store the latest answer about one pod under a key. A question with this key must exist."""
        self._drop_of_gone(key)
        answers = self._answers.setdefault(key, {})
        before = answers.pop(answer.uid, None)
        answers[answer.uid] = answer
        self._keys_of.setdefault(answer.uid, set()).add(key)
        if before != answer:
            self._changed.update(self._asked[key])
            self.too_large.difference_update(self._asked[key])

    def placed(self, pod: PodRecord, node: str, roster: Roster) -> None:
        """Answer the questions about a pod: it has the node. No-op if there is no question about the pod."""
        if self.questions:
            for key in self.asked(keys_of(pod, roster)):
                self.answer(key, PodOutlook(uid=pod.uid, namespace=pod.namespace, name=pod.name, node=node))

    def answers_to(self, key: str) -> list[PodOutlook]:
        """Return the answers about the pods of a key, the latest last. If none of these pods exists any more, it is the
        answer about the one that was deleted last.
        """
        return list(self._answers.get(key, {}).values())

    def pod_gone(self, uid: str) -> None:
        """Drop the answers about a pod that does not exist any more. The only answer to a question stays."""
        for key in tuple(self._keys_of.get(uid, ())):
            if len(self._answers[key]) == 1:
                self._of_gone[key] = uid
            else:
                del self._answers[key][uid]
                self._keep_no_longer(key, uid)

    def _drop_of_gone(self, key: str) -> None:
        """Drop the answer to a question that was kept only because there was no other one."""
        uid = self._of_gone.pop(key, None)
        if uid is not None:
            del self._answers[key][uid]
            self._keep_no_longer(key, uid)

    def _keep_no_longer(self, key: str, uid: str) -> None:
        keys_of_pod = self._keys_of[uid]
        keys_of_pod.discard(key)
        if not keys_of_pod:
            del self._keys_of[uid]

    # --- what is said ------------------------------------------------------------------------------------------------

    def due(self, now: float) -> list[str]:
        """Return the ids of the ScheduleExplanations whose status is due at `now`, in Unix seconds. These are the ones
        with changes since the last call, the newly expired ones, and once a minute all.
        """
        if now >= self._next_repeat:
            self._next_repeat = now + REPEAT_SECONDS
            ids = list(self.questions)
        else:
            ids = [*self._changed, *(id_ for id_ in self._expired(now) if id_ not in self._changed)]
        self._changed.clear()
        return ids

    def next_due(self, next_look: float) -> float | None:
        """Return the time at which the next status must be published; None if there is no question. `next_look`:
        earliest time of the next publishing, in seconds of the service's `Clock`.
        """
        if not self.questions:
            return None
        if self._changed or self._new:
            return next_look
        open_ = (each.expires_at for id_, each in self.questions.items() if not self.is_over(id_))
        return max(next_look, min((self._next_repeat, *(at for at in open_ if at is not None))))

    def is_over(self, id_: str) -> bool:
        """Return whether the published status of the object is that it has expired."""
        published = self.published.get(id_)
        return published is not None and published.expired

    def unsaid(self, id_: str, event: ScheduleExplanationComputed, *, is_too_large: bool = False) -> None:
        """Forget a published status that the log has refused, so that the present status is published again. If the
        status was too large, the next one is short, until the answer changes. A short one that is too large, too, is
        given up: it counts as published. `is_too_large`: whether the log will never store it.
        """
        if is_too_large and id_ in self.too_large:
            return
        if self.published.get(id_) is event:
            del self.published[id_]
        if id_ in self.questions:
            self._changed[id_] = None
            if is_too_large:
                self.too_large.add(id_)

    def _expired(self, now: float) -> list[str]:
        return [
            id_
            for id_, question in self.questions.items()
            if question.expires_at is not None and question.expires_at <= now and not self.is_over(id_)
        ]


def question_of(document: dict[str, Any]) -> Question:
    """Return the question in a ScheduleExplanation object: why a pod, a job or a gang group is placed or waits.
    `spec.questionObjectKey` names what the question is about. `spec.ttl` says when the question expires. `document`:
    the object, as decoded JSON. Raises InvalidInput: the ttl is not a valid duration, or the creation time is invalid.
    """
    meta = cast("dict[str, Any]", document.get("metadata") or {})
    spec = cast("dict[str, Any]", document.get("spec") or {})
    ttl = parse_seconds(str(spec.get("ttl") or DEFAULT_TTL))
    created = str(meta.get("creationTimestamp") or "")
    return Question(
        namespace=str(meta.get("namespace", "")),
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        key=str(spec.get("questionObjectKey") or ""),
        expires_at=_unix(created) + ttl if ttl > 0 and created else None,
    )


def keys_of(pod: PodRecord, roster: Roster) -> list[str]:
    """Return the keys under which users may ask about a pod: `namespace/name` of the pod, its job, and its gang group.
    A label value cannot contain "/", so a job's name without it is in the pod's namespace.
    """
    found = [f"{pod.namespace}/{pod.name}"]
    job = pod.pod.metadata.labels.get(keys.QUESTIONED_OBJECT_KEY, "") if pod.pod is not None else ""
    if job:
        found.append(job if "/" in job else f"{pod.namespace}/{job}")
    gang = roster.gang_of(pod.uid)
    if gang is not None and gang.group is not None:
        found.append(gang.group.id)
    return found


def _unix(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InvalidInput("an RFC 3339 time", text, "metadata.creationTimestamp") from None
