"""Turn one manifest into the facts that mirror its object, or refuse it with every reason.

`decide_delete` returns the facts that remove an object.

Admission (`admitting`) changes and validates the object first. Users cannot change node, uid and status of a pod, nor
fields that are immutable in Kubernetes. If a user applies a pod as `koord get` shows it, nothing changes.
`apply_custom` handles custom resources, `apply_node` nodes.

Source:
    protocol spec, 2.3; event-bus spec, 2.1; manager spec, 8 to 13
"""

import hashlib
from dataclasses import replace
from typing import Any, NamedTuple, cast

import msgspec
from koordcore.events import objects
from koordcore.events.envelope import AggregateRef, Draft, name_token, namespaced_token
from koordcore.protocol import objects as kube
from koordcore.protocol.manifests import (
    CustomObject,
    InvalidManifest,
    Manifest,
    check_manifest,
    check_update,
    shape_manifest,
)
from koordcore.protocol.pod_defaults import with_pod_defaults
from koordcore.state.aggregates import NamespaceState, PodState, PriorityClassState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.json_object import seen, texts
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.pods.impossible import impossible_requests
from koord_manager.domain.admission.recorded_object import LAST_APPLIED, our_sections
from koord_manager.domain.cluster.mirrored_kinds import AGGREGATES, deleted, object_of, ref_of_name
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents import admitting
from koord_manager.domain.documents.admitting import Applied
from koord_manager.domain.documents.apply_custom import apply_custom, delete_custom
from koord_manager.domain.documents.apply_node import apply_node
from koord_manager.domain.documents.config_verdict import ConfigVerdict, config_question, judge_config

APPLIED_DIGEST = "koordstream.io/applied-digest"
"""Digest of the manifest of a pod that admission changed, so that applying it again changes nothing."""

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Label of every namespace with its name, so that selectors can name a namespace."""


def decide_apply(
    view: ManagerView,
    manifest: Manifest,
    *,
    new_uid: str,
    now: str,
    options: Options | None = None,
    judged: ConfigVerdict | None = None,
) -> Applied:
    """Decide `koord apply` of one manifest: return the facts that mirror its object.

    For an invalid slo-controller-config, the result is the fact `ConfigRejected`, with the violations in `refusal`.

    Args:
        manifest: A manifest whose fields have the right types. The rules of its kind are checked after admission.
        now: Creation time of a new object, RFC 3339.
        judged: The verdict about slo-controller-config, if it was judged before. None: it is judged here.

    Raises:
        InvalidManifest: The document is refused.
    """
    options = options or Options()
    try:
        return _decide(view, manifest, new_uid, now, options, judged)
    except InvalidInput as error:
        raise InvalidManifest([error]) from error
    except (RecursionError, OverflowError) as error:
        rule = "within what can be computed with (nesting, size of numbers)"
        raise InvalidManifest([InvalidInput(rule, str(error), "document")]) from error


def _decide(
    view: ManagerView, manifest: Manifest, new_uid: str, now: str, options: Options, judged: ConfigVerdict | None
) -> Applied:
    if not isinstance(manifest.object, kube.Pod):
        check_manifest(manifest)
    match manifest.object:
        case kube.Pod() as pod:
            return _apply_pod(view, manifest, pod, new_uid, now, options)
        case kube.Node():
            return apply_node(view, manifest, now=now, options=options)
        case kube.Workload() as workload:
            return _apply_workload(view, workload, new_uid, now, options)
        case kube.ConfigMap() as config:
            return _apply_config(view, config, now, options, judged)
        case kube.Namespace() as namespace:
            state = view.state.of_kind(NamespaceState).get(name_token(namespace.metadata.name))
            ref = AggregateRef("namespace", name_token(namespace.metadata.name))
            old = state.object if state else None
            admitting.keep_identity(namespace.metadata, old.metadata if old else None, "", now)
            namespace.metadata.labels[NAMESPACE_NAME] = namespace.metadata.name
            return _observed(
                view, ref, objects.NamespaceObserved(object=namespace), existed=old is not None, same=old == namespace
            )
        case kube.PriorityClass() as priority_class:
            return _apply_priority_class(view, priority_class, now)
        case CustomObject() as custom:
            return apply_custom(view, custom, new_uid=new_uid, now=now, options=options)


def _apply_pod(
    view: ManagerView, manifest: Manifest, pod: kube.Pod, new_uid: str, now: str, options: Options
) -> Applied:
    namespace = pod.metadata.namespace
    existing = view.pod(namespace, pod.metadata.name)
    document = _without_last_applied(manifest.document)
    digest = hashlib.blake2b(codec.encode_canonical(document), digest_size=8).hexdigest()
    if existing is None:
        created = admitting.created_pod(view, document, namespace=namespace, uid=new_uid, now=now, options=options)
        if created.steps:
            created.pod.metadata.annotations[APPLIED_DIGEST] = digest
        drafts = [Draft(AggregateRef("podspec", new_uid), objects.PodSpecAdded(object=created.pod), 0)]
        if created.quota is not None:
            drafts.append(created.quota)
        warnings = impossible_requests(created.pod, view.admission.hardware)
        return Applied(
            "created", new_uid, drafts, steps=created.steps, given=created.given, made=created.made, warnings=warnings
        )
    uid, state = existing
    old = state.object
    kept = old.metadata.annotations.get(APPLIED_DIGEST)
    if kept == digest:
        return Applied("unchanged", uid, [])
    is_shown = kept is not None and pod.metadata.annotations.get(APPLIED_DIGEST) == kept
    defaulted = with_pod_defaults(document)
    if defaulted is not document:
        pod = cast("kube.Pod", shape_manifest(defaulted).object)
    if kept is not None and not is_shown:
        # what admission made of the new manifest is compared with what it made of the old one
        created = admitting.created_pod(
            view, document, namespace=namespace, uid=uid, now=now, options=_uncounted(options)
        )
        pod = created.pod
        if pod.spec.priority_class_name == _default_class(view, document):
            pod.spec.priority_class_name, pod.spec.priority, pod.spec.preemption_policy = "", None, None
        pod.metadata.annotations[APPLIED_DIGEST] = digest
    check_manifest(manifest._replace(object=pod))
    admitting.keep_identity(pod.metadata, old.metadata, uid, now)
    pod.metadata.owner_references = old.metadata.owner_references
    pod.spec.scheduler_name = pod.spec.scheduler_name or old.spec.scheduler_name
    _keep_priority(view, pod.spec, old.spec)
    pod.status = old.status
    node = old.spec.node_name or _node_of(view, uid)
    was = msgspec.structs.replace(old.spec, node_name=node) if pod.spec.node_name else old.spec
    _check_changed(pod.spec, was)
    pod.spec.node_name = old.spec.node_name  # where it was placed is the scheduler's fact
    admitting.judge_pod(view, pod, old, options)
    if pod == old:
        return Applied("unchanged", uid, [])
    if is_shown:
        pod.metadata.annotations[APPLIED_DIGEST] = digest
    account = admitting.quota_account(view, pod, old, options)
    drafts = [Draft(AggregateRef("podspec", uid), objects.PodSpecChanged(object=pod), state.seq)]
    return Applied("configured", uid, [*drafts, account] if account else drafts)


def _check_changed(new: kube.PodSpec, old: kube.PodSpec) -> None:
    """Check the changed spec of a pod, and take back, in place, the defaults that the stored spec does not have.

    Earlier versions stored pods without defaults. Requests and ports of a stored pod do not change.

    Raises:
        InvalidManifest: The API does not allow the change.
    """
    document: dict[str, Any] = {"spec": msgspec.to_builtins(old)}
    completed = with_pod_defaults(document)
    if completed is document:
        check_update(new, old)
        return
    check_update(new, kube.pod_from_json(completed).spec)
    new.resources = old.resources
    for after, before in zip(
        [*new.containers, *new.init_containers], [*old.containers, *old.init_containers], strict=True
    ):
        after.resources, after.ports = before.resources, before.ports


def _keep_priority(view: ManagerView, new: kube.PodSpec, old: kube.PodSpec) -> None:
    """Complete the priority of a changed pod in its spec, in place. What the manifest leaves out stays as stored.

    So a pod keeps the class that was the default when it was created.

    Source: Kubernetes, admission plugin Priority (update).
    """
    new.priority_class_name = new.priority_class_name or old.priority_class_name
    if new.priority_class_name == old.priority_class_name:
        new.priority = old.priority if new.priority is None else new.priority
        new.preemption_policy = new.preemption_policy or old.preemption_policy
    else:
        admitting.resolve_priority(view, new)


def _default_class(view: ManagerView, document: dict[str, Any]) -> str | None:
    """Return the name of the class that admission gives to a pod without a class; None if the document names one."""
    default = view.admission.default_priority_class()
    return None if default is None or seen(document, "spec").get("priorityClassName") else default.metadata.name


def _node_of(view: ManagerView, uid: str) -> str:
    placed = view.state.of_kind(PodState).get(uid)
    return placed.node if placed else ""


def _uncounted(options: Options) -> Options:
    """Return the options without quota admission, for a pod that is compared or tried and never stored."""
    return replace(options, gates={**options.gates, "EnableQuotaAdmission": False})


def _without_last_applied(document: dict[str, Any]) -> dict[str, Any]:
    annotations = texts(document, "metadata", "annotations")
    if LAST_APPLIED not in annotations:
        return document
    kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    return {**document, "metadata": {**seen(document, "metadata"), "annotations": kept}}


def _apply_workload(view: ManagerView, workload: kube.Workload, new_uid: str, now: str, options: Options) -> Applied:
    meta = workload.metadata
    existing = view.workload(workload.kind, meta.namespace, meta.name)
    uid = existing[0] if existing else new_uid
    old = existing[1].object if existing else None
    admitting.keep_identity(meta, old.metadata if old else None, uid, now)
    workload.template.metadata.annotations.pop(LAST_APPLIED, None)
    # a template that can never be admitted is refused now, not pod by pod later
    trial = kube.Pod(
        metadata=msgspec.structs.replace(workload.template.metadata, namespace=meta.namespace, name=meta.name),
        spec=workload.template.spec,
    )
    try:
        document = admitting.pod_document(trial)
        admitting.created_pod(view, document, namespace=meta.namespace, uid=uid, now=now, options=_uncounted(options))
    except InvalidManifest as refused:
        raise InvalidManifest([violation.at("spec.template") for violation in refused.violations]) from refused
    ref = AggregateRef("workloadspec", uid)
    event = objects.WorkloadObserved(object=workload)
    return _observed(view, ref, event, existed=old is not None, same=old == workload)._replace(uid=uid)


def _apply_priority_class(view: ManagerView, priority_class: kube.PriorityClass, now: str) -> Applied:
    token = name_token(priority_class.metadata.name)
    state = view.state.of_kind(PriorityClassState).get(token)
    old = state.object if state else None
    admitting.keep_identity(priority_class.metadata, old.metadata if old else None, "", now)
    if old is not None and old.value != priority_class.value:
        raise InvalidManifest([InvalidInput(f"unchanged ({old.value})", priority_class.value, "value")])
    policy = priority_class.preemption_policy
    if old is not None and old.preemption_policy != policy:
        raise InvalidManifest([InvalidInput(f"unchanged ({old.preemption_policy})", policy, "preemptionPolicy")])
    default = view.admission.default_priority_class()
    if priority_class.global_default and default is not None and default.metadata.name != priority_class.metadata.name:
        rule = f"false: {default.metadata.name} is the default class of this cluster already"
        raise InvalidManifest([InvalidInput(rule, True, "globalDefault")])
    ref = AggregateRef("priorityclass", token)
    event = objects.PriorityClassObserved(object=priority_class)
    return _observed(view, ref, event, existed=old is not None, same=old == priority_class)


def _apply_config(
    view: ManagerView, config: kube.ConfigMap, now: str, options: Options, judged: ConfigVerdict | None
) -> Applied:
    meta = config.metadata
    ref = AggregateRef("config", namespaced_token(meta.namespace, meta.name))
    question = config_question(view, config, options)
    state = view.config(meta.namespace, meta.name)
    old = state.object if state else None
    admitting.keep_identity(meta, old.metadata if old else None, "", now)
    warnings: tuple[str, ...] = ()
    if question is not None:
        verdict = judged if judged is not None else judge_config(question)
        warnings = verdict.warnings
        config.data = our_sections(config.data)
        if verdict.refusal is not None and old != config:
            reasons = {violation.path.partition(".")[0]: violation.sentence() for violation in verdict.violations}
            event = objects.ConfigRejected(namespace=meta.namespace, name=meta.name, data=config.data, reasons=reasons)
            draft = Draft(ref, event, view.state.last_seq(ref))
            return Applied("rejected", "", [draft], verdict.refusal, warnings=warnings)
    if old == config:
        return Applied("unchanged", "", [], warnings=warnings)
    taken = _observed(view, ref, objects.ConfigAccepted(object=config), existed=old is not None, same=False)
    return taken._replace(warnings=warnings)


def _observed(
    view: ManagerView,
    ref: AggregateRef,
    event: objects.NamespaceObserved
    | objects.PriorityClassObserved
    | objects.WorkloadObserved
    | objects.ConfigAccepted,
    *,
    existed: bool,
    same: bool,
) -> Applied:
    if existed and same:
        return Applied("unchanged", "", [])
    action = "configured" if existed else "created"
    return Applied(action, "", [Draft(ref, event, view.state.last_seq(ref))])


class Target(NamedTuple):
    """Kind, namespace and name of an object to delete; the namespace is empty for cluster-scoped kinds."""

    kind: str
    namespace: str
    name: str


def decide_delete(view: ManagerView, target: Target, options: Options | None = None) -> list[Draft] | None:
    """Decide `koord delete` of one object: return the facts to append together, or None if the object does not exist.

    If two managers have created a pod of one name, each one without the other's fact, both go. The workload controller
    deletes the pods of a deleted workload. The scheduler returns the resources of a deleted pod to its node.

    Raises:
        InvalidManifest: Admission denies the deletion.
    """
    kind, namespace, name = target
    if kind not in AGGREGATES:
        return delete_custom(view, kind, namespace, name, options or Options())
    if kind in ("Pod", "Deployment", "Job"):
        refs = [AggregateRef(AGGREGATES[kind], uid) for uid in view.all_named(kind, namespace, name)]
    else:
        ref = ref_of_name(view, kind, namespace, name)
        refs = [ref] if ref is not None else []
    states = [
        (ref, state) for ref in refs if (state := view.state.get(ref)) is not None and object_of(state) is not None
    ]
    gone = deleted(kind, namespace, name)
    return [Draft(ref, gone, state.seq) for ref, state in states] or None
