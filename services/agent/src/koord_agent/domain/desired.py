"""What the manager wants on this node, as the agent acts on it: pods, suppression policy, report policy.

Built from the node's desired state and kept fresh by pushes; `apply_push` notices a missed one. The shell
(`koord_agent.shell.node_agent`) only ever replaces the whole value. Source: event-bus spec, 3.3; agent spec, 2.1, 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.node import NodeResourcesReturned, NodeResourcesTaken
from koordcore.events.nodepolicy import NodeSloRendered
from koordcore.ports.desired import DesiredNode, Push
from koordcore.protocol.config.agent import complete_strategy
from koordcore.protocol.config.tables import SectionName
from koordcore.protocol.config.typed import resource_threshold_strategy
from koordcore.protocol.resource_names import CPU
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import of_milli, of_value
from koordcore.values.resources import Amounts, ResourceList

from koord_agent.domain.pods import AgentPod, agent_pod_of_ledger, node_reserved_milli
from koord_agent.domain.qos.cpu_suppress import SuppressPolicy
from koord_agent.domain.report import CollectPolicy

THRESHOLD_SECTION = "resourceUsedThresholdWithBE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredView:
    """The agent's desired state.

    policy          None = no valid NodeSLO so far: nothing is enforced and nothing restored
    policy_problem  why the newest NodeSLO was not taken (the last good policy stays in force); "" = it was taken
    as_of           last sequence per aggregate kind that this value reflects
    """

    node: str
    pods: Mapping[str, AgentPod]
    policy: SuppressPolicy | None
    policy_problem: str
    collect: CollectPolicy
    capacity_milli: int
    reserved_milli: int
    as_of: Mapping[str, int] = field(default_factory=dict[str, int])


def suppress_policy(slo: Mapping[str, object] | None) -> SuppressPolicy | None:
    """The suppression policy of an effective NodeSLO.

    returns   None if the NodeSLO, its threshold strategy or the field `enable` is absent
    raises    InvalidInput naming the field of a wrong type
    source    agent spec, 2.1 (rule), 4.2
    """
    written = (slo or {}).get(THRESHOLD_SECTION)
    if written is None:
        return None
    if not isinstance(written, dict):
        raise InvalidInput("an object", written, THRESHOLD_SECTION)
    section = cast("dict[str, Any]", written)
    try:
        strategy = complete_strategy(SectionName.RESOURCE_THRESHOLD, section)
    except InvalidInput as error:
        raise error.at(THRESHOLD_SECTION) from error
    if "enable" not in section or section["enable"] is None:
        return None
    typed = resource_threshold_strategy(strategy)
    return SuppressPolicy(
        enable=typed.enable,
        threshold_percent=typed.cpu_suppress_threshold_percent,
        min_percent=typed.cpu_suppress_min_percent,
        by=typed.cpu_suppress_policy,
    )


def view_of(desired: DesiredNode, last: DesiredView | None = None) -> DesiredView:
    """The agent's view of a desired state that was just read.

    last    what was in force until now: its policy stays if the new NodeSLO is malformed
    """
    policy, problem = _policy_or_last(desired.slo, last)
    return DesiredView(
        node=desired.node,
        pods={entry.uid: agent_pod_of_ledger(entry) for entry in desired.pods},
        policy=policy,
        policy_problem=problem,
        collect=CollectPolicy(
            report_interval_seconds=desired.metric_report_interval_seconds,
            aggregate_duration_seconds=desired.metric_aggregate_duration_seconds,
        ).effective(),
        capacity_milli=desired.capacity.get(CPU, 0),
        reserved_milli=node_reserved_milli(
            _quantities(desired.capacity), _quantities(desired.allocatable), desired.annotations
        ),
        as_of=dict(desired.as_of),
    )


def _policy_or_last(slo: Mapping[str, object] | None, last: DesiredView | None) -> tuple[SuppressPolicy | None, str]:
    try:
        return suppress_policy(slo), ""
    except InvalidInput as error:
        return (last.policy if last else None), str(error)


def _quantities(amounts: Amounts) -> ResourceList:
    return {name: of_milli(amount) if name == CPU else of_value(amount) for name, amount in amounts.items()}


def apply_push(view: DesiredView, push: Push) -> DesiredView | None:
    """The view after a pushed fact.

    returns   the same view for a fact that it reflects already; None = facts before it were missed: read the desired
              state again
    source    event-bus spec, 3.3
    """
    kind, known = push.event.ref.kind, view.as_of.get(push.event.ref.kind, 0)
    if push.event.seq <= known:
        return view
    if push.last_seq != known:
        return None
    as_of = {**view.as_of, kind: push.event.seq}
    match CATALOGUE.read(push.event):
        case NodeResourcesTaken() as taken:
            added = {entry.uid: agent_pod_of_ledger(entry) for entry in taken.pods}
            return replace(view, pods={**view.pods, **added}, as_of=as_of)
        case NodeResourcesReturned() as returned:
            gone = set(returned.pods)
            return replace(view, pods={uid: pod for uid, pod in view.pods.items() if uid not in gone}, as_of=as_of)
        case NodeSloRendered() as rendered:
            policy, problem = _policy_or_last(rendered.spec, view)
            return replace(view, policy=policy, policy_problem=problem, as_of=as_of)
        case _:
            return replace(view, as_of=as_of)


def desired_after(desired: DesiredNode, push: Push) -> DesiredNode:
    """The desired state as it is kept on disk after a pushed fact that `apply_push` took."""
    as_of = {**desired.as_of, push.event.ref.kind: push.event.seq}
    match CATALOGUE.read(push.event):
        case NodeResourcesTaken() as taken:
            added = {entry.uid for entry in taken.pods}
            pods = [*(entry for entry in desired.pods if entry.uid not in added), *taken.pods]
            return msgspec.structs.replace(desired, pods=pods, as_of=as_of)
        case NodeResourcesReturned() as returned:
            gone = set(returned.pods)
            pods = [entry for entry in desired.pods if entry.uid not in gone]
            return msgspec.structs.replace(desired, pods=pods, as_of=as_of)
        case NodeSloRendered() as rendered:
            return msgspec.structs.replace(desired, slo=rendered.spec, as_of=as_of)
        case _:
            return msgspec.structs.replace(desired, as_of=as_of)


def is_behind(read: Mapping[str, int], known: Mapping[str, int]) -> bool:
    """Whether a value that was read reflects less of some aggregate than what is known already."""
    return any(read.get(kind, 0) < seq for kind, seq in known.items())
