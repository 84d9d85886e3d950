"""How many bytes of changes the objects of one namespace may write to the log, and which changes wait meanwhile.

Whoever may change one large object of a namespace could fill the log with its versions. So each namespace has a budget.
A change beyond it waits. Only the newest version of an object waits, so many changes become one fact.

    first observation, deletion, cluster-scoped object   never limited
    phase, node, deletion, removed gate of a pod         counted, never delayed: each happens a few times in a life
    status, resources, time of the deletion of a pod     counted; beyond the budget once per `SOON_SECONDS` and pod
    everything else, such as labels and annotations      counted; waits for the budget, at most `LONGEST_SECONDS`

Facts of more than `SMALL_BYTES` are told more rarely beyond the budget: the status of a pod once per `LONGEST_SECONDS`,
and of the changes that have waited longest, one per `SOON_SECONDS` and namespace. So what a namespace writes beyond its
budget is bounded by the number of its objects, however often they change. Nothing that waits is lost.

Source:
    decision 0076
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple, cast

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.protocol.objects import Pod
from koordcore.values import codec

from koord_manager.domain.cluster.mirrored_kinds import object_of
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.mirror import Json, Seen, is_whole, name_of

DEFAULT_BYTES_PER_MINUTE: Final = 1 << 20
MINUTES_AT_ONCE: Final = 8
"""A namespace that has written nothing for so many minutes may write the bytes of all of them at once."""
SOON_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 600.0
SMALL_BYTES: Final = 32 << 10
LOOK_SECONDS: Final = 1.0
"""Shortest interval at which waiting changes are looked at."""
_MOST_REMEMBERED: Final = 10_000


class Urgency(IntEnum):
    UNLIMITED = 0  # Not counted
    AT_ONCE = 1  # Counted, never delayed
    SOON = 2
    LATER = 3


def urgency_of(view: ManagerView, seen: Seen, draft: Draft) -> Urgency:
    """Return how urgent the next fact about an object is (`next_draft`)."""
    old = object_of(view.state.get(seen.ref))
    if seen.gone or old is None or not is_whole(draft.event) or not name_of(seen.object)[0]:
        return Urgency.UNLIMITED
    if isinstance(old, Pod) and isinstance(seen.object, Pod):
        return _of_pod(old, seen.object)
    is_deleted = isinstance(old, dict) and (_deletion(old) is None) != (_deletion(cast("Json", seen.object)) is None)
    return Urgency.AT_ONCE if is_deleted else Urgency.LATER


def _of_pod(old: Pod, new: Pod) -> Urgency:
    deleted_at, before = new.metadata.deletion_timestamp, old.metadata.deletion_timestamp
    if (
        old.status.phase != new.status.phase
        or old.spec.node_name != new.spec.node_name
        or (deleted_at is None) != (before is None)
        or len(old.spec.scheduling_gates) > len(new.spec.scheduling_gates)
    ):
        return Urgency.AT_ONCE
    # The time of a deletion can be brought forward any number of times.
    if old.status != new.status or _resources(old) != _resources(new) or deleted_at != before:
        return Urgency.SOON
    return Urgency.LATER


def _resources(pod: Pod) -> list[object]:
    return [pod.spec.resources, *(each.resources for each in (*pod.spec.containers, *pod.spec.init_containers))]


def _deletion(document: Json) -> object:
    metadata: object = document.get("metadata")
    return cast("Json", metadata).get("deletionTimestamp") if isinstance(metadata, dict) else None


class _Waiting(NamedTuple):
    seen: Seen  # Newest version of the object
    since: float  # Time from which a change of the object waits
    size: int  # Bytes of its fact
    urgency: Urgency

    @property
    def namespace(self) -> str:
        return name_of(self.seen.object)[0]


class ChangeBudget:
    """The budgets of all namespaces and the changes that wait, in one term of leadership. Times are seconds of any
    clock that never goes back.
    """

    def __init__(self, bytes_per_minute: int = DEFAULT_BYTES_PER_MINUTE) -> None:
        self._per_second = bytes_per_minute / 60
        self._most = float(MINUTES_AT_ONCE * bytes_per_minute)
        self._left: dict[str, tuple[float, float]] = {}  # Namespace -> bytes left, and when that was
        self._waiting: dict[str, dict[AggregateRef, _Waiting]] = {}  # By namespace, the longest waiting one first
        self._hurried: dict[AggregateRef, float] = {}  # Pod -> when its status was last told beyond the budget
        self._large: dict[str, float] = {}  # Namespace -> when a large fact was last written beyond its budget
        self._look_at = 0.0
        self._forgets_at = 0.0

    def __len__(self) -> int:
        """The number of objects with a waiting change."""
        return sum(map(len, self._waiting.values()))

    def is_waiting(self, seen: Seen) -> bool:
        return seen.ref in self._waiting.get(name_of(seen.object)[0], {})

    def waiting_in(self, namespace: str) -> int:
        """The number of objects of a namespace with a waiting change."""
        return len(self._waiting.get(namespace, {}))

    def admits(self, view: ManagerView, seen: Seen, draft: Draft, now: float) -> bool:
        """Return whether the next fact about an object (`next_draft`) may be appended now. If so, it is counted, and
        nothing of the object waits any more. Otherwise this version of the object waits.
        """
        urgency = urgency_of(view, seen, draft)
        if urgency is Urgency.UNLIMITED:
            if is_whole(draft.event) or seen.gone:
                self.settle(seen)
            return True
        namespace, size = name_of(seen.object)[0], len(codec.encode(draft.event))
        before = self._waiting.get(namespace, {}).get(seen.ref)
        since = now if before is None else before.since
        waiting = _Waiting(seen, since, size, urgency)
        left = self._refilled(namespace, now)
        is_covered = left >= min(size, self._most)
        if not is_covered and not self._may_overdraw(waiting, now):
            self._waiting.setdefault(namespace, {})[seen.ref] = waiting
            return False
        if not is_covered:
            self._overdrew(waiting, now)
        self._left[namespace] = max(left - size, 0.0), now
        self.settle(seen)
        return True

    def settle(self, seen: Seen) -> None:
        """Forget a waiting change of an object, because the log has, or gets, what is to be said of it."""
        namespace = name_of(seen.object)[0]
        of_namespace = self._waiting.get(namespace)
        if of_namespace is not None and of_namespace.pop(seen.ref, None) is not None and not of_namespace:
            del self._waiting[namespace]

    def is_due(self, now: float) -> bool:
        """Whether `due` is to be asked now."""
        return bool(self._waiting) and now >= self._look_at

    def due(self, now: float) -> list[Seen]:
        """Return the waiting objects whose change may be appended now, the longest waiting ones first. They wait until
        `admits` has admitted them.
        """
        if not self.is_due(now):
            return []
        self._look_at = now + LOOK_SECONDS
        return [seen for namespace in self._waiting for seen in self._due_in(namespace, now)]

    def pause(self, now: float) -> float | None:
        """Return after how many seconds `due` is to be asked; None if nothing waits."""
        return max(self._look_at - now, 0.01) if self._waiting else None

    def _due_in(self, namespace: str, now: float) -> Iterator[Seen]:
        left, has_large = self._refilled(namespace, now), False
        for waiting in self._waiting[namespace].values():
            needed = min(waiting.size, self._most)
            if left >= needed:
                left -= needed
                yield waiting.seen
            elif self._may_overdraw(waiting, now) and not (waiting.size > SMALL_BYTES and has_large):
                has_large = has_large or waiting.size > SMALL_BYTES
                left = 0.0
                yield waiting.seen

    def _may_overdraw(self, waiting: _Waiting, now: float) -> bool:
        is_small = waiting.size <= SMALL_BYTES
        match waiting.urgency:
            case Urgency.LATER:
                last = now - SOON_SECONDS if is_small else self._large.get(waiting.namespace, now - SOON_SECONDS)
                return now - waiting.since >= LONGEST_SECONDS and now - last >= SOON_SECONDS
            case Urgency.SOON:
                interval = SOON_SECONDS if is_small else LONGEST_SECONDS
                return now - self._hurried.get(waiting.seen.ref, now - interval) >= interval
            case _:
                return True

    def _refilled(self, namespace: str, now: float) -> float:
        left, at = self._left.get(namespace, (self._most, now))
        left = min(self._most, left + max(0.0, now - at) * self._per_second)
        if len(self._left) >= _MOST_REMEMBERED and now >= self._forgets_at:
            self._forgets_at = now + SOON_SECONDS
            full = MINUTES_AT_ONCE * 60  # whoever has not written for so long has its full budget again
            self._left = {name: entry for name, entry in self._left.items() if now - entry[1] < full}
        return left

    def _overdrew(self, waiting: _Waiting, now: float) -> None:
        if waiting.urgency is Urgency.SOON:
            if len(self._hurried) >= _MOST_REMEMBERED:
                self._hurried = {each: at for each, at in self._hurried.items() if now - at < LONGEST_SECONDS}
            self._hurried[waiting.seen.ref] = now
        elif waiting.urgency is Urgency.LATER and waiting.size > SMALL_BYTES:
            if len(self._large) >= _MOST_REMEMBERED:
                self._large = {each: at for each, at in self._large.items() if now - at < SOON_SECONDS}
            self._large[waiting.namespace] = now
