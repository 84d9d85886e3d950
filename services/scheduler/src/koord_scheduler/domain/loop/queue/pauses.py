"""Unschedulable pods that may find a node at a known time, such as the end of a pause between requests to evict."""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

SPACING_SECONDS: Final = 10.0
"""Time between two pods of a group that are woken because of their pauses."""


@dataclass(slots=True)
class _Group:
    """Pods that wait for the same events. `due` is the time at which the next one is woken."""

    due: float
    until: dict[str, float] = field(default_factory=dict[str, float])


class Pauses:
    """The ends of pauses of waiting pods. Pods of one group usually fail alike. So one pod of a group is woken at a
    time, however many of them wait.
    """

    def __init__(self) -> None:
        self._groups: dict[Hashable, _Group] = {}
        self._group_of: dict[str, Hashable] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._pushed = 0

    def __len__(self) -> int:
        """Return the number of pods that wait for the end of a pause."""
        return len(self._group_of)

    def put(self, uid: str, group: Hashable, until: float) -> None:
        """Let a pod wait for the end of its pause. An earlier end for the same pod is replaced. `group`: identifies the
        pods that wait for the same events. `until`: end of the pause in Unix seconds of the service's `Clock`.
        """
        self.drop(uid)
        self._group_of[uid] = group
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group(until)
            self._push(group, until)
        elif until < known.due:
            known.due = until
            self._push(group, until)
        known.until[uid] = until

    def drop(self, uid: str) -> None:
        if uid in self._group_of:
            group = self._group_of.pop(uid)
            pods = self._groups[group].until
            del pods[uid]
            if not pods:
                del self._groups[group]

    def over(self, now: float) -> list[str]:
        """Return the uids of the pods to wake, at most one of each group, and forget their pauses. The next pod of the
        group follows after `SPACING_SECONDS`, if its pause is over then. `now`: Unix seconds of the service's `Clock`.
        """
        found: list[str] = []
        while (due := self.next_due()) is not None and due <= now:
            group = heapq.heappop(self._heap)[2]
            known = self._groups[group]
            uid = min(known.until, key=known.until.__getitem__)
            if known.until[uid] <= now:
                found.append(uid)
                self.drop(uid)
            if known.until:
                known.due = max(now + SPACING_SECONDS, min(known.until.values()))
                self._push(group, known.due)
        return found

    def next_due(self) -> float | None:
        """Return the time at which `over` returns the next pod; None if no pod waits for the end of a pause."""
        while self._heap:
            due, _, group = self._heap[0]
            known = self._groups.get(group)
            if known is not None and known.due == due:
                return due
            heapq.heappop(self._heap)
        return None

    def _push(self, group: Hashable, due: float) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (due, self._pushed, group))
