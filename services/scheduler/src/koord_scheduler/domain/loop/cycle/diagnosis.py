"""The diagnosis of a failed attempt as a value.

Source: scheduler-core spec, 13.1
"""

from functools import cache
from typing import cast

from koordcore.events.explanations import MOST_NODES_NAMED, Diagnosis, NodeFailure, PreemptionDiagnosis, Suggestion
from koordcore.events.pod import Victim

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import NodeColumns, row_list
from koord_scheduler.domain.engine.answers import Refusals
from koord_scheduler.domain.engine.engine import Engine
from koord_scheduler.domain.framework.cross_node_points import Detail, DetailedFilter
from koord_scheduler.domain.framework.node_points import DetailedNodeFilter, Lack, LackingNodeFilter
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.post_filter import NoPreemption, Preemption
from koord_scheduler.domain.loop.state.cycle_view import CycleView
from koord_scheduler.domain.loop.state.state import SchedulerState


def diagnosis_of(
    state: SchedulerState,
    pod: PodRecord,
    cycle_view: CycleView,
    preemption: Preemption | NoPreemption | None,
    rejection: Rejection | None,
) -> Diagnosis:
    """Why each group of nodes refused the pod of an attempt that has just failed. No node may have changed since.
    `preemption`: None if it was not tried. `rejection`: before nodes were filtered; None if none was feasible.
    """
    engine = state.frameworks.framework_of(pod).engine
    refusals = [] if rejection is not None else cycle_view.refusals(engine)
    gangs = state.books.gangs
    gang = gangs.roster.gang_of(pod.uid)
    key = gang.group.id if gang is not None and gang.group is not None else f"{pod.namespace}/{pod.name}"
    waiting_on = state.assumed.waiting.on_nodes(gangs.waiting_with(pod.uid))
    return Diagnosis(
        questioned_key=key,
        pre_filter_message=rejection.message if rejection is not None else "",
        pre_filter_details=list(rejection.details) if rejection is not None else [],
        already_waiting=sum(waiting_on.values()),
        waiting_on=waiting_on,
        failures=sorted((failure_of(state, engine, subject, each) for subject, each in refusals), key=failure_order),
        preemption=_preemption(preemption) if preemption is not None else None,
        suggestion=_suggestion(preemption) if preemption is not None else None,
        quota=rejection.quota if rejection is not None else None,
    )


def failure_of(state: SchedulerState, engine: Engine, subject: Subject, refusals: Refusals) -> NodeFailure:
    """Nodes that one plugin refused for one reason. At most `MOST_NODES_NAMED` are named; `count` has all of them."""
    names = state.nodes.names
    lack = _lack(state.nodes, engine, subject, refusals)
    return NodeFailure(
        plugin=refusals.plugin,
        reason=refusals.reason,
        preempt_might_help=refusals.is_resolvable,
        count=len(refusals.rows),
        nodes=sorted(names[row] for row in row_list(refusals.rows[:MOST_NODES_NAMED])),
        details=[_told(state, detail) for detail in _details(state.nodes, engine, subject, refusals)],
        shortages=lack.shortages,
        needs=lack.needs,
    )


def _lack(nodes: NodeColumns, engine: Engine, subject: Subject, refusals: Refusals) -> Lack:
    for _, plugin in engine.answers.asked.of(subject.pod_class).filters:
        if plugin.name == refusals.plugin and _tells_lack(type(plugin)):
            return cast("LackingNodeFilter", plugin).lack(subject.pod_class, nodes, refusals.rows)
    return Lack()


# A check of a protocol costs as much as the largest free amount of a resource on a thousand nodes.


@cache
def _tells_lack(kind: type[object]) -> bool:
    return issubclass(kind, LackingNodeFilter)


@cache
def _tells_details(kind: type[object]) -> bool:
    return issubclass(kind, DetailedNodeFilter)


def _details(nodes: NodeColumns, engine: Engine, subject: Subject, refusals: Refusals) -> list[Detail]:
    for name, rule in engine.cross_node_filters(subject).filters:
        if name == refusals.plugin and isinstance(rule, DetailedFilter):
            return rule.details(refusals.rows, refusals.reason)
    for _, plugin in engine.answers.asked.of(subject.pod_class).filters:
        if plugin.name == refusals.plugin and _tells_details(type(plugin)):
            told = cast("DetailedNodeFilter", plugin)
            return [Detail(text) for text in told.details(subject.pod_class, nodes, refusals.rows, refusals.reason)]
    return []


def _told(state: SchedulerState, detail: Detail) -> str:
    """Return the text of a detail. If another pod is the cause, the text contains its name."""
    if detail.row < 0:
        return detail.text
    node = state.nodes.names[detail.row]
    for uid in state.assumed.ledgers.pods(node):
        other = state.pods.get(uid)
        if other is not None and other.subject is not None and detail.is_it(other.subject.kind):
            return detail.text.replace("{pod}", f"{other.namespace}/{other.name} on {node}")
    return detail.text.replace("{pod}", f"a pod on {node}")


def failure_order(failure: NodeFailure) -> tuple[str, str, bool]:
    return (failure.plugin, failure.reason, not failure.preempt_might_help)


def _preemption(outcome: Preemption | NoPreemption) -> PreemptionDiagnosis:
    if isinstance(outcome, NoPreemption):
        return PreemptionDiagnosis(failed_message=outcome.message)
    victims = [
        Victim(
            uid=victim.pod.uid,
            namespace=victim.pod.namespace,
            name=victim.pod.name,
            priority=victim.pod.priority,
            violates_budget=victim.violates_budget,
        )
        for victim in outcome.victims
    ]
    return PreemptionDiagnosis(plugin=outcome.plugin, node=outcome.node, victims=victims, examined=outcome.examined)


def _suggestion(outcome: Preemption | NoPreemption) -> Suggestion | None:
    if isinstance(outcome, NoPreemption):
        return None
    message = f"waits until {len(outcome.victims)} pod(s) have left node {outcome.node}"
    return Suggestion(type="WaitingVictimReleased", message=message)
