"""Run admission for `koord apply`.

Pods of manifests and of workloads go through `created_pod`. As the API server does, it sets defaults and the priority
of the class before admission, sets the defaults again in what admission changed, and checks the rules of the kind last.

Source:
    manager spec, 8 to 13; reality spec, 1
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.manifests import InvalidManifest, check_manifest, shape_manifest
from koordcore.protocol.objects import ObjectMeta, Pod, PodSpec
from koordcore.protocol.pod_defaults import with_pod_defaults
from koordcore.protocol.qos import kube_qos
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.chain import mutate, surroundings
from koord_manager.domain.admission.context.facts import QUOTAS
from koord_manager.domain.admission.context.quota import read_quota
from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.pods.validating import validate_pod
from koord_manager.domain.admission.quotas.evaluation import (
    child_request_text,
    evaluate_quota,
    evaluated_request,
    quota_to_evaluate,
)
from koord_manager.domain.admission.recorded_object import LAST_APPLIED
from koord_manager.domain.admission.request import AdmissionDecision, JsonObject, Operation, Request, Violation
from koord_manager.domain.cluster.view import ManagerView

DEFAULT_SCHEDULER = "koord-scheduler"
WITHIN_RULE = "within rule "
"""Prefix of the rule of a violation of admission; its value is the whole sentence."""


class AdmissionRefused(InvalidManifest):
    """Raised if admission denies an object. `decision` is the admission decision that is recorded."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__(
            [
                InvalidInput(f"{WITHIN_RULE}{violation.rule}", violation.message, violation.field)
                for violation in violations
            ]
        )
        self.decision = AdmissionDecision(object=None, violations=violations)


class CreatedPod(NamedTuple):
    pod: Pod  # The pod as it enters the log
    steps: tuple[str, ...]  # Names of the steps of admission that changed it
    given: dict[str, Any]  # The document before the steps, with defaults and the priority of its class
    made: dict[str, Any]  # The document after the steps
    # Fact with the new usage of the pod's quota, to be appended together with the pod; None if no quota is charged.
    quota: Draft | None


Accounts = Mapping[AggregateRef, Draft]
"""Quota usage that is decided and not appended yet."""


def created_pod(
    view: ManagerView,
    document: dict[str, Any],
    *,
    namespace: str,
    uid: str,
    now: str,
    options: Options,
    accounts: Accounts | None = None,
) -> CreatedPod:
    """Run admission for a new pod and return it, with its priority, QoS class and phase.

    Args:
        document: A Pod as JSON, not changed.
        uid: Uid of the pod, from which random numbers for profiles with a probability derive.
        now: Creation time, RFC 3339.
        accounts: Quota usage that other pods of the same decision have changed and that is not in the log yet.

    Raises:
        InvalidManifest: The document is refused, with every violation that was found.

    Source: manager spec, 8 to 10.
    """
    prepared = with_priority_of_class(view, with_pod_defaults(document))
    request = Request(uid=uid, operation=Operation.CREATE, resource="pods", namespace=namespace, object=prepared)
    decision = mutate(request, surroundings(request, view.admission, options))
    if not decision.allowed:
        raise AdmissionRefused(decision.violations)
    changed = decision.object or prepared
    made = changed if changed is prepared else with_pod_defaults(changed)
    _check_identity(made, prepared)
    manifest = shape_manifest(made)
    pod = cast("Pod", manifest.object)
    pod.metadata.namespace = namespace
    check_manifest(manifest)
    keep_identity(pod.metadata, None, uid, now)
    pod.spec.scheduler_name = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    resolve_priority(view, pod.spec)
    pod.status.phase = pod.status.phase or "Pending"
    pod.status.qos_class = ""
    pod.status.qos_class = kube_qos(pod)
    judge_pod(view, pod, None, options)
    quota = quota_account(view, pod, None, options, accounts)
    return CreatedPod(pod, decision.steps, prepared, made, quota)


def _check_identity(made: JsonObject, given: JsonObject) -> None:
    """Check that admission changed neither the kind of a pod nor its name.

    Raises:
        InvalidManifest: It did, as the patch of a ClusterColocationProfile may.
    """
    for path in (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")):
        before, after = (seen(document, *path[:-1]).get(path[-1]) for document in (given, made))
        if before and before != after:
            raise InvalidManifest([InvalidInput(f"as before admission ({before})", after, ".".join(path))])


def judge_pod(view: ManagerView, pod: Pod, old: Pod | None, options: Options) -> None:
    """Check a pod with the rules of the validating webhook, if its gate is on.

    Raises:
        AdmissionRefused: The pod breaks a rule.
    """
    if not options.enabled("PodValidatingWebhook"):
        return
    facts = view.admission
    violations = validate_pod(pod, old, pod.metadata.namespace, facts, facts.quotas, options)
    if violations:
        raise AdmissionRefused(violations)


def quota_account(
    view: ManagerView, pod: Pod, old: Pod | None, options: Options, accounts: Accounts | None = None
) -> Draft | None:
    """Return the fact with the usage of a pod's quota after the pod is added, or None if no quota is charged.

    Raises:
        AdmissionRefused: The pod would exceed the quota, or the quota does not exist.

    Source: manager spec, 10.4.
    """
    name = quota_to_evaluate(pod, old, pod.metadata.namespace, view.admission.quotas, options)
    if name is None:
        return None
    field = f"labels.{keys.QUOTA_NAME}"
    quota = view.admission.quotas.get(name)
    state = view.custom(QUOTAS, quota.namespace, quota.name) if quota is not None else None
    if quota is None or state is None:
        raise AdmissionRefused([Violation(rule="quota-not-found", field=field, message=f"quota {name} does not exist")])
    ref = custom_ref(QUOTAS, quota.namespace, quota.name)
    document = state.object
    decided = (accounts or {}).get(ref)
    if decided is not None and isinstance(decided.event, CustomObjectObserved):
        document = decided.event.object
        quota = read_quota(document)
    evaluation = evaluate_quota(quota, [evaluated_request(pod, options)])
    answer = evaluation.answers[0]
    if not answer.allowed:
        raise AdmissionRefused([Violation(rule="quota-exceeded", field=field, message=answer.message)])
    if not evaluation.written:
        return None
    metadata = dict(document.get("metadata") or {})
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        keys.QUOTA_CHILD_REQUEST: child_request_text(evaluation.used),
    }
    return Draft(ref, CustomObjectObserved(object={**document, "metadata": metadata}), state.seq)


def with_priority_of_class(view: ManagerView, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a new pod with the priority of its class, as the API server sets it before webhooks.

    A document without `priorityClassName` gets the default class of the cluster. If there is none, the document is
    returned itself.

    Raises:
        InvalidManifest: The class is unknown, or the document's priority differs from that of the class.

    Source: Kubernetes, admission plugin Priority; reality spec, 1.3.
    """
    written: object = document.get("spec")
    if not isinstance(written, dict):
        return document
    spec = cast("dict[str, Any]", written)
    if not spec.get("priorityClassName"):
        default = view.admission.default_priority_class()
        if default is None:
            return document
        spec = {**spec, "priorityClassName": default.metadata.name}
    typed = cast("Pod", shape_manifest({**document, "spec": spec}).object)
    resolve_priority(view, typed.spec)
    spec = {**spec, "priority": typed.spec.priority}
    if typed.spec.preemption_policy:
        spec["preemptionPolicy"] = typed.spec.preemption_policy
    return {**document, "spec": spec}


def keep_identity(meta: ObjectMeta, old: ObjectMeta | None, uid: str, now: str) -> None:
    """Set uid and creation time of an object, in place; values in the manifest are ignored.

    Resource version, deletion time and kubectl's copy of the manifest are removed.

    Args:
        old: Metadata of the stored object, whose uid and time are kept, or None for a new object.
        now: Creation time for a new object, RFC 3339.
    """
    meta.uid = old.uid if old else uid
    meta.creation_timestamp = old.creation_timestamp if old else now
    meta.resource_version = ""
    meta.deletion_timestamp = None
    meta.annotations.pop(LAST_APPLIED, None)


def resolve_priority(view: ManagerView, spec: PodSpec) -> None:
    """Set the priority and the preemption policy of the pod's PriorityClass in its spec, in place.

    Raises:
        InvalidManifest: The class is unknown, or the priority in the spec differs from that of the class.
    """
    if not spec.priority_class_name:
        return
    found = view.admission.priority_class(spec.priority_class_name)
    if found is None:
        raise InvalidManifest(
            [InvalidInput("the name of an existing PriorityClass", spec.priority_class_name, "spec.priorityClassName")]
        )
    if spec.priority is not None and spec.priority != found.value:
        raise InvalidManifest(
            [InvalidInput(f"absent or {found.value}, the value of the class", spec.priority, "spec.priority")]
        )
    spec.priority = found.value
    spec.preemption_policy = spec.preemption_policy or found.preemption_policy


def pod_document(pod: Pod) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(pod)}


class Applied(NamedTuple):
    """The result of applying one document, before its facts are appended."""

    # "created", "configured", "unchanged", "deleted" or "not-found"; "rejected" for a configuration that is recorded as
    # rejected.
    action: str
    uid: str  # Uid of the object, or empty for kinds that are identified by name
    drafts: list[Draft]  # Facts to append together; empty if nothing changes
    refusal: InvalidManifest | None = None  # Violations of a rejected configuration, or None
    steps: tuple[str, ...] = ()  # Names of the steps of admission that changed the object
    given: JsonObject | None = None  # The object before the steps, or None if no step changed it
    made: JsonObject | None = None  # The object after the steps, or None if no step changed it
    warnings: tuple[str, ...] = ()  # Warnings about the object, whether it is accepted or rejected
