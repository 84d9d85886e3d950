"""Decide the next step of a group of drains: label its nodes, plan one node after the other, confirm their drains.

Source:
    descheduler spec, 11.4
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.descheduling.drain import (
    DrainGroupChanged,
    DrainGroupNodeJudged,
    DrainGroupNodePlanned,
    DrainGroupStarted,
)
from koordcore.events.envelope import Event, name_token
from koordcore.protocol.drains import documents as drain_documents
from koordcore.protocol.selectors import compile_selector
from koordcore.requests.objects import ChangeNode, CreateObject, ObjectChange, PatchObject
from koordcore.state import ClusterState
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.values import codec
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.drain.changes import API_VERSION, owner_of
from koord_descheduler.domain.drain.group_plan import GroupPlan, GroupView, StopReason, confirmed, next_node
from koord_descheduler.domain.drain.progress import Condition, DrainPhase, PodPhase

PENDING: Final = "Pending"
PLANNING: Final = "Planning"
WAITING: Final = "Waiting"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
ABORTED: Final = "Aborted"
FINAL: Final = frozenset({SUCCEEDED, FAILED, ABORTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """The inputs from which the next step of a group is decided.

    Attributes:
        view: The group, nodes and pods, and the Reservations.
        state: Folded facts of the group; None if there are none.
        drains: Name of a DrainNode -> folded facts of its drain.
        is_first: Whether this group may work: no other group works, and no older one waits.
    """

    view: GroupView
    state: DrainGroupState | None
    drains: Mapping[str, DrainState]
    is_first: bool

    @property
    def group(self) -> drain_documents.DrainNodeGroup:
        """Return the group."""
        return self.view.group

    def drain_of(self, node: str) -> DrainState | None:
        """Return the drain that the group made for a node; None if it has no facts."""
        return self.drains.get(drain_name(self.group.metadata.name, node))


@dataclass(frozen=True, slots=True)
class GroupStep:
    """One step of a group: changes of objects, and the fact that records them; None if there is nothing to record."""

    event: Event | None = None
    changes: Sequence[ObjectChange] = field(default_factory=list[ObjectChange])


def first_group(state: ClusterState, groups: Iterable[drain_documents.DrainNodeGroup]) -> str:
    """Return the name of the group that may work: the one that works, else the first that waits; "" if none does.

    Args:
        state: The folded facts.
        groups: All groups, oldest first, then by name.
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
    """Return the name of the DrainNode that a group makes for a node."""
    return f"{group}-{node}"


def look_at_group(look: GroupLook) -> GroupStep:
    """Decide the next step of a group from the present state: label nodes, plan a node, or confirm drains.

    Args:
        look: The inputs.

    Raises:
        InvalidInput: The node selector or the time to live of the group is invalid.

    Source:
        descheduler spec, 11.4
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


def taken_back(group: str, state: DrainGroupState, drains: Mapping[str, DrainState]) -> list[ObjectChange]:
    """Return the changes that end all drains of a group and remove its labels.

    Args:
        group: Name of the group.
        state: Its facts.
        drains: Name of a DrainNode -> folded facts of its drain.
    """
    nodes = [*state.available, *([state.planning] if state.planning else [])]
    changes: list[ObjectChange] = []
    for node in nodes:
        drain = drains.get(drain_name(group, node))
        if drain is None or drain.phase in (DrainPhase.PENDING, DrainPhase.RUNNING):
            changes.append(_with_state(group, node, drain_documents.ConfirmState.ABORTED))
    return [*changes, *(ChangeNode(name=node, labels={drain_documents.NODE_GROUP: None}) for node in state.nodes)]


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
    return GroupStep(event, [] if state is None else taken_back(meta.name, state, look.drains))


def _started(look: GroupLook) -> GroupStep:
    meta = look.group.metadata
    if not look.is_first:
        message = "another group works"
        if look.state is not None and look.state.message == message:
            return GroupStep()
        return GroupStep(DrainGroupChanged(object_uid=meta.uid, phase=PENDING, message=message))
    selector = compile_selector(look.group.spec.node_selector)
    nodes = [node.name for node in look.view.cluster.nodes if selector.matches(node.labels)]
    changes = [ChangeNode(name=node, labels={drain_documents.NODE_GROUP: meta.name}) for node in nodes]
    return GroupStep(DrainGroupStarted(object_uid=meta.uid, nodes=nodes), changes)


def _planned(look: GroupLook, state: DrainGroupState) -> GroupStep:
    chosen = next_node(look.view, _plan(state))
    if isinstance(chosen, StopReason):
        return GroupStep(DrainGroupChanged(object_uid=state.object_uid, phase=WAITING, message=str(chosen)))
    return GroupStep(DrainGroupNodePlanned(node=chosen), [CreateObject(document=_drain_node(look.group, chosen))])


def _judged(look: GroupLook, state: DrainGroupState) -> GroupStep:
    """Return the step that records whether all pods of the planned node have a place; empty while that is unknown."""
    node, drain = state.planning, look.drain_of(state.planning)
    if drain is None:
        return GroupStep()
    if drain.phase == DrainPhase.ABORTED:
        return GroupStep(DrainGroupNodeJudged(node=node, available=False, reason=drain.message))
    if Condition.ONCE_AVAILABLE in drain.conditions:
        return GroupStep(DrainGroupNodeJudged(node=node, available=True))
    stuck = [pod for pod in drain.pods.values() if pod.phase in (PodPhase.UNMIGRATABLE, PodPhase.UNAVAILABLE)]
    if not stuck:
        return GroupStep()
    reason = f"{stuck[0].namespace}/{stuck[0].name} is {stuck[0].phase}: {stuck[0].message}"
    rejected = _with_state(look.group.metadata.name, node, drain_documents.ConfirmState.REJECTED)
    return GroupStep(DrainGroupNodeJudged(node=node, available=False, reason=reason), [rejected])


def _confirmed(look: GroupLook, state: DrainGroupState) -> GroupStep:
    """Return the step that confirms further drains, and that records the results and the phase of the group."""
    wanted = confirmed(look.group, _plan(state))
    new = [node for node in wanted if node not in state.confirmed]
    nodes = [*state.confirmed, *new]
    ended = {node: drain for node in nodes if (drain := look.drain_of(node)) is not None and _has_ended(drain)}
    failed = sum(1 for drain in ended.values() if _has_failed(drain))
    running = len(nodes) - len(ended)
    if running:
        phase = RUNNING
    elif failed:
        phase = FAILED
    else:
        phase = SUCCEEDED if len(nodes) == len(state.available) else WAITING
    event = DrainGroupChanged(
        object_uid=state.object_uid,
        phase=phase,
        message=state.message,
        confirmed=nodes,
        running=running,
        succeeded=len(ended) - failed,
        failed=failed,
    )
    counts = (state.phase, state.confirmed, state.running, state.succeeded, state.failed)
    if counts == (event.phase, event.confirmed, event.running, event.succeeded, event.failed):
        return GroupStep()
    name = look.group.metadata.name
    changes: list[ObjectChange] = [_with_state(name, node, drain_documents.ConfirmState.CONFIRMED) for node in new]
    if phase in FINAL:
        changes += [ChangeNode(name=node, labels={drain_documents.NODE_GROUP: None}) for node in state.nodes]
    return GroupStep(event, changes)


def _has_ended(drain: DrainState) -> bool:
    return drain.phase in (DrainPhase.COMPLETE, DrainPhase.ABORTED)


def _has_failed(drain: DrainState) -> bool:
    """Return whether a drain was aborted, or left a pod behind."""
    return drain.phase == DrainPhase.ABORTED or any(pod.phase == PodPhase.FAILED for pod in drain.pods.values())


def _plan(state: DrainGroupState) -> GroupPlan:
    return GroupPlan(available=tuple(state.available), unavailable=tuple(state.unavailable))


def _with_state(group: str, node: str, wanted: drain_documents.ConfirmState) -> PatchObject:
    return PatchObject(kind="DrainNode", name=drain_name(group, node), patch={"spec": {"confirmState": str(wanted)}})


def _drain_node(group: drain_documents.DrainNodeGroup, node: str) -> dict[str, object]:
    name = drain_name(group.metadata.name, node)
    owner = owner_of("DrainNodeGroup", group.metadata.name, group.metadata.uid)
    return {
        "apiVersion": API_VERSION,
        "kind": "DrainNode",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "nodeName": node,
            "cordonPolicy": codec.to_builtins(group.spec.cordon_node_policy),
            "migrationPolicy": {"mode": str(drain_documents.MigrationMode.MIGRATE_DIRECTLY)},
        },
    }
