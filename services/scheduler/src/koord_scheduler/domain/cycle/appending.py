"""What a batch appends to the log, and what follows from its answer.

    drafts_of     what a batch appends, with its expectations
    confirmed     the batch is in the log
    refused       it is not: every assumption of it is taken back

source    event-bus spec, 4.2 and 4.3
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef, Draft, namespaced_token
from koordcore.events.scheduling.gang import GangPlaced, PlacedMember

from koord_scheduler.domain.commit.outbox import Batch
from koord_scheduler.domain.commit.work import NodeWork, Placement, node_draft, pod_draft
from koord_scheduler.domain.cycle.pod_explanations import PodExplanation, abandoned
from koord_scheduler.domain.cycle.status_answers import undo_status_write
from koord_scheduler.domain.folding.placements import bound, left_node, occupant_of
from koord_scheduler.domain.nodes.ledger import Source
from koord_scheduler.domain.pods.record import Phase
from koord_scheduler.domain.state.forget import give_up, take_back
from koord_scheduler.domain.state.queueing_hints import room_appeared
from koord_scheduler.domain.state.reconcile import settle
from koord_scheduler.domain.state.state import SchedulerState

MOST_REFOLDS: Final = 8
"""Refusals of one pod's decisions in a row before it is given up for a while (event-bus spec, 4.3)."""


class NodeDrafts(NamedTuple):
    """One node's half and its pods' halves of a batch, with expectations."""

    work: NodeWork
    node: Draft
    pods: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class BatchDrafts:
    """What a batch appends. gang: its own fact, None: the nodes stand for themselves."""

    nodes: list[NodeDrafts]
    gang: Draft | None = None


def drafts_of(state: SchedulerState, batch: Batch) -> BatchDrafts:
    """The facts that a batch appends, each expecting the last sequence known of its aggregate."""
    nodes = [
        NodeDrafts(
            work=work,
            node=node_draft(work, state.ledgers.seq(work.node)),
            pods=tuple(pod_draft(item, state.pods[item.uid].seq) for item in work.items),
        )
        for work in batch.works
    ]
    return BatchDrafts(nodes, _gang_draft(state, batch) if batch.gang else None)


def _gang_draft(state: SchedulerState, batch: Batch) -> Draft:
    namespace, _, name = batch.gang.partition("/")
    ref = AggregateRef("gang", namespaced_token(namespace, name))
    gang = state.cluster.gangs.roster.gang(batch.gang)
    members = [
        PlacedMember(uid=item.uid, namespace=item.namespace, name=item.name, node=item.node) for item in batch.items
    ]
    group = ",".join(gang.group.gang_ids) if gang is not None and gang.group is not None else batch.gang
    event = GangPlaced(namespace=namespace, name=name, group=group, members=members)
    return Draft(ref, event, state.status_writes.seqs.get(ref, 0))


def confirmed(state: SchedulerState, work: NodeWork, node_seq: int, pod_seqs: Sequence[int], event_id: str) -> None:
    """The log has stored the work; what was assumed is now the log's.

    node_seq, pod_seqs    sequences of the events, the latter in the order of the items
    event_id              of the node's event
    """
    state.acknowledged = max(state.acknowledged, node_seq)
    is_news = state.ledgers.advance(work.node, node_seq)
    state.outbox.landed(work.node)
    for item, seq in zip(work.items, pod_seqs, strict=True):
        pod = state.pods[item.uid]
        if isinstance(item, Placement):
            if is_news:
                state.ledgers.hold(item.node, occupant_of(state, item.on_node), Source.LOGGED)
            state.ledgers.drop(item.node, item.uid, Source.ASSUMED)
        elif is_news:
            state.ledgers.drop(item.node, item.uid, Source.LOGGED)
            room_appeared(state, item.node, event_id)
        if seq > pod.seq:
            pod.seq = seq
            if isinstance(item, Placement):
                pod.node = item.node
                bound(state, pod, item.node)
            else:
                left_node(state, pod)
        pod.refolds = 0
        pod.work_node = ""
        pod.phase = Phase.OTHERS
        settle(state, pod, event_id)


def refused(
    state: SchedulerState,
    work: NodeWork,
    now: float,
    *,
    blame: bool = True,
    hopeless: str = "",
    at_fault: Container[str] | None = None,
) -> list[PodExplanation]:
    """The log has not stored the work: everything is as if it had not been decided.

    Work for the same node that still waited in the outbox was decided on the same wrong view and is taken back, too.
    hopeless   why the log will never store it; "": it may the next time
    blame      whether it counts as a refusal of these decisions (a conflict) or not (the log was full)
    at_fault   pods to blame; None: all of them
    returns    explanations about pods that were refused too often and wait for a backoff now
    """
    explanations: list[PodExplanation] = []
    later = state.outbox.withdraw(work.node)
    state.outbox.landed(work.node)
    for item in work.items:
        pod = state.pods[item.uid]
        take_back(state, [item])
        is_blamed = blame and (at_fault is None or item.uid in at_fault)
        if not is_blamed or not isinstance(item, Placement) or pod.phase is not Phase.QUEUED:
            continue
        pod.refolds += 1
        if hopeless or pod.refolds >= MOST_REFOLDS:
            conflicts = f"the log refused {pod.refolds} decisions in a row because others changed the pod or its node"
            explanations.append(abandoned(item, hopeless or conflicts))
            pod.refolds = 0
            state.queue.retry_later(item.uid, now)
    take_back(state, later)
    return explanations


def withdraw_all(state: SchedulerState) -> None:
    """Take back all work that is not in flight: somebody else decides from now on."""
    for uid in state.waiting.uids():
        give_up(state, state.pods[uid], state.pods[uid].trigger)
    for node in state.outbox.nodes():
        take_back(state, state.outbox.withdraw(node))
    for write in state.status_writes.withdraw_all():
        undo_status_write(state, write)
