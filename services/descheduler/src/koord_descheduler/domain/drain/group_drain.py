"""Decide the next step of a group of drains: label its nodes, plan one node after the other, confirm their drains.

Source:
    descheduler spec, 11.4
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koordcore.events.drain import DrainGroupChanged, DrainGroupNodeJudged, DrainGroupNodePlanned, DrainGroupStarted
from koordcore.events.envelope import Event, name_token
from koordcore.protocol import drains as drain_documents
from koordcore.protocol.drains import NODE_PLANNING, DrainNodeGroup
from koordcore.protocol.reservation_status import AVAILABLE, ReservationStatus
from koordcore.protocol.selectors import compile_selector
from koordcore.requests.objects import (
    ChangeNode,
    ChangeOutcome,
    ChangeResult,
    CreateObject,
    ObjectChange,
    PatchObject,
)
from koordcore.state import ClusterState
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.values import codec
from koordcore.values.timestamps import unix_seconds
from msgspec.structs import replace

from koord_descheduler.domain.drain.changes import API_VERSION, owner_of
from koord_descheduler.domain.drain.progress import Condition, DrainPhase, PodPhase
from koord_descheduler.domain.view.cluster import ClusterView, total_requests
from koord_descheduler.domain.view.nodes import NodeView

_PLANNED: Final = ("cpu", "memory")


class StopReason(StrEnum):
    """Reason why a group plans no further node: enough nodes, no candidates, or too little free room in the group."""

    MAX_NODE_COUNT = "max_node_count"
    NO_CANDIDATES = "no_candidates"
    RESOURCE_RESERVED = "resource_reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    available: tuple[str, ...] = ()  # Nodes whose pods all have a place, in planning order
    unavailable: tuple[str, ...] = ()  # Nodes with a pod that has no place. They are not planned again.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    group: DrainNodeGroup
    cluster: ClusterView
    reservations: Collection[ReservationStatus] = field(default_factory=list[ReservationStatus])


def next_node(view: GroupView, plan: GroupPlan) -> str | StopReason:
    """Return the name of the node to plan next, or the reason why there is none.

    Candidates are the ready nodes of the group that are not planned and not being drained. The emptiest one is taken.
    If the group must keep a share free, the free amounts of the other candidates must suffice for the pods of this node
    and for the share (descheduler spec, 11.4 (2)).

    Raises:
        InvalidInput: The node selector of the group is invalid.
    """
    policy = view.group.spec.termination_policy
    if policy.max_node_count and len(plan.available) >= policy.max_node_count:
        return StopReason.MAX_NODE_COUNT
    selector = compile_selector(view.group.spec.node_selector)
    members = [node for node in view.cluster.nodes if selector.matches(node.labels)]
    done = {*plan.available, *plan.unavailable}
    candidates = [
        node for node in members if node.is_ready and NODE_PLANNING not in node.labels and node.name not in done
    ]
    if not candidates:
        return StopReason.NO_CANDIDATES
    held = _held(view.reservations)
    free = {node.name: _free(node, view.cluster, held) for node in candidates}
    best = min(candidates, key=lambda node: (-_score(node, free[node.name]), node.name))
    percent = policy.percentage_of_resource_reserved
    if percent and not _keeps_share(view, members, best, free, percent):
        return StopReason.RESOURCE_RESERVED
    return best.name


def confirmed(group: DrainNodeGroup, plan: GroupPlan) -> tuple[str, ...]:
    """The nodes whose drains are to be confirmed: the first `partition` available ones, without `partition` all.

    While the group is paused, there are none (descheduler spec, 11.4 (3)).
    """
    policy = group.spec.execution_policy
    return () if policy.paused else plan.available[: policy.partition]


def _held(reservations: Collection[ReservationStatus]) -> Mapping[str, Mapping[str, int]]:
    """Node -> resource -> amount that Available Reservations hold there and that no pod uses yet."""
    held: dict[str, dict[str, int]] = {}
    for each in reservations:
        if each.phase == AVAILABLE:
            amounts = held.setdefault(each.node, {})
            for name, amount in each.allocatable.items():
                amounts[name] = amounts.get(name, 0) + amount - each.taken.get(name, 0)
    return held


def _free(node: NodeView, cluster: ClusterView, held: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    requested, reserved = cluster.occupancy(node.name).requested, held.get(node.name, {})
    return {
        name: max(0, node.allocatable.get(name, 0) - requested.get(name, 0) - reserved.get(name, 0))
        for name in _PLANNED
    }


def _score(node: NodeView, free: Mapping[str, int]) -> float:
    """The free share of a node in percent: the mean of cpu and memory. `free`: resource -> free amount on it."""
    shares = [
        100 * free[name] / allocatable if (allocatable := node.allocatable.get(name, 0)) else 0.0 for name in _PLANNED
    ]
    return sum(shares) / len(shares)


def _keeps_share(
    view: GroupView, members: Sequence[NodeView], node: NodeView, free: Mapping[str, Mapping[str, int]], percent: int
) -> bool:
    """Whether the other candidates can take the pods of a node and keep `percent` of the group free."""
    moving = total_requests(pod for pod in view.cluster.unfinished_on(node.name) if not pod.is_daemon)
    for name in _PLANNED:
        elsewhere = sum(amounts[name] for other, amounts in free.items() if other != node.name)
        capacity = sum(member.allocatable.get(name, 0) for member in members)
        if 100 * (elsewhere - moving.get(name, 0)) < percent * capacity:
            return False
    return True


PENDING: Final = "Pending"
PLANNING: Final = "Planning"
WAITING: Final = "Waiting"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
ABORTED: Final = "Aborted"
FINAL: Final = frozenset({SUCCEEDED, FAILED, ABORTED})
_DELETED: Final = "its DrainNode was deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    view: GroupView
    state: DrainGroupState | None
    drains: Mapping[str, DrainState]  # Name of a DrainNode -> folded facts of its drain
    existing: Mapping[str, drain_documents.DrainNode]
    is_first: bool  # Whether this group may plan and drain nodes now: no other group does, and no older group waits

    @property
    def group(self) -> drain_documents.DrainNodeGroup:
        return self.view.group

    def drain_of(self, node: str) -> DrainState | None:
        """The drain of a node that the group has created; None if it has no facts."""
        return self.drains.get(drain_name(self.group.metadata.name, node))

    def exists(self, node: str) -> bool:
        return drain_name(self.group.metadata.name, node) in self.existing


@dataclass(frozen=True, slots=True)
class GroupStep:
    event: Event | None = None
    changes: Sequence[ObjectChange] = field(default_factory=list[ObjectChange])


def first_group(state: ClusterState, groups: Iterable[drain_documents.DrainNodeGroup]) -> str:
    """Return the name of the only group that may drain nodes now; "" for none.

    That is the first active group: it has begun, and has not succeeded, failed or been aborted. The phase Waiting
    counts as active. If no group is active, it is the first group that has not begun: it has the phase Pending, or no
    facts.

    `groups`: all groups, oldest first, then by name.
    """
    waiting = ""
    for group in groups:
        name = group.metadata.name
        facts = state.of_kind(DrainGroupState).get(name_token(name))
        if facts is None or facts.phase == PENDING:
            waiting = waiting or name
        elif facts.phase not in FINAL:
            return name
    return waiting


def drain_name(group: str, node: str) -> str:
    return f"{group}-{node}"


def look_at_group(look: GroupLook) -> GroupStep:
    """Decide the next step of a group from the present state: label nodes, plan a node, or confirm drains.

    If the group has ended, the step is empty. If the group is deleted, aborted by its annotation or older than its time
    to live, the step aborts it. A group that has not begun and is not the first one stays Pending.

    Raises:
        InvalidInput: The node selector or the time to live of the group is invalid.
    """
    state = look.state
    if state is not None and state.phase in FINAL:
        return GroupStep()
    reason = _abort_reason(look)
    if reason:
        return _aborted(look, reason)
    if state is None or state.phase == PENDING:
        return _started(look)
    if state.phase == PLANNING:
        return _judged(look, state) if state.planning else _planned(look, state)
    return _confirmed(look, state)


def recorded(step: GroupStep, group: str, outcomes: Sequence[ChangeOutcome]) -> Event | None:
    """Return the fact that records a step with the outcomes of its changes; None if there is nothing to record.

    A node whose DrainNode cannot be created is unavailable. A drain that cannot be confirmed has failed.
    """
    event, refused = step.event, dict[str, str]()
    for change, outcome in zip(step.changes, outcomes, strict=True):
        if outcome.result is not ChangeResult.REFUSED:
            continue
        if isinstance(change, CreateObject):
            reason = f"the creation of its DrainNode was refused: {outcome.message}"
            return DrainGroupNodeJudged(node=str(change.document["spec"]["nodeName"]), available=False, reason=reason)
        refused[change.name] = f"its confirmation was refused: {outcome.message}"
    if not isinstance(event, DrainGroupChanged):
        return event
    failed = {node: reason for node in event.confirmed if (reason := refused.get(drain_name(group, node)))}
    return replace(event, results={**failed, **event.results})


def taken_back(
    group: str,
    state: DrainGroupState,
    drains: Mapping[str, DrainState],
    existing: Mapping[str, drain_documents.DrainNode],
) -> list[ObjectChange]:
    """Abort all unfinished drains of a group, and remove its label from all its nodes.

    `drains`, `existing`: facts and object of the DrainNodes, by name.
    """
    planning = [state.planning] if state.planning else []
    nodes = [*state.available, *planning, *_unrecorded(group, state, existing)]
    changes: list[ObjectChange] = []
    for node in nodes:
        drain = drains.get(drain_name(group, node))
        if drain is None or drain.phase in (DrainPhase.PENDING, DrainPhase.RUNNING):
            changes.append(_with_state(group, node, drain_documents.ConfirmState.ABORTED))
    return [*changes, *(ChangeNode(name=node, labels={drain_documents.NODE_GROUP: None}) for node in state.nodes)]


def _unrecorded(group: str, state: DrainGroupState, existing: Mapping[str, drain_documents.DrainNode]) -> Iterator[str]:
    """Yield the nodes whose DrainNode a group created, and about which it has no fact.

    The leader was killed between both. The node is no candidate any more, because its drain has closed it.
    """
    known = {state.planning, *state.available, *state.unavailable}
    for name, drain in existing.items():
        node, owners = drain.spec.node_name, (each.uid for each in drain.metadata.owner_references)
        if node not in known and name == drain_name(group, node) and state.object_uid in owners:
            yield node


def _abort_reason(look: GroupLook) -> str:
    meta, ttl = look.group.metadata, drain_documents.ttl_seconds(look.group.spec.ttl)
    if meta.annotations.get(drain_documents.ABORT) == "true":
        return "aborted by annotation"
    if ttl is not None and look.view.cluster.now - unix_seconds(meta.creation_timestamp or "") >= ttl:
        return "the time to live is over"
    return "the object was deleted" if meta.deletion_timestamp is not None else ""


def _aborted(look: GroupLook, reason: str) -> GroupStep:
    state, meta = look.state, look.group.metadata
    event = DrainGroupChanged(object_uid=meta.uid, phase=ABORTED, message=reason)
    return GroupStep(event, [] if state is None else taken_back(meta.name, state, look.drains, look.existing))


def _started(look: GroupLook) -> GroupStep:
    meta = look.group.metadata
    if not look.is_first:
        message = "another group works"
        if look.state is not None and look.state.message == message:
            return GroupStep()
        return GroupStep(DrainGroupChanged(object_uid=meta.uid, phase=PENDING, message=message))
    selector = compile_selector(look.group.spec.node_selector)
    nodes = [node.name for node in look.view.cluster.nodes if selector.matches(node.labels)]
    label: dict[str, str | None] = {drain_documents.NODE_GROUP: drain_documents.label_value(meta.name)}
    changes = [ChangeNode(name=node, labels=label) for node in nodes]
    return GroupStep(DrainGroupStarted(object_uid=meta.uid, nodes=nodes), changes)


def _planned(look: GroupLook, state: DrainGroupState) -> GroupStep:
    for node in _unrecorded(look.group.metadata.name, state, look.existing):
        return GroupStep(DrainGroupNodePlanned(node=node))
    chosen = next_node(look.view, _plan(state))
    if isinstance(chosen, StopReason):
        return GroupStep(DrainGroupChanged(object_uid=state.object_uid, phase=WAITING, message=str(chosen)))
    return GroupStep(DrainGroupNodePlanned(node=chosen), [_creation(look.group, chosen)])


def _judged(look: GroupLook, state: DrainGroupState) -> GroupStep:
    """Return the step that records whether all pods of the planned node have a place; empty while that is unknown.

    A DrainNode that is not seen yet is created again. If it exists, that changes nothing.
    """
    node, drain = state.planning, look.drain_of(state.planning)
    if drain is not None and drain.phase == DrainPhase.ABORTED:
        return _unavailable(node, drain.message)
    if not look.exists(node):
        was_seen = drain is not None and drain.seq > state.seq
        return _unavailable(node, _DELETED) if was_seen else GroupStep(changes=[_creation(look.group, node)])
    if drain is None:
        return GroupStep()
    if Condition.ONCE_AVAILABLE in drain.conditions:
        return GroupStep(DrainGroupNodeJudged(node=node, available=True))
    stuck = [pod for pod in drain.pods.values() if pod.phase in (PodPhase.UNMIGRATABLE, PodPhase.UNAVAILABLE)]
    if not stuck:
        return GroupStep()
    reason = f"{stuck[0].namespace}/{stuck[0].name} is {stuck[0].phase}: {stuck[0].message}"
    rejected = _with_state(look.group.metadata.name, node, drain_documents.ConfirmState.REJECTED)
    return _unavailable(node, reason, rejected)


def _unavailable(node: str, reason: str, *changes: ObjectChange) -> GroupStep:
    return GroupStep(DrainGroupNodeJudged(node=node, available=False, reason=reason), changes)


def _confirmed(look: GroupLook, state: DrainGroupState) -> GroupStep:
    """Return the step that confirms further drains, and that records the results and the phase of the group.

    A node whose drain a user took back before the group confirmed it becomes unavailable.
    """
    for node in state.available:
        lost = "" if node in state.confirmed else _lost(look, node)
        if lost:
            return _unavailable(node, lost)
    wanted = confirmed(look.group, _plan(state))
    new = [node for node in wanted if node not in state.confirmed]
    nodes = [*state.confirmed, *new]
    found = {node: state.results.get(node, _result(look, node)) for node in nodes}
    results = {node: result for node, result in found.items() if result is not None}
    failures = [f"{node}: {reason}" for node, reason in results.items() if reason]
    nothing = [] if state.available else [f"{node}: {reason}" for node, reason in state.unavailable.items()]
    running, message = len(nodes) - len(results), state.message
    if running:
        phase = RUNNING
    elif failures or nothing:
        phase, message = FAILED, (failures or nothing)[0]
    else:
        phase = SUCCEEDED if len(nodes) == len(state.available) else WAITING
    event = DrainGroupChanged(
        object_uid=state.object_uid,
        phase=phase,
        message=message,
        confirmed=nodes,
        running=running,
        succeeded=len(results) - len(failures),
        failed=len(failures),
        results=results,
    )
    if (state.phase, state.confirmed, state.results) == (event.phase, event.confirmed, event.results):
        return GroupStep()
    name = look.group.metadata.name
    changes: list[ObjectChange] = [_with_state(name, node, drain_documents.ConfirmState.CONFIRMED) for node in new]
    if phase in FINAL:
        changes += [ChangeNode(name=node, labels={drain_documents.NODE_GROUP: None}) for node in state.nodes]
    return GroupStep(event, changes)


def _lost(look: GroupLook, node: str) -> str:
    """Return why the drain of an available node can no longer complete; "" if it can, or if it is complete."""
    drain = look.drain_of(node)
    if drain is not None and drain.phase in (DrainPhase.COMPLETE, DrainPhase.ABORTED):
        return drain.message if drain.phase == DrainPhase.ABORTED else ""
    return "" if look.exists(node) else _DELETED


def _result(look: GroupLook, node: str) -> str | None:
    """Return why the drain of a node failed: it was taken back, or left a pod. "": it succeeded; None: it goes on."""
    lost, drain = _lost(look, node), look.drain_of(node)
    if lost or drain is None or drain.phase != DrainPhase.COMPLETE:
        return lost or None
    left = [pod for pod in drain.pods.values() if pod.phase == PodPhase.FAILED]
    return f"{left[0].namespace}/{left[0].name} is {left[0].phase}: {left[0].message}" if left else ""


def _plan(state: DrainGroupState) -> GroupPlan:
    return GroupPlan(available=tuple(state.available), unavailable=tuple(state.unavailable))


def _with_state(group: str, node: str, wanted: drain_documents.ConfirmState) -> PatchObject:
    return PatchObject(kind="DrainNode", name=drain_name(group, node), patch={"spec": {"confirmState": str(wanted)}})


def _creation(group: drain_documents.DrainNodeGroup, node: str) -> CreateObject:
    name = drain_name(group.metadata.name, node)
    owner = owner_of("DrainNodeGroup", group.metadata.name, group.metadata.uid)
    document: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "DrainNode",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "cordonPolicy": codec.to_builtins(group.spec.cordon_node_policy),
            "migrationPolicy": {"mode": str(drain_documents.MigrationMode.MIGRATE_DIRECTLY)},
        },
    }
    return CreateObject(document=document)
