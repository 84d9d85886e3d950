"""Requests to evict carried out where no API server does: the pod's object goes, its workload makes a new one.

    method delete (preemption), or asked for by the node's agent     at once
    method evict                                                     when every PodDisruptionBudget allows it

With Kubernetes the gateway evicts through the API server, which honours the budgets itself.

source    event-bus spec, 2.1; scheduler-core spec, 6, 10.8
"""

from datetime import datetime
from typing import Final

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.gateway import PodEvicted, PodEvictionFailed
from koordcore.events.objects.mirror import PodSpecDeleted
from koordcore.state.aggregates import EvictionState, PodSpecState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.pod_evictions.agent_requests import INITIATOR as AGENT
from koord_manager.domain.pod_evictions.disruption_budgets import Budgets

MOST_PER_ROUND: Final = 200
HELD_UP: Final = "DisruptionBudget"


def eviction_groups(view: ManagerView, budgets: Budgets, now: datetime) -> list[list[Draft]]:
    """What is carried out or given up now, each request with its answer in one append."""
    groups: list[list[Draft]] = []
    specs = view.state.of_kind(PodSpecState)
    for uid, asked in view.state.of_kind(EvictionState).items():
        if len(groups) >= MOST_PER_ROUND:
            break
        ref, spec = AggregateRef("eviction", uid), specs.get(uid)
        if spec is None:
            groups.append([Draft(ref, PodEvicted(gone=True), asked.seq)])
            continue
        meta, request = spec.object.metadata, asked.request
        if request.method == "evict" and request.initiator != AGENT:
            held_by = budgets.take(uid, meta.namespace)
            if held_by:
                if _is_over(asked, now):
                    message = f"disruption budget {held_by} did not allow it for {request.give_up_after_seconds} s"
                    groups.append([Draft(ref, PodEvictionFailed(reason=HELD_UP, message=message), asked.seq)])
                continue
        gone = PodSpecDeleted(namespace=meta.namespace, name=meta.name)
        groups.append([Draft(AggregateRef("podspec", uid), gone, spec.seq), Draft(ref, PodEvicted(), asked.seq)])
    return groups


def _is_over(asked: EvictionState, now: datetime) -> bool:
    """Whether the request may be given up; one without an end is kept up for ever."""
    patience = asked.request.give_up_after_seconds
    return patience > 0 and (now - datetime.fromisoformat(asked.requested_at)).total_seconds() > patience
