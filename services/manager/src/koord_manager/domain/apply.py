"""One accepted manifest -> the facts that mirror it, or every reason to refuse it.

    Manifest --decide_apply(view, ids, now)--> Accepted(drafts) | raises InvalidManifest

A pod's node, uid and status are not the user's to change; what Kubernetes keeps immutable is immutable here.
source    protocol spec, 2.3; event-bus spec, 2.1
"""

from typing import NamedTuple

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, name_token, namespaced_token
from koordcore.events.mirror import (
    ConfigAccepted,
    ConfigRejected,
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    PodSpecAdded,
    PodSpecChanged,
    PriorityClassObserved,
    WorkloadObserved,
)
from koordcore.protocol.config.admission import NodeLabels
from koordcore.protocol.manifests import InvalidManifest, Manifest
from koordcore.protocol.objects import ConfigMap, Namespace, Node, ObjectMeta, Pod, PodSpec, PriorityClass, Workload
from koordcore.protocol.pod_admission import validate_pod
from koordcore.protocol.qos import kube_qos
from koordcore.state.aggregates import NamespaceState, NodeSpecState, PriorityClassState
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.slo_config import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE, check_slo_config
from koord_manager.domain.view import ManagerView, node_name

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's own copy of the manifest: whole objects (and what is secret in them) never enter the log."""
DEFAULT_SCHEDULER = "koord-scheduler"


class Applied(NamedTuple):
    """What applying a document decided.

    action    "created", "configured", "unchanged" or "rejected" (configuration that is recorded as refused)
    uid       uid of the object, "" for kinds that are known by name
    drafts    facts to append together: all or none
    refusal   for "rejected": what is wrong
    """

    action: str
    uid: str
    drafts: list[Draft]
    refusal: InvalidManifest | None = None


def decide_apply(view: ManagerView, manifest: Manifest, *, new_uid: str, now: str) -> Applied:
    """What a document changes.

    new_uid   uid for the object if it is new
    now       RFC 3339 time for its creationTimestamp
    raises    InvalidManifest: refused whole, nothing is to be appended
    """
    match manifest.object:
        case Pod() as pod:
            return _apply_pod(view, pod, new_uid, now)
        case Node() as node:
            return _apply_node(view, node, now)
        case Workload() as workload:
            return _apply_workload(view, workload, new_uid, now)
        case ConfigMap() as config:
            return _apply_config(view, config, now)
        case Namespace() as namespace:
            state = view.state.of_kind(NamespaceState).get(name_token(namespace.metadata.name))
            ref = AggregateRef("namespace", name_token(namespace.metadata.name))
            old = state.object if state else None
            _keep_identity(namespace.metadata, old.metadata if old else None, "", now)
            return _observed(
                view, ref, NamespaceObserved(object=namespace), existed=old is not None, same=old == namespace
            )
        case PriorityClass() as priority_class:
            return _apply_priority_class(view, priority_class, now)


def admitted_pod(view: ManagerView, pod: Pod, *, uid: str, now: str) -> Pod:
    """The pod as it enters the log: priority resolved, QoS class and phase set, defaults filled in.

    raises    InvalidManifest for an unknown priority class or a combination that is not allowed (protocol spec, 2.3)
    """
    meta = pod.metadata
    _keep_identity(meta, None, uid, now)
    spec = pod.spec
    spec.scheduler_name = spec.scheduler_name or DEFAULT_SCHEDULER
    _resolve_priority(view, spec)
    pod.status.phase = pod.status.phase or "Pending"
    pod.status.qos_class = ""
    pod.status.qos_class = kube_qos(pod)
    _refuse_forbidden(pod, None)
    return pod


def _refuse_forbidden(pod: Pod, old: Pod | None) -> None:
    violations = validate_pod(pod, old)
    if violations:
        raise InvalidManifest(
            [
                InvalidInput(f"within rule {violation.rule}", violation.message, violation.field)
                for violation in violations
            ]
        )


def _keep_identity(meta: ObjectMeta, old: ObjectMeta | None, uid: str, now: str) -> None:
    """Identity fields are ours: uid and creation time come from the first version, never from the manifest."""
    meta.uid = old.uid if old else uid
    meta.creation_timestamp = old.creation_timestamp if old else now
    meta.resource_version = ""
    meta.deletion_timestamp = None
    meta.annotations.pop(LAST_APPLIED, None)


def _resolve_priority(view: ManagerView, spec: PodSpec) -> None:
    if not spec.priority_class_name:
        return
    state = view.priority_class(spec.priority_class_name)
    found = state.object if state else None
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


def _apply_pod(view: ManagerView, pod: Pod, new_uid: str, now: str) -> Applied:
    existing = view.pod(pod.metadata.namespace, pod.metadata.name)
    if existing is None:
        admitted = admitted_pod(view, pod, uid=new_uid, now=now)
        return Applied("created", new_uid, [Draft(AggregateRef("podspec", new_uid), PodSpecAdded(object=admitted), 0)])
    uid, state = existing
    old = state.object
    _keep_identity(pod.metadata, old.metadata, uid, now)
    pod.metadata.owner_references = old.metadata.owner_references
    pod.spec.scheduler_name = pod.spec.scheduler_name or old.spec.scheduler_name
    _resolve_priority(view, pod.spec)
    pod.status = old.status
    _refuse_immutable_changes(pod.spec, old.spec)
    _refuse_forbidden(pod, old)
    if pod == old:
        return Applied("unchanged", uid, [])
    return Applied("configured", uid, [Draft(AggregateRef("podspec", uid), PodSpecChanged(object=pod), state.seq)])


def _refuse_immutable_changes(new: PodSpec, old: PodSpec) -> None:
    """A pod's spec is fixed except for images and added tolerations, as the Kubernetes API keeps it."""
    violations: list[InvalidInput] = []
    for field in msgspec.structs.fields(PodSpec):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name in ("containers", "init_containers"):
            before = [msgspec.structs.replace(item, image="") for item in before]
            after = [msgspec.structs.replace(item, image="") for item in after]
        elif field.name == "tolerations":
            missing = [toleration for toleration in before if toleration not in after]
            if missing:
                violations.append(InvalidInput("a superset of the present ones", after, "spec.tolerations"))
            continue
        if before != after:
            rule = f"unchanged ({msgspec.to_builtins(before)!r}); delete the pod to change it"
            violations.append(InvalidInput(rule, msgspec.to_builtins(after), f"spec.{field.encode_name}"))
    if violations:
        raise InvalidManifest(violations)


def _apply_node(view: ManagerView, node: Node, now: str) -> Applied:
    token = name_token(node.metadata.name)
    ref = AggregateRef("nodespec", token)
    state = view.state.of_kind(NodeSpecState).get(token)
    old = state.object if state else None
    _keep_identity(node.metadata, old.metadata if old else None, "", now)
    if old is not None and not node.status.capacity and not node.status.allocatable:
        node.status = old.status  # a manifest without status leaves what the kubelet reported
    node.status.capacity = node.status.capacity or dict(node.status.allocatable)
    node.status.allocatable = node.status.allocatable or dict(node.status.capacity)
    if old is None:
        return Applied("created", "", [Draft(ref, NodeSpecAdded(object=node), view.state.last_seq(ref))])
    if node == old:
        return Applied("unchanged", "", [])
    return Applied("configured", "", [Draft(ref, NodeSpecChanged(object=node), view.state.last_seq(ref))])


def _apply_workload(view: ManagerView, workload: Workload, new_uid: str, now: str) -> Applied:
    meta = workload.metadata
    existing = view.workload(workload.kind, meta.namespace, meta.name)
    uid = existing[0] if existing else new_uid
    old = existing[1].object if existing else None
    _keep_identity(meta, old.metadata if old else None, uid, now)
    workload.template.metadata.annotations.pop(LAST_APPLIED, None)
    # a template that can never be admitted is refused now, not pod by pod later
    trial = Pod(
        metadata=msgspec.structs.replace(workload.template.metadata, namespace=meta.namespace, name=meta.name),
        spec=msgspec.structs.replace(workload.template.spec),
    )
    try:
        admitted_pod(view, trial, uid="", now=now)
    except InvalidManifest as refused:
        raise InvalidManifest([violation.at("spec.template") for violation in refused.violations]) from refused
    ref = AggregateRef("workloadspec", uid)
    event = WorkloadObserved(object=workload)
    return _observed(view, ref, event, existed=old is not None, same=old == workload)._replace(uid=uid)


def _apply_priority_class(view: ManagerView, priority_class: PriorityClass, now: str) -> Applied:
    token = name_token(priority_class.metadata.name)
    state = view.state.of_kind(PriorityClassState).get(token)
    old = state.object if state else None
    _keep_identity(priority_class.metadata, old.metadata if old else None, "", now)
    if old is not None and old.value != priority_class.value:
        raise InvalidManifest([InvalidInput(f"unchanged ({old.value})", priority_class.value, "value")])
    ref = AggregateRef("priorityclass", token)
    event = PriorityClassObserved(object=priority_class)
    return _observed(view, ref, event, existed=old is not None, same=old == priority_class)


def _apply_config(view: ManagerView, config: ConfigMap, now: str) -> Applied:
    meta = config.metadata
    ref = AggregateRef("config", namespaced_token(meta.namespace, meta.name))
    state = view.config(meta.namespace, meta.name)
    old = state.object if state else None
    _keep_identity(meta, old.metadata if old else None, "", now)
    if old == config:
        return Applied("unchanged", "", [])
    if (meta.namespace, meta.name) == (SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME):
        nodes = [
            NodeLabels(name=node_name(token), labels=node.metadata.labels)
            for token in view.nodes()
            if (node := view.node(token))
        ]
        violations = check_slo_config(config.data, old.data if old else {}, nodes)
        if violations:
            reasons = {violation.path.partition(".")[0]: violation.sentence() for violation in violations}
            event = ConfigRejected(namespace=meta.namespace, name=meta.name, data=config.data, reasons=reasons)
            draft = Draft(ref, event, view.state.last_seq(ref))
            return Applied("rejected", "", [draft], InvalidManifest(violations))
    return _observed(view, ref, ConfigAccepted(object=config), existed=old is not None, same=False)


def _observed(
    view: ManagerView,
    ref: AggregateRef,
    event: NamespaceObserved | PriorityClassObserved | WorkloadObserved | ConfigAccepted,
    *,
    existed: bool,
    same: bool,
) -> Applied:
    if existed and same:
        return Applied("unchanged", "", [])
    action = "configured" if existed else "created"
    return Applied(action, "", [Draft(ref, event, view.state.last_seq(ref))])
