"""Room for further replicas after a capacity question, and the resource that runs out first."""

from typing import Final

from koordcore.events.explanations import PodUnschedulable
from koordcore.requests.fit import Headroom, Shortage

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.loop.state.state import SchedulerState

_INSUFFICIENT: Final = "Insufficient "
_TOO_MANY_PODS: Final = "Too many pods"
_PODS: Final = "pods"


def headroom_of(state: SchedulerState, pod: PodRecord, rows: Rows) -> list[Headroom]:
    """How much of each resource that a pod requests is left after all pods of the question were placed, the one that
    runs out first in front. `rows`: the nodes on which it was feasible before.
    """
    assert pod.subject is not None, f"pod {pod.uid} has no subject"
    found = _of_quota(state, pod)
    demand = pod.subject.pod_class.demand
    for resource, (column, needed) in zip(demand.names, demand.pairs, strict=True):
        free = state.nodes.free[column, rows].clip(min=0)
        found.append(
            Headroom(
                resource=resource,
                needed=needed,
                free=int(free.sum()),
                largest=int(free.max(initial=0)),
                replicas=int((free // needed).sum()),
            )
        )
    return sorted(found, key=lambda each: (each.replicas, each.resource, each.quota))


def shortage_of(state: SchedulerState, pod: PodRecord, refused: PodUnschedulable, without: int) -> Shortage:
    """What keeps further pods from being placed: the quota or rule that refused the pod before any node, otherwise the
    reason for which most nodes refuse it. `without`: number of equal pods without a node.
    """
    assert pod.subject is not None, f"pod {pod.uid} has no subject"
    if refused.diagnosis is None or refused.diagnosis.pre_filter_message:
        return _before_nodes(state, pod, refused, without)
    refusals = state.frameworks.framework_of(pod).engine.refusals(pod.subject)
    if not refusals:
        return _before_nodes(state, pod, refused, without)
    first = max(refusals, key=lambda each: len(each.rows))
    demand = pod.subject.pod_class.demand
    names = dict(zip(demand.names, demand.pairs, strict=True))
    resource = _PODS if first.reason == _TOO_MANY_PODS else first.reason.removeprefix(_INSUFFICIENT)
    if resource not in names:
        return Shortage(plugin=first.plugin, reason=first.reason, message=refused.message, nodes=len(first.rows))
    column, needed = names[resource]
    free = state.nodes.free[column, first.rows].clip(min=0)
    largest = int(free.max(initial=0))
    return Shortage(
        plugin=first.plugin,
        reason=first.reason,
        message=refused.message,
        nodes=len(first.rows),
        resource=resource,
        needed=needed,
        available=largest,
        short_by=needed - largest,
        short_in_total=max(0, needed * without - int(free.sum())),
    )


def _before_nodes(state: SchedulerState, pod: PodRecord, refused: PodUnschedulable, without: int) -> Shortage:
    """Return the shortage of a pod that a plugin refused before any node: a quota, or the rules of a gang."""
    excluded = refused.explanation.exclusions[0] if refused.explanation.exclusions else None
    plugin = "" if excluded is None else excluded.plugin
    reason = refused.message if excluded is None else next(iter(excluded.reasons), refused.message)
    for room in _of_quota(state, pod):
        if room.needed > room.free:
            return Shortage(
                plugin=plugin,
                reason=reason,
                message=refused.message,
                resource=room.resource,
                quota=room.quota,
                needed=room.needed,
                available=room.free,
                short_by=room.needed - room.free,
                short_in_total=room.needed * without - room.free,
            )
    return Shortage(plugin=plugin, reason=reason, message=refused.message)


def _of_quota(state: SchedulerState, pod: PodRecord) -> list[Headroom]:
    """Return what remains of the quota of a pod; empty without a quota or a limit."""
    assert pod.subject is not None, f"pod {pod.uid} has no subject"
    quotas = state.books.quotas
    counted = quotas.pods.get(pod.uid)
    if counted is None or counted.quota is None:
        return []
    node = counted.quota
    limit = quotas.present_limit(node, by_runtime=quotas.args.enable_runtime_quota)
    found: list[Headroom] = []
    for resource, needed in pod.subject.pod_class.requests.items():
        if needed and resource in limit and resource in node.spec.max:
            free = max(0, limit[resource] - node.used.get(resource, 0))
            found.append(
                Headroom(
                    resource=resource,
                    quota=node.name,
                    needed=needed,
                    free=free,
                    largest=free,
                    replicas=free // needed,
                )
            )
    return found
