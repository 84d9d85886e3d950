"""The scheduling queue: active, backing off, unschedulable, gated and in-flight pods.

    add -> active --pop, take--> in flight --placed--> gone
             ^                     |  |
             |                     |  +--unschedulable--> waiting --event, or 5 min--+
             |                     +--retry_later--> backoff <-- still backing off --+
             +---------- backoff is over <-------------+

Before a pod becomes active or backs off, the PreEnqueue plugins are asked (`gate`). If they refuse the pod, it is
gated until one of its own events, or until a plugin activates it. Waiting pods form groups: pods that nodes refused,
by their `Subject`; pods that a plugin rejected before any node, by the plugin's `Block`.

Times are arguments: Unix seconds of the service's `Clock`. Pods of equal priority are ordered by enqueueing, so that a
replay pops the same pods. While a pod waits for its first attempt, at most every second pop is a retry, also if the
retry has a higher priority. Otherwise many pods that fit nowhere could keep a new one from ever being attempted.

Source: scheduler-core spec, 2
"""

from collections.abc import Callable, Iterable
from typing import Final

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.loop.queue.pauses import Pauses
from koord_scheduler.domain.loop.queue.queued_pod import Block, Came, PodHeap, QueuedPod, QueueState
from koord_scheduler.domain.loop.queue.unschedulable import Fits, Group, SeesOtherwise, WaitingRoom

LONGEST_WAIT_SECONDS: Final = 300.0
FLUSH_PERIOD_SECONDS: Final = 30.0
_MOST_FLUSHED: Final = 500

Gate = Callable[[str], str | None]
"""A function that asks the PreEnqueue plugins: why the pod may not be attempted now, or None if it may."""


class SchedulingQueue:
    """All pods of this scheduler's profiles that have no node, by queue state."""

    def __init__(
        self,
        nodes: NodeColumns,
        *,
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        gate: Gate = lambda _: None,
        sees_otherwise: SeesOtherwise = lambda _: False,
        is_nominated: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._gate = gate
        self._is_nominated = is_nominated
        self._blocked: dict[Block, Group] = {}
        # Uid -> reason, for pods of the queue that PreEnqueue refused. The reader empties it.
        self.gated: dict[str, str] = {}
        self._initial_backoff = initial_backoff
        self._max_backoff = max_backoff
        self._pods: dict[str, QueuedPod] = {}
        self._untried = PodHeap(QueueState.ACTIVE, self._pods, tried=False)
        self._retries = PodHeap(QueueState.ACTIVE, self._pods, tried=True)
        self._popped_retry = False  # Whether the last pop was a retry, and an untried pod waited
        self._backoff = PodHeap(QueueState.BACKOFF, self._pods)
        self._waiting_since: dict[str, float] = {}
        self._pauses = Pauses()
        self._room = WaitingRoom(nodes, sees_otherwise)
        self._tickets = 0
        self._next_flush = self._now = 0.0
        self._counts = dict.fromkeys(QueueState, 0)
        self._came = Came.ADDED
        # (state, reason) -> number of times that a pod entered the state for this reason.
        self.incoming: dict[tuple[QueueState, Came], int] = {}

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def now(self) -> float:
        """Time of the last `tick`."""
        return self._now

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def uids(self) -> list[str]:
        return list(self._pods)

    def counts(self) -> dict[QueueState, int]:
        return dict(self._counts)

    def add(self, uid: str, subject: Subject, priority: int, trigger: str, failures: int = 0) -> None:
        """Add a pod to the active queue, if PreEnqueue allows it. `trigger` is the event that submitted or changed it.
        A pod that is in the queue already starts again and keeps its number of attempts. A new pod with `failures`, its
        failed bindings, has as many attempts and waits in the back-off queue.
        """
        old = self._pods.get(uid)
        if old is not None:
            self.remove(uid)
        self._tickets += 1
        pod = QueuedPod(uid=uid, subject=subject, priority=priority, trigger=trigger, ticket=self._tickets)
        pod.attempts = failures if old is None else old.attempts
        self._pods[uid] = pod
        pod.state = QueueState.GATED
        self._counts[QueueState.GATED] += 1
        self._came = Came.ADDED
        self._activate(pod)
        if old is None and failures:
            self.retry_later(uid, self.now)

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove a pod and return its entry, or None if it is not in the queue. If an event had woken the pod, the
        first waiting pod of its group is woken instead.
        """
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        self.gated.pop(uid, None)  # only a leader empties it
        self._leave(pod)
        if pod.woken:
            self.wake_pod(self._first_like(pod), pod.trigger)
        return pod

    def pop(self) -> QueuedPod | None:
        """Return the next pod of the active queue, or None if it is empty: the first one by rank, or the first untried
        one after a retry. The pod is in flight from then on, and its number of attempts grows by one.
        """
        pod = self._next_active()
        if pod is not None:
            pod.attempts += 1
            self._move(pod, QueueState.IN_FLIGHT)
        return pod

    def _next_active(self) -> QueuedPod | None:
        """Remove the pod whose turn it is from its heap."""
        untried, retry = self._untried.first(), self._retries.first()
        if untried is None or retry is None:
            self._popped_retry = False
            return self._untried.pop() if retry is None else self._retries.pop()
        self._popped_retry = not self._popped_retry and retry.rank < untried.rank
        return self._retries.pop() if self._popped_retry else self._untried.pop()

    def take(self, uid: str, like: str = "") -> QueuedPod:
        """Return a pod out of turn. It is in flight from then on, and its number of attempts grows by one. `uid`: uid
        of the pod; it must be in the queue. `like`: uid of the pod whose queue position and number of attempts it
        inherits; "" for its own.
        """
        pod, first = self._pods[uid], self._pods.get(like)
        if first is not None:
            pod.ticket, pod.attempts = first.ticket, max(pod.attempts, first.attempts - 1)
        pod.attempts += 1
        self._move(pod, QueueState.IN_FLIGHT)
        return pod

    def describe(self, uid: str, subject: Subject) -> None:
        """Replace the subject of a pod that was read again. It keeps its state and its place."""
        pod = self._pods[uid]
        if pod.state is QueueState.UNSCHEDULABLE and pod.block is None:
            self._room.move(pod.subject, subject, uid)
        pod.subject = subject

    def recheck(self, uid: str) -> None:
        """Call PreEnqueue again for a pod that has changed. No-op unless the pod is gated."""
        self._came = Came.UPDATED
        if self._pods[uid].state is QueueState.GATED:
            self._activate(self._pods[uid])

    def activate(self, uids: Iterable[str], trigger: str = "") -> None:
        """Move these pods to the active queue regardless of their back-off, if PreEnqueue allows it. `uids`: uids of
        the pods; those that are not in the queue are ignored. `trigger`: id of the event because of which they are
        attempted; "" keeps the former trigger of each pod.
        """
        self._came = Came.ACTIVATED
        for uid in uids:
            pod = self._pods.get(uid)
            if pod is not None and pod.state in (QueueState.GATED, QueueState.UNSCHEDULABLE, QueueState.BACKOFF):
                pod.trigger = trigger or pod.trigger
                self._activate(pod)

    def unschedulable(self, uid: str, now: float, block: Block | None = None, refused_by: tuple[str, ...] = ()) -> None:
        """Let a pod whose attempt failed wait for an event that may make it schedulable. If a plugin had rejected it
        before, and now something else did, wake the next pod that the plugin rejected. `block`: why a plugin rejected
        the pod before nodes were filtered; None: none was feasible. `refused_by`: plugins that refused nodes.
        """
        pod = self._pods[uid]
        pod.refused_by = refused_by
        next_one = self._first_like(pod) if pod.woken and pod.block not in (None, block) else None
        self._came = Came.FAILED
        pod.woken = False
        pod.block = block
        pod.ready_at = now + self._backoff_seconds(pod.attempts)
        pod.since = now
        self._move(pod, QueueState.UNSCHEDULABLE)
        self._waiting_since[uid] = now
        if block is None:
            self._room.add(pod.subject, pod.rank)
        else:
            self._blocked.setdefault(block, Group()).add(pod.rank)
        self.wake_pod(next_one, pod.trigger)

    def wake_at(self, uid: str, at: float) -> None:
        """Let an unschedulable pod also be woken at a time (Unix seconds) at which it may find a node. See `Pauses`."""
        pod = self._pods[uid]
        if pod.state is QueueState.UNSCHEDULABLE:
            self._pauses.put(uid, (pod.subject, pod.block), at)

    def blocked(self) -> list[tuple[Block, str]]:
        """Return (what the group waits for, uid of its first pod) for each group of pods that a plugin rejected."""
        found = [(block, group.first()) for block, group in self._blocked.items()]
        return [(block, uid) for block, uid in found if uid is not None]

    def first_waiting(self, subject: Subject) -> str | None:
        """The uid of the first unschedulable pod of a subject."""
        return self._room.first(subject)

    def unschedulable_pods(self) -> list[QueuedPod]:
        """Return the entries of all unschedulable pods, in the order in which they began to wait."""
        return [self._pods[uid] for uid in self._waiting_since]

    def waiting_subjects(self) -> list[Subject]:
        """Return the subjects of the pods that nodes refused, in the order in which their groups began to wait."""
        return self._room.subjects()

    def retry_later(self, uid: str, now: float) -> float:
        """Move a pod, whose failure no event ends, to the back-off queue. Return the time when the back-off ends."""
        pod = self._pods[uid]
        self._came = Came.FAILED
        pod.ready_at = now + self._backoff_seconds(pod.attempts)
        self._to_backoff(pod)
        return pod.ready_at

    def retry_now(self, uid: str) -> None:
        """Move a pod whose assumed placement was undone to the active queue at its old position, or gate it."""
        pod = self._pods[uid]
        self._came = Came.FAILED
        if not self._stays_gated(pod):
            self._move(pod, QueueState.ACTIVE)
            self._retries.push(pod)

    def assumed(self, pod: QueuedPod, has_room: Callable[[Subject], bool]) -> None:
        """End an attempt that found a node. Wake the next pod of the same `Block`, and of the subject if it may fit.
        `pod`: the queue's entry of the pod. It stays in flight until its placement is stored or undone. `has_room`:
        returns whether a pod of a subject may fit now. Called only if such a pod waits.
        """
        pod.woken = False
        if pod.block is not None:
            self.wake_pod(self._first_like(pod), pod.trigger)
        if self._room.first(pod.subject) is not None and has_room(pod.subject):
            self.wake_first(pod.subject, pod.trigger)

    def wake(self, rows: Rows, fits: Fits, trigger: str) -> int:
        """Wake the first waiting pod of each subject that fits on one of the changed nodes, and return their number."""
        helped = self._room.helped(rows, fits)
        for subject in helped:
            self.wake_first(subject, trigger)
        return len(helped)

    def wake_all(self, trigger: str) -> int:
        """Wake all pods that nodes refused, and return their number."""
        refused = [pod.uid for pod in self.unschedulable_pods() if pod.block is None]
        for uid in refused:
            self.wake_pod(uid, trigger)
        return len(refused)

    def tick(self, now: float) -> None:
        """Advance the time to `now`: end back-offs and pauses; every 30 s, waits over 5 minutes of each first pod."""
        self._now = now
        while (pod := self._backoff.first()) is not None and pod.ready_at <= now:
            self._came = Came.BACKED_OFF
            self._activate(pod)
        for uid in self._pauses.over(now):
            self._came = Came.TIMED_OUT
            self._end_wait(self._pods[uid])
        if now >= self._next_flush:
            self._next_flush = now + FLUSH_PERIOD_SECONDS
            self._flush(now)

    def next_due(self) -> float | None:
        """Return the time at which `tick` has its next effect; None if only an event can change the queue."""
        flush = self._next_flush if self._waiting_since else None
        backing_off = self._backoff.first()
        backoff = backing_off.ready_at if backing_off is not None else None
        dues = (flush, backoff, self._pauses.next_due())
        return min((moment for moment in dues if moment is not None), default=None)

    def is_in_flight(self, uid: str) -> bool:
        """Return whether the pod is being attempted, or has a node and its placement is not in the log yet."""
        pod = self._pods.get(uid)
        return pod is not None and pod.state is QueueState.IN_FLIGHT

    def is_gated(self, uid: str) -> bool:
        """Return whether a PreEnqueue plugin keeps the pod out of the active queue."""
        pod = self._pods.get(uid)
        return pod is not None and pod.state is QueueState.GATED

    def has_active(self) -> bool:
        return self._counts[QueueState.ACTIVE] > 0

    def _backoff_seconds(self, attempts: int) -> float:
        """Return min(initial * 2^(attempts - 1), max)."""
        return min(self._initial_backoff * 2.0 ** min(max(attempts - 1, 0), 60), self._max_backoff)

    def wake_first(self, subject: Subject, trigger: str) -> None:
        """Wake the first unschedulable pod of this subject, because there may be room for it. No-op if no pod of the
        subject waits.
        """
        self.wake_pod(self._room.first(subject), trigger)

    def wake_pod(self, uid: str | None, trigger: str) -> None:
        """Move a pod, if it is unschedulable, to the active or back-off queue, as the event `trigger` may help it. ""
        keeps its former trigger: the id of its next decision follows from it.
        """
        pod = self._pods[uid] if uid is not None else None
        if pod is not None and pod.state is QueueState.UNSCHEDULABLE:
            pod.woken = True
            self._came = Came.HELPED
            pod.trigger = trigger or pod.trigger
            self._end_wait(pod)

    def _end_wait(self, pod: QueuedPod) -> None:
        if pod.ready_at <= self._now:
            self._activate(pod)
        else:
            self._to_backoff(pod)

    def _to_backoff(self, pod: QueuedPod) -> None:
        if self._stays_gated(pod):
            return
        self._move(pod, QueueState.BACKOFF)
        self._backoff.push(pod)

    def _stays_gated(self, pod: QueuedPod) -> bool:
        """Ask PreEnqueue. If it refuses the pod, gate the pod and return True."""
        refusal = self._gate(pod.uid)
        if refusal is None:
            pod.gated_by = ""
            return False
        if pod.gated_by != refusal:
            pod.gated_by = refusal
            self.gated[pod.uid] = refusal
        self._move(pod, QueueState.GATED)
        return True

    def _activate(self, pod: QueuedPod) -> None:
        if self._stays_gated(pod):
            return
        self._tickets += 1
        pod.ticket = self._tickets
        self._move(pod, QueueState.ACTIVE)
        (self._retries if pod.attempts else self._untried).push(pod)

    def _flush(self, now: float) -> None:
        """End waits of more than 5 minutes, for the first pod of each group, the longest waits first. The next pod
        follows if that one is placed. If the first pod waits for its victims on the node to which it is nominated, the
        next one follows at once: it may find victims elsewhere.
        """
        groups = (*self._room.groups(), *self._blocked.values())
        firsts = ((group.first(), group.first_but(self._is_nominated)) for group in groups)
        heads = dict.fromkeys(uid for both in firsts for uid in both if uid is not None)
        overdue = [uid for uid in heads if now - self._waiting_since[uid] >= LONGEST_WAIT_SECONDS]
        self._came = Came.TIMED_OUT
        for uid in sorted(overdue, key=self._waiting_since.__getitem__)[:_MOST_FLUSHED]:
            self._end_wait(self._pods[uid])

    def _first_like(self, pod: QueuedPod) -> str | None:
        """Return the first pod of the group in which this pod waits or has waited; None if the group is empty."""
        if pod.block is None:
            return self._room.first(pod.subject)
        group = self._blocked.get(pod.block)
        return None if group is None else group.first()

    def _move(self, pod: QueuedPod, place: QueueState) -> None:
        self._leave(pod)
        pod.state = place
        self._counts[place] += 1
        if place is not QueueState.IN_FLIGHT:
            key = place, self._came
            self.incoming[key] = self.incoming.get(key, 0) + 1

    def _leave(self, pod: QueuedPod) -> None:
        self._counts[pod.state] -= 1
        if pod.state is QueueState.UNSCHEDULABLE:
            del self._waiting_since[pod.uid]
            self._pauses.drop(pod.uid)
            if pod.block is None:
                self._room.discard(pod.subject, pod.uid)
            else:
                self._blocked[pod.block].discard(pod.uid)
                if not self._blocked[pod.block].members:
                    del self._blocked[pod.block]
