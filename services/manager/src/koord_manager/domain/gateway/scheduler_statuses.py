"""Render and write the status of objects that other services compute: explanations, the network, drains, migrations.

Source:
    scheduler-core spec, 9, 13.3; protocol spec, 9.8
"""

from typing import Final

from koordcore.events.cluster import ClusterTopologyComputed, TopologyDomain
from koordcore.events.envelope import AggregateRef, name_from_token
from koordcore.events.explanations import NodeFailure
from koordcore.events.schedule_explanation import DomainOutlook, ScheduleExplanationComputed, SchedulingOutlook
from koordcore.state.migrations import MigrationState

from koord_manager.domain.cluster.view import MIGRATION_JOBS, ManagerView
from koord_manager.domain.gateway.drains import DRAIN_KINDS, status_of_drain
from koord_manager.domain.gateway.migrations import migration_patch, migration_status
from koord_manager.domain.gateway.requests import JSON, MERGE_PATCH, Json, Request

_SCHEDULING: Final = "/apis/scheduling.koordinator.sh/v1alpha1"


def explanation_status(computed: ScheduleExplanationComputed) -> Json:
    return {
        "schedulable": computed.schedulable,
        "schedulableAfterPreemption": computed.schedulable_after_preemption,
        "failedMessage": computed.failed_message,
        "lastUpdateTime": computed.last_update_time,
        "detailedExplanation": [_domain(each) for each in computed.domains],
    }


def explanation_writes(found: Json, computed: ScheduleExplanationComputed) -> list[Request]:
    """Return the request that writes the status of a ScheduleExplanation, or that deletes it if it expired.

    Return an empty list if the status is up to date, or if the object was created again after the scheduler answered.
    """
    uid = str(found["metadata"].get("uid", ""))
    if uid != computed.uid:
        return []
    path = f"{_SCHEDULING}/namespaces/{computed.namespace}/scheduleexplanations/{computed.name}"
    if computed.expired:
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        return [Request("delete-explanation", "DELETE", path, options, JSON)]
    status = explanation_status(computed)
    if found.get("status") == status:
        return []
    body: Json = {"metadata": {"uid": uid}, "status": status}
    return [Request("explanation-status", "PATCH", f"{path}/status", body, MERGE_PATCH)]


def topology_status(computed: ClusterTopologyComputed) -> Json:
    return {"detailStatus": [_topology_domain(each) for each in computed.domains]}


def topology_writes(found: Json, computed: ClusterTopologyComputed) -> list[Request]:
    status = topology_status(computed)
    if found.get("status") == status:
        return []
    uid = found["metadata"].get("uid")
    body: Json = {"metadata": {"uid": uid} if uid else {}, "status": status}
    path = f"{_SCHEDULING}/clusternetworktopologies/{computed.name}/status"
    return [Request("topology-status", "PATCH", path, body, MERGE_PATCH)]


def _domain(domain: DomainOutlook) -> Json:
    found, instead = domain.scheduling, domain.preemption
    computed = f"preemption: {instead.failed_message}" if instead.failed_message else ""
    return {
        "topologyDomain": domain.topology_domain,
        "schedulable": found.schedulable,
        "schedulableAfterPreemption": found.schedulable or instead.schedulable,
        "failedMessage": " ".join(text for text in (found.failed_message, computed) if text),
        "scheduleExplanation": _outlook(found),
        "preemptExplanation": _outlook(instead),
        "nodePossibleVictims": [
            {
                "nodeName": node,
                "possibleVictims": [
                    {
                        "namespace": victim.namespace,
                        "name": victim.name,
                        "uid": victim.uid,
                        "isNominatedPod": victim.is_nominated,
                    }
                    for victim in victims
                ],
            }
            for node, victims in sorted(domain.victims.items())
        ],
    }


def _outlook(outlook: SchedulingOutlook) -> Json:
    return {
        "schedulable": outlook.schedulable,
        "failedMessage": outlook.failed_message,
        "feasibleSchedulingResult": [
            {"namespace": each.namespace, "name": each.name, "uid": each.uid, "nodeName": each.node}
            for each in outlook.feasible
        ],
        "nodeFailedDetails": [_failure(each) for each in outlook.failures],
    }


def _failure(failure: NodeFailure) -> Json:
    return {
        "failedPlugin": failure.plugin,
        "reason": failure.reason,
        "preemptMightHelp": failure.preempt_might_help,
        "failedNodes": failure.nodes,
    }


def _topology_domain(domain: TopologyDomain) -> Json:
    shown: Json = {"topologyInfo": {"topologyLayer": domain.layer, "topologyName": domain.name}}
    if domain.parent_layer:
        shown["parentTopologyInfo"] = {"topologyLayer": domain.parent_layer, "topologyName": domain.parent_name}
    if domain.child_layer:
        shown["childTopologyLayer"] = domain.child_layer
    if domain.children:
        shown["childTopologyNames"] = domain.children
    return {**shown, "nodeNum": domain.nodes}


def drain_writes(view: ManagerView, ref: AggregateRef) -> list[Request]:
    """Return the request that writes the status of a drain or a group to its object; empty if it is up to date."""
    plural = next(plural for plural, kind in DRAIN_KINDS.items() if kind == ref.kind)
    name = name_from_token(ref.id)
    stored = view.custom(plural, "", name)
    if stored is None:
        return []
    uid = str(stored.object["metadata"].get("uid", ""))
    status = status_of_drain(view.state, plural, name, uid)
    present: Json = stored.object.get("status") or {}
    if status is None or all((present.get(key) or type(value)()) == value for key, value in status.items()):
        return []
    if "podMigrationSummary" in status:  # null removes a phase that no pod is in any more
        counts: Json = present.get("podMigrationSummary") or {}
        status = {**status, "podMigrationSummary": {**dict.fromkeys(counts), **status["podMigrationSummary"]}}
    body: Json = {"metadata": {"uid": uid}, "status": status}
    return [Request("drain-status", "PATCH", f"{_SCHEDULING}/{plural}/{name}/status", body, MERGE_PATCH)]


def migration_writes(view: ManagerView, ref: AggregateRef, state: MigrationState) -> list[Request]:
    """Return the requests that write the facts of a job to its object; empty if it is up to date.

    A user may set the phase Aborted at any time. Until the descheduler has recorded this, nothing is written.
    """
    stored = view.custom(MIGRATION_JOBS, "", state.job)
    found: Json | None = None if stored is None else stored.object
    if found is None or found["metadata"].get("uid") != ref.id:
        return []
    present: Json = found.get("status") or {}
    if present.get("phase") == "Aborted" and not state.ended_at:
        return []
    path = f"{_SCHEDULING}/{MIGRATION_JOBS}/{state.job}"
    identity: Json = {"uid": ref.id}
    requests: list[Request] = []
    patch = migration_patch(found, state)
    if patch:
        metadata: Json = {**identity, **patch.get("metadata", {})}
        requests.append(Request("migration-job", "PATCH", path, {**patch, "metadata": metadata}, MERGE_PATCH))
    status = migration_status(state)
    if present != status:
        body: Json = {"metadata": identity, "status": {**dict.fromkeys(present), **status}}
        requests.append(Request("migration-status", "PATCH", f"{path}/status", body, MERGE_PATCH))
    return requests
