"""Decide the writes of computed status to custom resources.

They are PodGroups, ElasticQuotas, Recommendations, ScheduleExplanations, the ClusterNetworkTopology, and the root
quotas of ElasticQuotaProfiles. A write is pending while the mirrored object differs from the fact by value.

Source:
    manager spec, 14, 15.1, 17.2; scheduler-core spec, 8.9, 10.9; protocol spec, 4.6, 9.7, 9.8
"""

from collections.abc import Mapping
from typing import Any, cast

from koordcore.events.envelope import AggregateRef, namespaced_from_token
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol import keys
from koordcore.protocol.lenient_json import parse_json
from koordcore.protocol.recommendations import BOUNDS
from koordcore.state import aggregates
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.state.migrations import MigrationState
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway import published_status
from koord_manager.domain.gateway.objects.reservation_object import pending_pod_annotations, pending_reservation
from koord_manager.domain.gateway.pod_status_writes import MANAGER, Involved, KubernetesEvent
from koord_manager.domain.gateway.requests import JSON, MERGE_PATCH, Json, Request
from koord_manager.domain.gateway.scheduler_statuses import (
    drain_writes,
    explanation_writes,
    migration_writes,
    topology_writes,
)

STATUS_KINDS = (
    "gang",
    "quota",
    "quotaprofile",
    "recommendation",
    "scheduleexplanation",
    "clustertopology",
    "drain",
    "draingroup",
    "migration",
)
"""Aggregate kinds whose facts are written to the status of custom resources."""
_SIGS = "/apis/scheduling.sigs.k8s.io/v1alpha1"
_PROFILES = "/apis/quota.koordinator.sh/v1alpha1"
_ANALYSIS = "/apis/analysis.koordinator.sh/v1alpha1"


def pending_objects(view: ManagerView, ref: AggregateRef) -> list[Request]:
    """Return the requests that write the computed status of an aggregate to its custom resource; empty if up to date.

    Args:
        ref: Aggregate of a kind in `STATUS_KINDS`, such as `gang.<ns=name>`, that of a Reservation object, or that of
            a pod that uses a Reservation or acts as one.
    """
    if ref.kind == "customspec":
        return pending_reservation(view, ref.id.partition("=")[2])
    if ref.kind == "pod":
        return pending_pod_annotations(view, ref.id)
    state = view.state.get(ref)
    match state:
        case aggregates.GangState(status=GangPhaseChanged() as status):
            return _pod_group(view, status)
        case aggregates.QuotaState(status=status):
            return _quota(view, status)
        case aggregates.QuotaProfileState():
            return _root_quota(view, ref.id, state)
        case aggregates.RecommendationState():
            return _recommendation(view, ref.id, state)
        case DrainState() | DrainGroupState():
            return drain_writes(view, ref)
        case MigrationState():
            return migration_writes(view, ref, state)
        case aggregates.ScheduleExplanationState(status=explained):
            found = _found(view, "scheduleexplanations", explained.namespace, explained.name)
            return explanation_writes(found, explained) if found is not None else []
        case aggregates.ClusterTopologyState(status=topology):
            found = _found(view, "clusternetworktopologies", "", topology.name)
            return topology_writes(found, topology) if found is not None else []
        case _:
            return []


def _found(view: ManagerView, plural: str, namespace: str, name: str) -> Json | None:
    stored = view.custom(plural, namespace, name)
    return stored.object if stored is not None else None


def _path(root: str, plural: str, namespace: str, name: str = "") -> str:
    collection = f"{root}/namespaces/{namespace}/{plural}"
    return f"{collection}/{name}" if name else collection


def _meta(found: Json, **fields: Any) -> Json:
    """Return the metadata of a patch; the uid makes the API server refuse it for another object of the name."""
    uid = found["metadata"].get("uid")
    return {**({"uid": uid} if uid else {}), **fields}


# -- PodGroup ---------------------------------------------------------------------------------------------------------


def _pod_group(view: ManagerView, wanted: GangPhaseChanged) -> list[Request]:
    found = _found(view, "podgroups", wanted.namespace, wanted.name)
    if found is None:
        return []
    status = published_status.pod_group_status(wanted)
    present: Json = found.get("status") or {}
    if all((present.get(key) or ("" if isinstance(value, str) else 0)) == value for key, value in status.items()):
        return []
    body = {"metadata": _meta(found), "status": status}
    return [
        Request("podgroup-status", "PATCH", _path(_SIGS, "podgroups", wanted.namespace, wanted.name), body, MERGE_PATCH)
    ]


# -- ElasticQuota -----------------------------------------------------------------------------------------------------


def _quota(view: ManagerView, wanted: QuotaStatusComputed) -> list[Request]:
    found = _found(view, "elasticquotas", wanted.namespace, wanted.name)
    if found is None:
        return []
    annotations: Json = {}
    present = cast("dict[str, str]", found["metadata"].get("annotations") or {})
    for key, amounts in published_status.quota_annotations(wanted).items():
        if _list_of(present.get(key, "")) != _milli(amounts):
            annotations[key] = published_status.list_text(amounts)
    used = published_status.amounts_text(wanted.used)
    status: Json = found.get("status") or {}
    old_used: Json = status.get("used") or {}
    is_used_new = _milli(cast("dict[str, str]", old_used)) != _milli(used)
    if not annotations and not is_used_new:
        return []
    body: Json = {"metadata": _meta(found, **({"annotations": annotations} if annotations else {}))}
    if is_used_new:
        body["status"] = {"used": {**dict.fromkeys(old_used), **used}}  # null removes what is no longer used
    return [
        Request(
            "quota-status", "PATCH", _path(_SIGS, "elasticquotas", wanted.namespace, wanted.name), body, MERGE_PATCH
        )
    ]


def _list_of(text: str) -> dict[str, int]:
    if not text:
        return {}
    try:
        value = parse_json(text)
    except InvalidInput:
        return {"": -1}  # equal to no list: what cannot be read is written anew
    return _milli(cast("dict[str, str]", value)) if isinstance(value, dict) else {"": -1}


def _milli(amounts: Mapping[str, str]) -> dict[str, int]:
    """Return amounts in milli-units without zeros; an invalid amount becomes -1, which equals no valid amount."""
    found: dict[str, int] = {}
    for name, text in amounts.items():
        try:
            milli = parse_milli(text)
        except InvalidInput:
            milli = -1
        if milli:
            found[name] = milli
    return found


# -- ElasticQuotaProfile ----------------------------------------------------------------------------------------------


def _root_quota(view: ManagerView, id_: str, wanted: aggregates.QuotaProfileState) -> list[Request]:
    """Return the writes of a profile's root quota and tree id; none if the profile is gone or invalid."""
    profile_namespace, profile_name = namespaced_from_token(id_)
    profile = _found(view, "elasticquotaprofiles", profile_namespace, profile_name)
    if wanted.fault or not wanted.quota_name or profile is None:
        return []
    requests: list[Request] = []
    namespace, name = wanted.quota_namespace, wanted.quota_name
    found = _found(view, "elasticquotas", namespace, name)
    spec: Json = {"min": wanted.min, "max": wanted.max}
    meta: Json = {"labels": wanted.labels, "annotations": wanted.annotations}
    if found is None:
        body: Json = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": name, "namespace": namespace, **meta},
            "spec": spec,
        }
        requests.append(Request("create-quota", "POST", _path(_SIGS, "elasticquotas", namespace), body, JSON))
    else:
        old: Json = found["metadata"]
        present = {part: _resource_list(found, part) for part in spec}
        is_same = (
            _has(old.get("labels"), wanted.labels)
            and _has(old.get("annotations"), wanted.annotations)
            and all(_milli(present[part]) == _milli(spec[part]) for part in spec)
        )
        if not is_same:
            cleared = {part: {**dict.fromkeys(present[part]), **spec[part]} for part in spec}
            body = {"metadata": _meta(found, **meta), "spec": cleared}
            path = _path(_SIGS, "elasticquotas", namespace, name)
            requests.append(Request("update-quota", "PATCH", path, body, MERGE_PATCH))
    tree = wanted.labels.get(keys.QUOTA_TREE_ID, "")
    labels = cast("dict[str, str]", profile.get("metadata", {}).get("labels") or {})
    if tree and not labels.get(keys.QUOTA_TREE_ID):
        body = {"metadata": _meta(profile, labels={keys.QUOTA_TREE_ID: tree})}
        path = _path(_PROFILES, "elasticquotaprofiles", profile_namespace, profile_name)
        requests.append(Request("quota-profile", "PATCH", path, body, MERGE_PATCH))
    return requests


def quota_refused(view: ManagerView, request: Request, message: str) -> KubernetesEvent | None:
    """Return the Kubernetes event that the API server refused the root quota of a profile; None for other requests."""
    reason = {"create-quota": "CreateQuotaFailed", "update-quota": "UpdateQuotaFailed"}.get(request.purpose)
    if reason is None:
        return None
    for id_, state in view.state.of_kind(aggregates.QuotaProfileState).items():
        path = _path(_SIGS, "elasticquotas", state.quota_namespace)
        if request.path in (path, f"{path}/{state.quota_name}"):
            namespace, name = namespaced_from_token(id_)
            profile = _found(view, "elasticquotaprofiles", namespace, name) or {"metadata": {}}
            uid = str(profile["metadata"].get("uid", ""))
            involved = Involved("ElasticQuotaProfile", "quota.koordinator.sh/v1alpha1", namespace, name, uid)
            return KubernetesEvent(involved, reason, message[:1024], "Warning", MANAGER)
    return None


def _resource_list(quota: Json, part: str) -> dict[str, str]:
    spec = cast("Json", quota.get("spec") or {})
    return cast("dict[str, str]", spec.get(part) or {})


def _has(present: object, wanted: Mapping[str, str]) -> bool:
    entries = cast("Mapping[str, str]", present or {})
    return all(entries.get(key) == value for key, value in wanted.items())


# -- Recommendation ---------------------------------------------------------------------------------------------------


def _recommendation(view: ManagerView, id_: str, wanted: aggregates.RecommendationState) -> list[Request]:
    namespace, name = namespaced_from_token(id_)
    found = _found(view, "recommendations", namespace, name)
    if found is None or not wanted.updated_at:
        return []
    status = published_status.recommendation_status(wanted)
    requests: list[Request] = []
    path = _path(_ANALYSIS, "recommendations", namespace, name)
    if (found.get("status") or {}) != status:
        body: Json = {"metadata": _meta(found), "status": status}
        requests.append(Request("recommendation-status", "PATCH", f"{path}/status", body, MERGE_PATCH))
    bounds = published_status.bounds_text(wanted.containers)
    annotations = cast("dict[str, str]", found["metadata"].get("annotations") or {})
    if wanted.containers and annotations.get(BOUNDS) != bounds:
        body = {"metadata": _meta(found, annotations={BOUNDS: bounds})}
        requests.append(Request("recommendation-bounds", "PATCH", path, body, MERGE_PATCH))
    return requests
