"""Find the admission decisions in a log that can be repeated.

A case is made from a recorded decision (`AdmissionDecided`) or from the fact of an object that was admitted without
one. There is no case for facts that admission does not decide. `NOT_RETAINED` stands for decisions whose input is gone.

Source:
    manager spec, 7.1, 8.5, 8 to 13
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from koordcore.events.envelope import AggregateRef, Draft, Event, StoredEvent
from koordcore.events.objects import ConfigAccepted, ConfigRejected, CustomObjectObserved, PodSpecAdded, PodSpecChanged
from koordcore.events.objects import plural_of as plural_of_ref
from koordcore.protocol import keys
from koordcore.protocol.manifests import InvalidManifest
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.state.aggregates import PodSpecState, WorkloadState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.text_limits import decode_within_limits
from koordcore.values.timestamps import unix_seconds

from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.options import Options, options_from
from koord_manager.domain.admission.recorded_object import LAST_APPLIED, recorded_part, with_recorded_templates
from koord_manager.domain.admission.request import JsonObject, Operation, Request
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.colocation_profiles import is_wanted, reconciled_pod
from koord_manager.domain.controllers.standalone.workload_replicas import is_made_here, templated_pod
from koord_manager.domain.documents.admitting import created_pod, pod_document
from koord_manager.domain.documents.apply import APPLIED_DIGEST
from koord_manager.domain.what_if.admission_outcome import (
    WEBHOOK,
    Outcome,
    Record,
    RecordedDecision,
    admit_again,
    apply_again,
    ask_again,
    delete_again,
    invalid_outcome,
    is_alike,
    plural_of,
    recorded_outcome,
    request_of,
    stored_object,
)

NOT_RETAINED: Final = "not kept"
NotRetained = Literal["not kept"]
APPLIED_KINDS: Final = frozenset(("elasticquotas", "reservations"))
"""Custom resources that admission changes or validates."""
_ACCOUNT_RULES: Final = frozenset(("quota-not-found", "quota-exceeded", "quota-gate"))
"""Rules about quota usage, which a webhook reads from the API server."""
_NEW_WITHIN_SECONDS: Final = 60
"""A pod that was older when it was first seen was admitted before the recording."""


@dataclass(slots=True)
class AdmissionContext:
    view: ManagerView
    options: Options
    # Quota usage that earlier pods of the same decision have changed.
    accounts: dict[AggregateRef, Draft] = field(default_factory=dict[AggregateRef, Draft])


Again = Callable[[AdmissionContext], Outcome]


class Case(NamedTuple):
    resource: str
    namespace: str
    name: str
    operation: str
    # Origin of the request: "webhook", "apply", "workload", "controller", or "mirror" for a pod without a recorded
    # decision.
    source: str
    at: str  # Time of the decision, RFC 3339
    recorded: Outcome
    check: Again  # Function that repeats exactly what was recorded, for example one of two webhooks
    is_same: Callable[[Outcome], bool]  # Function that returns whether an outcome equals the recorded one
    again: Again | None  # Function that repeats the whole admission of the object, or None if another case repeats it
    # Whether the manager certainly made this decision. If False, the object may have been admitted before the window.
    is_certain: bool = True
    options: Options | None = None  # Recorded gates and flags, or None if those of the previous decision apply


def decision_case(told: RecordedDecision, record: Record) -> Case | NotRetained:
    """Return a recorded decision in a form that can be repeated, or `NOT_RETAINED` if its input is not in the log.

    `record` finds others about the same request.
    """
    event, recorded = told.event, recorded_outcome(told.event)
    lacks_object = event.object is None and event.operation != Operation.DELETE
    is_webhook = event.source == WEBHOOK
    lacks_old = is_webhook and event.old_object is None and event.operation != Operation.CREATE
    if not told.is_whole or event.pending or lacks_object or lacks_old or event.resource == "pods-binding":
        return NOT_RETAINED
    document, plural = event.object or {}, plural_of(event)

    def is_same(found: Outcome) -> bool:
        if is_webhook and recorded.rules and _ACCOUNT_RULES.issuperset(recorded.rules):
            return found.allowed  # the account was asked last, and it is the API server's
        return is_alike(found, recorded)

    if is_webhook:
        request = request_of(event)

        def asked(context: AdmissionContext) -> Outcome:
            return ask_again(context.view, request, event.webhook, context.options)

        def admitted(context: AdmissionContext) -> Outcome:
            return admit_again(context.view, request, context.options)

        check, again = asked, None if event.uid in record.follow_ups else admitted
    else:

        def applied(context: AdmissionContext) -> Outcome:
            if event.operation == Operation.DELETE:
                return delete_again(context.view, plural, event.namespace, event.name, context.options)
            return apply_again(context.view, document, context.options, uid=event.draws, now=told.at)

        check = again = applied
    return Case(
        plural,
        event.namespace,
        event.name,
        event.operation,
        event.source,
        told.at,
        recorded,
        check,
        is_same,
        again,
        options=options_from(event.settings),
    )


def fact_case(
    stored: StoredEvent, event: Event, view: ManagerView, record: Record, since: str
) -> Case | NotRetained | None:
    """Return the decision that admitted the object of a fact, in a form that can be repeated.

    Args:
        view: The view at the position of the decision.
        since: Time of the oldest retained decision, RFC 3339, or empty if all are retained.

    Returns:
        The decision. `NOT_RETAINED` if its input is gone. None if admission did not decide the object, or if a
        recorded decision about it exists.
    """
    if record.of_request(stored.causation_id) is not None:
        return None  # its decision says more
    match event:
        case PodSpecAdded(object=pod):
            return _pod_case(stored, pod, view, record, since)
        case PodSpecChanged(object=pod) if stored.causation_id.startswith("profile/"):
            return _controller_case(stored, pod, view)
        case CustomObjectObserved(object=document) if _is_applied(stored):
            return _custom_case(stored, document)
        case ConfigAccepted() | ConfigRejected() if _is_applied(stored):
            return _config_case(stored, event, view)
        case _:
            return None


def _is_applied(stored: StoredEvent) -> bool:
    """Return whether `koord apply` caused the fact itself, and not a side effect such as the usage of a quota."""
    request, _, number = stored.causation_id.partition("/")
    return bool(request) and number.isdigit()


def _admitted_case(stored: StoredEvent, event: Event, pod: tuple[str, str], source: str, again: Again) -> Case:
    """Return the case of a fact that contains the whole admitted object, so that results are compared by value.

    Args:
        pod: Namespace and name of the object.
        source: Who asked for admission.
        again: Function that repeats the admission.
    """
    result = stored_object(event)

    def is_same(found: Outcome) -> bool:
        return found.allowed and found.object == result

    return Case(
        plural_of_ref(stored.ref.id) if stored.ref.kind == "customspec" else "pods",
        *pod,
        "CREATE" if isinstance(event, PodSpecAdded) else "UPDATE",
        source,
        stored.occurred_at,
        Outcome(True, object=result),
        again,
        is_same,
        again,
    )


def _pod_case(
    stored: StoredEvent, pod: Pod, view: ManagerView, record: Record, since: str
) -> Case | NotRetained | None:
    meta, uid, now = pod.metadata, stored.ref.id, stored.occurred_at
    named, event = (meta.namespace, meta.name), PodSpecAdded(object=pod)
    if _is_applied(stored):
        if APPLIED_DIGEST in meta.annotations:
            return NOT_RETAINED  # admission changed it, and what it was before is in the decision alone
        document = pod_document(pod)
        return _admitted_case(
            stored,
            event,
            named,
            "apply",
            lambda context: apply_again(context.view, document, context.options, uid=uid, now=now),
        )
    owner = next((owner.uid for owner in meta.owner_references if is_made_here(pod, owner.uid)), "")
    workload = view.state.of_kind(WorkloadState).get(owner)
    if stored.causation_id.startswith("control/") and workload is not None:
        template = templated_pod(workload.object, owner, meta.name)
        return _admitted_case(
            stored, event, named, "workload", lambda context: _created(context, template, named[0], uid, now)
        )
    if not stored.causation_id.startswith("gateway/"):
        return None
    changed = record.of_pod(pod, now)
    namespace = view.admission.namespace_labels(meta.namespace) or {}
    is_new = unix_seconds(now) - unix_seconds(meta.creation_timestamp or "") < _NEW_WITHIN_SECONDS
    if changed is not None or not is_new or keys.CONTROL_PLANE_NAMESPACE in namespace:
        return None
    kept = recorded_part("pods", pod_document(pod))
    if kept is None or now < since:
        return NOT_RETAINED
    request = Request(
        uid=uid, operation=Operation.CREATE, resource="pods", namespace=meta.namespace, name=meta.name, object=kept
    )
    case = _admitted_case(
        stored, event, named, "mirror", lambda context: admit_again(context.view, request, context.options)
    )

    def is_same(found: Outcome) -> bool:
        return found.allowed and not found.steps

    return case._replace(is_certain=False, is_same=is_same)


def _created(context: AdmissionContext, template: JsonObject, namespace: str, uid: str, now: str) -> Outcome:
    try:
        found = created_pod(
            context.view,
            template,
            namespace=namespace,
            uid=uid,
            now=now,
            options=context.options,
            accounts=context.accounts,
        )
    except (InvalidManifest, InvalidInput) as refused:
        return invalid_outcome(refused)
    if found.quota is not None:
        context.accounts[found.quota.ref] = found.quota
    return Outcome(True, found.steps, object=stored_object(PodSpecAdded(object=found.pod)))


def _controller_case(stored: StoredEvent, pod: Pod, view: ManagerView) -> Case:
    _, name, _, uid, *_ = stored.causation_id.split("/")
    spec = view.state.of_kind(PodSpecState).get(uid)
    before = spec.object if spec is not None else pod
    document = pod_document(before)
    in_force = next((one for one in view.admission.profiles().all if one.name == name), None)
    handles_all = in_force is not None and not in_force.managed
    compared_fields = Outcome(True, object=stored_object(PodSpecChanged(object=before)))

    def again(context: AdmissionContext) -> Outcome:
        facts = context.view.admission
        profile = next((one for one in facts.profiles().all if one.name == name), None)
        if profile is None or profile.terminating or not profile.has_pod_selector:
            return compared_fields
        try:
            if not (profile.managed or handles_all) or not is_wanted(profile, uid, before, facts):
                return compared_fields
            after = reconciled_pod(document, profile, facts)
        except InvalidInput:
            return compared_fields  # a patch that does not fit is left
        if after is None:
            return compared_fields
        changed = stored_object(PodSpecChanged(object=pod_from_json(after)))
        return Outcome(True, (f"ClusterColocationProfile/{name}",), object=changed)

    named = (pod.metadata.namespace, pod.metadata.name)
    return _admitted_case(stored, PodSpecChanged(object=pod), named, "controller", again)


def _custom_case(stored: StoredEvent, document: JsonObject) -> Case | None:
    try:
        metadata = seen(document, "metadata")
        if plural_of_ref(stored.ref.id) not in APPLIED_KINDS or metadata.get("uid") != stored.correlation_id:
            return None
        manifest = decode_within_limits(str(seen(metadata, "annotations").get(LAST_APPLIED)), JsonObject)
    except (codec.DecodeError, InvalidInput):
        return None
    named = (str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
    uid, now = stored.correlation_id, stored.occurred_at
    return _admitted_case(
        stored,
        CustomObjectObserved(object=with_recorded_templates(plural_of_ref(stored.ref.id), document).document),
        named,
        "apply",
        lambda context: apply_again(context.view, manifest, context.options, uid=uid, now=now),
    )


def _config_case(stored: StoredEvent, event: ConfigAccepted | ConfigRejected, view: ManagerView) -> Case | None:
    if isinstance(event, ConfigAccepted):
        meta, data = event.object.metadata, event.object.data
        named, recorded = (meta.namespace, meta.name), Outcome(True)
    else:
        named, data = (event.namespace, event.name), event.data
        recorded = Outcome(False, fields=tuple(event.reasons), message="; ".join(event.reasons.values()))
    names = view.admission.names
    if named != (names.slo_namespace, names.slo_name):
        return None
    metadata = {"namespace": named[0], "name": named[1]}
    document: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}

    def again(context: AdmissionContext) -> Outcome:
        return apply_again(context.view, document, context.options, uid="", now=stored.occurred_at)

    def is_same(found: Outcome) -> bool:
        sections = {where.partition(".")[0] for where in found.fields}
        return found.allowed == recorded.allowed and sections.issuperset(
            where.partition(".")[0] for where in recorded.fields
        )

    return Case("configmaps", *named, "APPLY", "apply", stored.occurred_at, recorded, again, is_same, again)
