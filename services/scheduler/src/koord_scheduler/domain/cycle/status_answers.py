"""Facts that are no placements on their way to the log, and what follows from its answer.

source    event-bus spec, 4.2
"""

from collections.abc import Container, Sequence

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.events.scheduling.cluster_topology import ClusterTopologyComputed
from koordcore.events.scheduling.gang import GangPhaseChanged
from koordcore.events.scheduling.pod import PodNominated
from koordcore.events.scheduling.quota import QuotaStatusComputed
from koordcore.events.scheduling.schedule_explanation import ScheduleExplanationComputed

from koord_scheduler.domain.commit.status_writes import StatusWrite, TakenStatusWrite
from koord_scheduler.domain.state.nominees import nominated_too_late
from koord_scheduler.domain.state.state import SchedulerState


def next_status_write(state: SchedulerState) -> TakenStatusWrite | None:
    """The next status write that may be appended; one that has become wrong meanwhile is passed over."""
    while (taken := state.status_writes.take(state.last_seq)) is not None:
        uid = taken.write.uid
        if not uid or (uid in state.pods and not state.pods[uid].node and state.nominations.node_of(uid)):
            return taken
        status_write_refused(state, taken)
    return None


def status_write_stored(state: SchedulerState, taken: TakenStatusWrite, seqs: Sequence[int]) -> None:
    """The log has the status write; seqs: in the order of its drafts."""
    state.status_writes.landed(taken)
    for draft, seq in zip(taken.drafts, seqs, strict=True):
        if draft.ref.kind == "pod":
            _pod_said(state, draft.ref.id, draft.event, seq, taken.write.trigger)
        else:
            state.status_writes.seqs[draft.ref] = max(seq, state.status_writes.seqs.get(draft.ref, 0))
        if isinstance(draft.event, GangPhaseChanged):
            state.said.gangs[f"{draft.event.namespace}/{draft.event.name}"] = draft.event


def _pod_said(state: SchedulerState, uid: str, event: Event, seq: int, trigger: str) -> None:
    pod = state.pods.get(uid)
    if pod is not None:
        pod.seq = max(pod.seq, seq)
    elif isinstance(event, PodNominated):
        nominated_too_late(state, uid, event, seq, trigger)


def status_write_refused(state: SchedulerState, taken: TakenStatusWrite) -> None:
    """The log does not have it: what was assumed with it is undone, but for pods of which news was read."""
    state.status_writes.landed(taken)
    known = {draft.ref: state.last_seq(draft.ref) or 0 for draft in taken.drafts if draft.ref.kind == "pod"}
    moved = {draft.ref for draft in taken.drafts if known.get(draft.ref, 0) > draft.expected_last}
    undo_status_write(state, taken.write, moved)


def undo_status_write(state: SchedulerState, write: StatusWrite, moved: Container[AggregateRef] = ()) -> None:
    """A status write that the log does not have: what was assumed with it is undone.

    moved    pods whose nomination is by now what somebody else has said
    """
    for ref, event in write.facts:
        match event:
            case PodNominated() if ref in moved:
                pass
            case PodNominated():
                state.nominations.drop(ref.id)
            case PodEvictionRequested() if not state.status_writes.seqs.get(ref):
                state.evictions.pop(ref.id, None)
            case GangPhaseChanged():
                state.said.gang_unsaid(event, state.cluster.gangs.roster)
            case QuotaStatusComputed(name=name):
                if state.said.quotas.get(name) is event:
                    del state.said.quotas[name]
                state.quota_changes.again(name)
            case ScheduleExplanationComputed():
                state.explanations.unsaid(ref.id, event)
            case ClusterTopologyComputed():
                if state.said.topology is event:
                    state.said.topology = None
            case _:
                pass
    uid = write.uid
    if uid and state.queue.get(uid) is not None:
        state.queue.wake_pod(uid, write.trigger)
