"""Removes and adds pods on a private copy of the scheduler's state, and decides like the live scheduler.

The log is simulated: every decision is confirmed at once, under sequences behind those of the real log.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import CustomObjectObserved, PodSpecAdded, PodSpecDeleted
from koordcore.events.pod import PodNominated
from koordcore.protocol.objects import Pod
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.loop.commit.work import Placement
from koord_scheduler.domain.loop.cycle.deciding import decide_next, lost_nodes, settle_waits
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation
from koord_scheduler.domain.loop.folding.log import fold_ahead, fold_early
from koord_scheduler.domain.loop.queue.queued_pod import QueueState
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.recording import stored_as

MOST_AHEAD: Final = 1000
"""Maximum number of decisions about pods that wait ahead of those of the question. It limits the cost of a question."""
_BEHIND: Final = 1_000_000_000
"""Distance between the last known position of the log and the first simulated one."""


class Trial:
    """Makes decisions for a capacity question on a state that nothing else uses. `now`, Unix seconds, does not pass."""

    def __init__(self, state: SchedulerState, now: float) -> None:
        fold_early(state)
        state.assumed.outbox.land_all()
        log = state.log
        self._state = state
        self._now = now
        self._seq = max(log.position, log.acknowledged, log.read_ahead) + _BEHIND
        self.pods: dict[str, None] = {}  # Uids of the pods of the question, in the order of their submission
        # Uid -> the last explanation of a pod of the question that got no node.
        self.explanations: dict[str, PodUnschedulable] = {}
        # Uid of a nominated pod -> "namespace/name" of the pods that it preempts.
        self.victims: dict[str, list[str]] = {}
        self.ahead = 0  # Number of decisions about pods that are not part of the question
        self.passed_over = 0  # Number of waiting pods that were not decided, because too many were ahead
        self._untried: dict[str, None] = {}
        self._pass_time()

    def put(self, ref: AggregateRef, event: Event) -> None:
        fold_ahead(self._state, stored_as(self._next_seq(), ref, event))

    def leave(self, uids: Iterable[str]) -> None:
        """Delete pods in the copy, and release their nodes."""
        for uid in uids:
            pod = self._state.pods[uid]
            self.put(AggregateRef("podspec", uid), PodSpecDeleted(namespace=pod.namespace, name=pod.name))
        self._pass_time()

    def put_object(self, ref: AggregateRef, event: CustomObjectObserved, path: str) -> str:
        """As if the log had stored it. Returns its uid if it is placed like a pod, as a Reservation is; otherwise "".
        Raises InvalidInput, with `path`: the object should be placed, and no profile can place it.
        """
        self.put(ref, event)
        uid = str(event.object["metadata"].get("uid", ""))
        pod = self._state.pods.get(uid)
        if pod is None:
            return ""
        if pod.subject is None or pod.framework is None:
            raise InvalidInput("an object with valid requests that a profile of this scheduler places", uid, path)
        self._await(uid)
        return uid

    def submit(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            uid = pod.metadata.uid
            self._await(uid)
            self.put(AggregateRef("podspec", uid), PodSpecAdded(object=pod))

    def _await(self, uid: str) -> None:
        self.pods[uid] = None
        self._untried[uid] = None

    def decide(self) -> None:
        """Decide in the order of the queue, until every pod of the question was attempted or is gated. Other pods that
        are ahead in the queue are decided first, as in the live scheduler. If they are more than `MOST_AHEAD`, the rest
        of them is passed over.
        """
        state = self._state
        state.hints.wake()
        while awaited := self._ready():
            while awaited or state.books.gangs.round is not None:
                turn = self._turn(awaited)
                decided = decide_next(state, self._now, turn)
                if decided is None and not turn:
                    return
                awaited.pop(turn, None)  # a job may have been placed as a whole, so that the pod no longer waits
                for lost in lost_nodes(state, self._now):
                    if lost.uid in self.pods and isinstance(lost.event, PodUnschedulable):
                        self.explanations[lost.uid] = lost.event
                for uid in self._heard(decided):
                    awaited.pop(uid, None)
                self._confirm()
                state.hints.wake()

    def _turn(self, awaited: dict[str, None]) -> str:
        """Return the pod to decide next; "" for the head of the queue."""
        if self.ahead < MOST_AHEAD or not awaited:
            return ""
        if not self.passed_over:
            self.passed_over = self._state.queue.counts()[QueueState.ACTIVE] - len(awaited)
        return next(iter(awaited))

    def _ready(self) -> dict[str, None]:
        """Return the pods of the question that wait for their first attempt, in the order of the queue."""
        waiting = [queued for uid in self._untried if (queued := self._state.queue.get(uid)) is not None]
        active = [queued for queued in waiting if queued.state is QueueState.ACTIVE]
        return dict.fromkeys(queued.uid for queued in sorted(active, key=lambda queued: queued.rank))

    def _heard(self, decided: Placement | list[PodExplanation] | None) -> Iterator[str]:
        """Record a decision of the trial, and yield the uids of the pods of the question that it decided."""
        for each in [decided] if isinstance(decided, Placement) else decided or ():
            uid = each.uid
            if uid not in self.pods:
                self.ahead += 1
                continue
            self._untried.pop(uid, None)
            if isinstance(each, PodExplanation) and isinstance(each.event, PodUnschedulable):
                self.explanations[uid] = each.event
            yield uid

    @property
    def has_refused(self) -> bool:
        """Return whether a pod of the question was attempted and has no node."""
        return any(not self.node_of(uid) for uid in self.explanations)

    def why_gated(self, uid: str) -> str | None:
        """Return why a pod of the question may not be attempted (it is gated); None if it may."""
        pod = self._state.pods[uid]
        return self._state.frameworks.framework_of(pod).pre_enqueue(pod)

    def node_of(self, uid: str) -> str:
        """ "" if it has none, or if it waits at Permit with one."""
        pod = self._state.pods[uid]
        if pod.node:
            return pod.node
        return pod.work_node if pod.phase is Phase.ASSUMED and uid not in self._state.assumed.waiting else ""

    def _pass_time(self) -> None:
        state = self._state
        state.frameworks.advance(self._now)
        state.queue.tick(self._now)
        state.hints.wake()
        state.assumed.release_due()
        settle_waits(state, self._now)
        self._confirm()

    def _confirm(self) -> None:
        """Confirm all waiting events of the copy, as if the log had stored them."""
        state = self._state
        while (taken := state.status.next()) is not None:
            state.status.stored(taken, [self._next_seq() for _ in taken.drafts])
            for draft in taken.drafts:
                if isinstance(draft.event, PodNominated):
                    names = [f"{victim.namespace}/{victim.name}" for victim in draft.event.victims]
                    self.victims[draft.ref.id] = names
        while (batch := state.assumed.outbox.take()).works:
            for work in batch.works:
                seqs = [self._next_seq() for _ in work.items]
                state.commits.confirmed(work, self._next_seq(), seqs, f"fit-{self._seq}")

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq
