"""Index the retained admission decisions of a log, and find the decision about a given pod.

Source:
    manager spec, 7.1, 17.3
"""

from collections.abc import Iterable
from typing import NamedTuple

from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided
from koordcore.events.envelope import StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.protocol.objects import Pod, base_of_names, generated_base
from koordcore.values.timestamps import unix_seconds

from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.what_if.admission_outcome import plural_of

WEBHOOK = "webhook"
_SEEN_WITHIN_SECONDS = 600
"""Maximum time between the review of a pod and its fact; a later fact is about another pod of its name."""
_ONE_REQUEST_SECONDS = 30
"""Maximum time between the two webhook calls for one object."""


class RecordedDecision(NamedTuple):
    """A recorded admission decision.

    Attributes:
        based_on: Position up to which the log was folded when the decision was made.
        at: Time of the decision, RFC 3339.
        event: The decision.
        is_whole: Whether the decision contains its object; decisions of old versions of the manager do not.
    """

    based_on: int
    at: str
    event: AdmissionDecided
    is_whole: bool


class Record:
    """The admission decisions that the stream of explanations still has, with indexes.

    Attributes:
        decisions: All decisions in order.
        refused: Request uid of a mutating review -> decision of the validating webhook that denied the changed
            object.
    """

    def __init__(self, stored: Iterable[StoredEvent]) -> None:
        self.decisions = list(_read(stored))
        self.refused: dict[str, RecordedDecision] = {}
        self._of_uid = {one.event.uid: one for one in self.decisions}
        self._changed: dict[tuple[str, str, str], list[RecordedDecision]] = {}
        for one in self.decisions:
            event = one.event
            if event.webhook == "validate" and not event.allowed:
                since = unix_seconds(one.at) - _ONE_REQUEST_SECONDS
                before = self._taken(event.namespace, event.name, plural_of(event), one.at, since)
                if before is not None:
                    self.refused[before.event.uid] = one
            elif event.webhook == "mutate" and event.allowed:
                name = base_of_names(event.name) if _is_unnamed(one) else event.name
                key = (plural_of(event), event.namespace, name)
                self._changed.setdefault(key, []).append(one)

    @property
    def follow_ups(self) -> frozenset[str]:
        """Request uids of the denials by a validating webhook whose object a mutating webhook had changed before."""
        return frozenset(one.event.uid for one in self.refused.values())

    def of_request(self, uid: str) -> RecordedDecision | None:
        """Return the decision about the request with this uid, or None if it is not retained."""
        return self._of_uid.get(uid)

    def of_pod(self, pod: Pod, at: str) -> RecordedDecision | None:
        """Return the decision of the mutating webhook about an admitted pod, or None if it is not retained.

        Each decision is returned only once, also for pods with a generated name.

        Args:
            pod: The pod as it was observed.
            at: Time when it was first observed, RFC 3339.
        """
        since = unix_seconds(at) - _SEEN_WITHIN_SECONDS
        return self._taken(pod.metadata.namespace, pod.metadata.name, "pods", at, since)

    def _taken(self, namespace: str, name: str, plural: str, at: str, since: float = 0) -> RecordedDecision | None:
        for called in filter(None, (name, generated_base(name))):
            waiting = self._changed.get((plural, namespace, called), [])
            for place in reversed(range(len(waiting))):
                one = waiting[place]
                if one.at <= at and unix_seconds(one.at) >= since and (called == name or _is_unnamed(one)):
                    return waiting.pop(place)
        return None


def _is_unnamed(decisions: RecordedDecision) -> bool:
    """Return whether the object had no name yet, because the API server generates it after admission."""
    return not seen(decisions.event.object, "metadata").get("name")


def _read(stored: Iterable[StoredEvent]) -> Iterable[RecordedDecision]:
    for one in stored:
        try:
            event = CATALOGUE.read(one)
        except UnreadableEvent:
            continue
        if isinstance(event, AdmissionDecided):
            is_whole = one.based_on > 0 or event.object is not None or event.old_object is not None
            yield RecordedDecision(one.based_on, one.occurred_at, event, is_whole)
