"""Run admission again for one request, compare two outcomes, and find the recorded decision about a pod.

Source:
    manager spec, 7.1, 8 to 13, 17.3
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final, NamedTuple, cast

from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.objects import CustomObjectObserved, NodeSpecAdded, NodeSpecChanged, PodSpecAdded, PodSpecChanged
from koordcore.events.registry import UnreadableEvent
from koordcore.protocol.crd import accepted_kinds
from koordcore.protocol.manifests import InvalidManifest, shape_manifest
from koordcore.protocol.objects import Node, Pod, base_of_names, generated_base
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds

from koord_manager.domain.admission.chain import UNREADABLE, admit, mutate, read_pod, surroundings, validate
from koord_manager.domain.admission.colocation_profile import pod_namespace
from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.json_patch import WITHHELD, may_hold_secret
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.recorded_object import LAST_APPLIED, digest_of, recorded_violations
from koord_manager.domain.admission.request import AdmissionDecision, JsonObject, Operation, Request, violation_of
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.admitting import AdmissionRefused, quota_account
from koord_manager.domain.documents.apply import APPLIED_DIGEST, Target, decide_apply, decide_delete

MANIFEST_RULE: Final = "manifest"
"""Rule id for the rules of a kind, which are checked after admission."""
_OURS: Final = (APPLIED_DIGEST, LAST_APPLIED)


class Outcome(NamedTuple):
    allowed: bool
    steps: tuple[str, ...] = ()  # Names of the steps that changed the object
    rules: tuple[str, ...] = ()  # Ids of the broken rules
    fields: tuple[str, ...] = ()  # Field of each broken rule, in the order of `rules`
    message: str = ""  # Sentence for the user, or empty if allowed
    object: JsonObject | None = None  # The object to store, or None if it is denied or not recorded
    digest: str = ""  # Digest of the changed object, or empty if no step changed it


def recorded_outcome(event: AdmissionDecided) -> Outcome:
    """Return the outcome that a recorded admission decision contains, to compare it with a repeated one."""
    return Outcome(
        event.allowed, tuple(event.steps), tuple(event.rules), tuple(event.fields), event.message, digest=event.result
    )


def is_alike(found: Outcome, recorded: Outcome) -> bool:
    """Return whether two outcomes are equal by the digests of their objects; messages are not compared."""
    return found[:4] == recorded[:4] and found.digest == recorded.digest


def request_of(event: AdmissionDecided) -> Request:
    """Return the request that a webhook received. Objects have only the fields that were recorded."""
    return Request(
        uid=event.uid,
        operation=Operation(event.operation),
        resource=plural_of(event),
        subresource=event.subresource,
        namespace=event.namespace,
        name=event.name,
        object=event.object,
        old_object=event.old_object,
        user=event.user,
    )


def plural_of(event: AdmissionDecided) -> str:
    return event.resource.removesuffix(f"-{event.subresource}") if event.subresource else event.resource


def ask_again(view: ManagerView, request: Request, webhook: str, options: Options) -> Outcome:
    """Repeat one webhook call ("mutate" or "validate") and return its outcome.

    Quota usage is left out, because webhooks read it from the API server.
    """
    around = surroundings(request, view.admission, options)
    return _outcome(request, (mutate if webhook == "mutate" else validate)(request, around))


def admit_again(view: ManagerView, request: Request, options: Options) -> Outcome:
    """Repeat both webhooks together and return the outcome. Quota usage is that of the folded log."""
    decision = admit(request, surroundings(request, view.admission, options))
    try:
        if decision.allowed and (request.resource, request.subresource) == ("pods", "") and decision.object is not None:
            pod = read_pod(decision.object)
            pod.metadata.namespace = pod_namespace(decision.object, request.namespace)
            is_update = request.operation is Operation.UPDATE and request.old_object is not None
            quota_account(view, pod, read_pod(request.old_object or {}) if is_update else None, options)
    except AdmissionRefused as refused:
        return _refused(refused.decision, decision.steps)
    except InvalidInput as error:
        return _refused(AdmissionDecision(object=None, violations=[violation_of(error, UNREADABLE)]), decision.steps)
    return _outcome(request, decision)


def apply_again(view: ManagerView, document: JsonObject, options: Options, *, uid: str, now: str) -> Outcome:
    """Repeat `koord apply` of one document, and return the outcome. `now`: time of the application, RFC 3339."""
    try:
        applied = decide_apply(view, shape_manifest(document), new_uid=uid, now=now, options=options)
    except InvalidManifest as refused:
        return invalid_outcome(refused)
    if applied.refusal is not None:
        return invalid_outcome(applied.refusal)
    stored = stored_object(applied.drafts[0].event) if applied.drafts else None
    digest = digest_of(_PLURAL_OF.get(str(document.get("kind")), ""), applied.made) if applied.steps else ""
    return Outcome(True, applied.steps, object=stored, digest=digest)


def delete_again(view: ManagerView, plural: str, namespace: str, name: str, options: Options) -> Outcome:
    """Repeat `koord delete` of one object, and return the outcome. `namespace`: its namespace, or empty."""
    kind = next((found.kind for found in accepted_kinds() if found.plural == plural), "")
    try:
        decide_delete(view, Target(kind, namespace, name), options)
    except AdmissionRefused as refused:
        return _refused(refused.decision)
    return Outcome(True)


_PLURAL_OF: Final[Mapping[str, str]] = {
    "Pod": "pods",
    "Node": "nodes",
    **{found.kind: found.plural for found in accepted_kinds()},
}


def stored_object(event: Event) -> JsonObject | None:
    """Return the object in a fact, without the annotations that `koord apply` adds; None if the fact has no object."""
    match event:
        case PodSpecAdded(object=Pod() as found) | PodSpecChanged(object=Pod() as found):
            document = cast("JsonObject", codec.to_builtins(found))
        case NodeSpecAdded(object=Node() as found) | NodeSpecChanged(object=Node() as found):
            document = cast("JsonObject", codec.to_builtins(found))
        case CustomObjectObserved():
            document = event.object
        case _:
            return None
    try:
        metadata = seen(document, "metadata")
        annotations = {name: text for name, text in seen(metadata, "annotations").items() if name not in _OURS}
    except InvalidInput:
        return document
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def _outcome(request: Request, decision: AdmissionDecision) -> Outcome:
    if not decision.allowed:
        return _refused(decision, decision.steps)
    digest = digest_of(request.resource, decision.object) if decision.steps else ""
    return Outcome(True, decision.steps, object=decision.object, digest=digest)


def _refused(decision: AdmissionDecision, steps: tuple[str, ...] = ()) -> Outcome:
    rules, fields = recorded_violations(decision.violations)
    return Outcome(False, steps, tuple(rules), tuple(fields), decision.message)


def invalid_outcome(refused: InvalidManifest | InvalidInput) -> Outcome:
    """Return the outcome "denied" for an object that is not valid, with the violations of the error."""
    if isinstance(refused, InvalidInput):
        refused = InvalidManifest([refused])
    if isinstance(refused, AdmissionRefused):
        return _refused(refused.decision)
    fields = tuple(violation.path for violation in refused.violations)
    message = "; ".join(violation.sentence() for violation in refused.violations)
    return Outcome(False, (), (MANIFEST_RULE,) * len(fields), fields, message)


class Change(NamedTuple):
    """A field in which the recorded and the repeated object differ; a value of None means that the field is absent."""

    field: str
    recorded: Any
    rerun: Any


def changes(recorded: JsonObject | None, rerun: JsonObject | None) -> list[Change]:
    """Return the fields in which two objects differ. Values that may be secret are replaced by a placeholder."""
    return list(_changes(recorded or {}, rerun or {}, ""))


def _changes(before: Any, after: Any, at: str) -> Iterator[Change]:
    if (isinstance(before, dict) and isinstance(after, dict | None)) or (isinstance(after, dict) and before is None):
        one, other = cast("JsonObject", before or {}), cast("JsonObject", after or {})
        for name in sorted(one.keys() | other.keys()):
            if may_hold_secret(at, name):
                if one.get(name) != other.get(name):
                    yield Change(_below(at, name), *(WITHHELD if name in each else None for each in (one, other)))
            else:
                yield from _changes(one.get(name), other.get(name), _below(at, name))
    elif _are_objects(before) and _are_objects(after) and before != after:
        pairs = zip_longest(cast("list[JsonObject]", before or []), cast("list[JsonObject]", after or []))
        for index, pair in enumerate(pairs):
            yield from _changes(*pair, f"{at}[{index}]")
    elif before != after:
        yield Change(at, before, after)


def _are_objects(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(isinstance(item, dict) for item in cast("list[Any]", value))


def _below(at: str, name: str) -> str:
    if "." in name or "/" in name:
        return f"{at}[{name}]"
    return f"{at}.{name}" if at else name


WEBHOOK = "webhook"
_SEEN_WITHIN_SECONDS = 600
"""Maximum time between the review of a pod and its fact; a later fact is about another pod of its name."""
_ONE_REQUEST_SECONDS = 30
"""Maximum time between the two webhook calls for one object."""


class RecordedDecision(NamedTuple):
    based_on: int  # Position up to which the log was folded when the decision was made
    at: str  # Time of the decision, RFC 3339
    event: AdmissionDecided
    is_whole: bool  # Whether the decision contains its object; decisions of old versions of the manager do not


class Record:
    """The admission decisions that the stream of explanations still has, with indexes."""

    def __init__(self, stored: Iterable[StoredEvent]) -> None:
        self.decisions = list(_read(stored))  # All decisions in order
        # Request uid of a mutating review -> decision of the validating webhook that denied the changed object.
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
        """Return the mutating webhook's decision about a pod first observed `at` (RFC 3339); None if not retained.

        Each decision is returned only once, also for pods with a generated name.
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
