"""Render the status of custom resources from the facts of the scheduler and the manager.

With an API server, `status_writes` writes this status to the objects. Without one, the HTTP API adds it when it shows
an object.

Source:
    scheduler-core spec, 8.9, 9, 10.9; manager spec, 15.1; protocol spec, 4.6, 9.7, 9.8
"""

import json
from collections.abc import Mapping

from koordcore.events.envelope import AggregateRef
from koordcore.events.gang import GangPhaseChanged, gang_ref
from koordcore.events.objects import custom_ref
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.recommendation import ContainerRecommendation, RecommendedAmounts
from koordcore.protocol import keys
from koordcore.protocol.recommendations import BOUNDS
from koordcore.protocol.reservations import PLURAL as RESERVATIONS
from koordcore.protocol.resource_names import CPU
from koordcore.state import ClusterState
from koordcore.state.aggregates import (
    ClusterTopologyState,
    GangState,
    QuotaState,
    RecommendationState,
    ScheduleExplanationState,
)
from koordcore.values.quantity import of_milli, of_value

from koord_manager.domain.cluster.view import MIGRATION_JOBS
from koord_manager.domain.gateway.drains import DRAIN_KINDS, drain_ref, with_drain_status
from koord_manager.domain.gateway.migrations import with_migration_status
from koord_manager.domain.gateway.objects.reservation_object import with_reservation_status
from koord_manager.domain.gateway.requests import Json
from koord_manager.domain.gateway.scheduler_statuses import explanation_status, topology_status

_QUOTA_ANNOTATIONS = (
    (keys.QUOTA_RUNTIME, "runtime"),
    (keys.QUOTA_REQUEST, "request"),
    (keys.QUOTA_CHILD_REQUEST, "child_request"),
    (keys.QUOTA_GUARANTEED, "guaranteed"),
    (keys.QUOTA_ALLOCATED, "allocated"),
    (keys.QUOTA_NON_PREEMPTIBLE_REQUEST, "non_preemptible_request"),
    (keys.QUOTA_NON_PREEMPTIBLE_USED, "non_preemptible_used"),
)


def ref_of_object(plural: str, namespace: str, name: str) -> AggregateRef | None:
    """Return the aggregate whose facts contain the status of a custom resource, or None if its name does not tell it.

    None is returned for kinds whose status no service computes, and for Reservations and PodMigrationJobs, whose status
    is found by uid.

    Args:
        plural: Plural of the kind, such as `podgroups`.
        namespace: Namespace of the object. For a cluster-scoped kind it may contain the name, if `name` is empty.
    """
    match plural:
        case "podgroups":
            return gang_ref(namespace, name)
        case "elasticquotas":
            return AggregateRef("quota", name.replace(".", "_"))
        case "elasticquotaprofiles":
            return AggregateRef("quotaprofile", _token(namespace, name))
        case "recommendations":
            return AggregateRef("recommendation", _token(namespace, name))
        case "scheduleexplanations":
            return AggregateRef("scheduleexplanation", _token(namespace, name))
        case "clusternetworktopologies":
            # A token of one part reads as a namespace.
            return AggregateRef("clustertopology", _token("", name or namespace))
        case "drainnodes" | "drainnodegroups":
            return drain_ref(plural, name or namespace)
        case _:
            return None


def with_published_status(state: ClusterState, plural: str, document: Json) -> Json:
    """Return a custom resource with the status that the scheduler or the manager computed for it.

    ElasticQuotas and Recommendations also get their computed annotations. The object is returned unchanged if no status
    was computed.

    Args:
        state: The folded state of the cluster, now or at a past moment.
        document: The object, not changed.
    """
    if plural == RESERVATIONS:
        return with_reservation_status(state, document)
    if plural == MIGRATION_JOBS:
        return with_migration_status(state, document)
    if plural in DRAIN_KINDS:
        return with_drain_status(state, plural, document)
    meta: Json = document["metadata"]
    ref = ref_of_object(plural, str(meta.get("namespace", "")), str(meta.get("name", "")))
    match state.get(ref) if ref is not None else None:
        case GangState(status=GangPhaseChanged() as phase):
            return {**document, "status": pod_group_status(phase)}
        case QuotaState(status=standing) if standing.namespace in ("", meta.get("namespace", "")):
            texts = {key: list_text(amounts) for key, amounts in quota_annotations(standing).items() if amounts}
            annotations: Json = {**(meta.get("annotations") or {}), **texts}
            status: Json = {**(document.get("status") or {}), "used": amounts_text(standing.used)}
            return {**document, "metadata": {**meta, "annotations": annotations}, "status": status}
        case RecommendationState(updated_at=str(updated)) as computed if updated:
            annotations = {**(meta.get("annotations") or {}), BOUNDS: bounds_text(computed.containers)}
            return {
                **document,
                "metadata": {**meta, "annotations": annotations},
                "status": recommendation_status(computed),
            }
        case ScheduleExplanationState(status=explained) if explained.uid == meta.get("uid", ""):
            return {**document, "status": explanation_status(explained)}
        case ClusterTopologyState(status=topology):
            return {**document, "status": topology_status(topology)}
        case _:
            return document


def _token(namespace: str, name: str) -> str:
    return custom_ref("x", namespace, name).id.partition("=")[2]


def pod_group_status(computed: GangPhaseChanged) -> Json:
    status: Json = {
        "phase": computed.phase,
        "occupiedBy": computed.occupied_by,
        "scheduled": computed.scheduled,
        "running": computed.running,
        "succeeded": computed.succeeded,
        "failed": computed.failed,
    }
    return {**status, "scheduleStartTime": computed.schedule_start_time} if computed.schedule_start_time else status


def quota_annotations(computed: QuotaStatusComputed) -> dict[str, dict[str, str]]:
    """Return the annotations of an ElasticQuota with its computed amounts: annotation key -> (resource -> quantity)."""
    return {key: amounts_text(getattr(computed, field)) for key, field in _QUOTA_ANNOTATIONS}


def list_text(amounts: Mapping[str, str]) -> str:
    return json.dumps(amounts, separators=(",", ":"))


def amounts_text(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts (cpu in milli-cores, others in whole units) as quantities, without those that are zero."""
    return {
        name: (of_milli(amount) if name == CPU else of_value(amount)).canonical()
        for name, amount in sorted(amounts.items())
        if amount
    }


def recommendation_status(computed: RecommendationState) -> Json:
    return {
        "podStatus": {
            "containerStatuses": [
                {"containerName": item.name, "resources": _recommended(item.target)} for item in computed.containers
            ]
        },
        "updateTime": computed.updated_at,
        "conditions": [
            {
                "type": item.type,
                "status": item.status,
                "reason": item.reason or item.type,
                "message": item.message,
                "lastTransitionTime": item.last_transition_time or computed.updated_at,
            }
            for item in computed.conditions
        ],
    }


def bounds_text(containers: list[ContainerRecommendation]) -> str:
    """Return the JSON text of the annotation `bounds`: lower, upper and uncapped target amounts of each container."""
    bounds = {
        item.name: {
            "lowerBound": _recommended(item.lower_bound),
            "upperBound": _recommended(item.upper_bound),
            "uncappedTarget": _recommended(item.uncapped_target),
        }
        for item in containers
    }
    return json.dumps(bounds, separators=(",", ":"), sort_keys=True)


def _recommended(amounts: RecommendedAmounts) -> Json:
    """Without the resources that have no amount."""
    texts = {"cpu": f"{amounts.cpu_milli}m", "memory": str(amounts.memory_bytes)}
    known = {"cpu": amounts.cpu_milli, "memory": amounts.memory_bytes}
    return {name: text for name, text in texts.items() if known[name]}
