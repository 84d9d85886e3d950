"""Carry out eviction requests without an API server: delete the pod, and its workload creates a new one.

Preemptions, and evictions that a node's agent requested, are carried out at once. Other evictions wait until every
disruption budget allows them. With Kubernetes, the gateway evicts through the API server, which checks the budgets
itself.

Source:
    event-bus spec, 2.1; scheduler-core spec, 6, 10.8
"""

from datetime import datetime
from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import ONLY_TRIED, PodEvicted, PodEvictionDelayed, PodEvictionFailed
from koordcore.events.objects import PodSpecDeleted
from koordcore.state.aggregates import EvictionState, PodSpecState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.pod_evictions.agent_requests import INITIATOR as AGENT
from koord_manager.domain.pod_evictions.disruption_budgets import Budgets

HELD_UP: Final = "DisruptionBudget"


class BlockedByBudget(NamedTuple):
    """Result of `decide_eviction`: a disruption budget still does not allow the eviction.

    Attributes:
        budget: Name of the budget.
    """

    budget: str


def decide_eviction(view: ManagerView, budgets: Budgets, uid: str, now: datetime) -> list[Draft] | BlockedByBudget:
    """Decide a requested eviction in a cluster without an API server.

    Args:
        view: The folded state of the cluster.
        budgets: Disruption budgets; an allowed eviction is charged to them.
        uid: Uid of the pod.
        now: The time.

    Returns:
        The facts that delete the pod, end the eviction, or record that a disruption budget delays it, to append
        together. They are empty if no eviction is requested. `BlockedByBudget` if the delay is recorded already.
    """
    request_state = view.state.of_kind(EvictionState).get(uid)
    if request_state is None:
        return []
    ref, spec = AggregateRef("eviction", uid), view.state.of_kind(PodSpecState).get(uid)
    if spec is None:
        return [Draft(ref, PodEvicted(gone=True), request_state.seq)]
    if (over := request_state.expired(now)) is not None:
        return [Draft(ref, over, request_state.seq)]
    meta, request = spec.object.metadata, request_state.request
    if request.method == "evict" and request.initiator != AGENT:
        budget = budgets.take(uid, meta.namespace)
        if budget:
            if HELD_UP in request_state.delays:
                return BlockedByBudget(budget)
            message = f"disruption budget {budget} does not allow it"
            return [Draft(ref, PodEvictionDelayed(reason=HELD_UP, message=message), request_state.seq)]
    wanted = request.delete_options.get("preconditions", {})
    if any(wanted.get(name, has) != has for name, has in (("uid", uid), ("resourceVersion", meta.resource_version))):
        failed = PodEvictionFailed(reason="Conflict", message=f"the pod does not meet the preconditions {wanted}")
        return [Draft(ref, failed, request_state.seq)]
    if request.is_dry_run:
        return [Draft(ref, ONLY_TRIED, request_state.seq)]
    gone = PodSpecDeleted(namespace=meta.namespace, name=meta.name)
    return [Draft(AggregateRef("podspec", uid), gone, spec.seq), Draft(ref, PodEvicted(), request_state.seq)]
