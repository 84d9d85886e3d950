"""Pods that wait at Permit: they keep their node until other pods of their gang have one.

Source: scheduler-core spec, 1 (step 13)
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from koord_scheduler.domain.loop.commit.work import Placement


@dataclass(frozen=True, slots=True)
class Held:
    """A pod that waits at Permit while it keeps its node."""

    work: Placement  # The placement of the pod, which is not in the log yet
    deadline: float  # End of its wait in Unix seconds of the service's `Clock`


class Lost(NamedTuple):
    """A pod that waited at Permit and lost its node."""

    work: Placement  # The placement that it lost
    why: str  # Clause for the user; "" if its time at Permit was over


class WaitingPods:
    """The pods that wait at Permit with a node, by uid, with their placements and deadlines; and those that have lost
    their nodes since the last call of `lost`, in this order.
    """

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._deadlines: list[tuple[float, str]] = []
        self._unexplained: dict[str, None] = {}
        self._lost: list[Lost] = []

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def uids(self) -> list[str]:
        return list(self._held)

    def hold(self, work: Placement, deadline: float) -> None:
        """Let a pod wait at Permit with its placement, which is not in the log yet. `deadline`: Unix seconds."""
        self._held[work.uid] = Held(work, deadline)
        heapq.heappush(self._deadlines, (deadline, work.uid))
        self._unexplained[work.uid] = None

    def unexplained(self) -> list[Placement]:
        """Return the placements of pods that wait at Permit, except those that an earlier call has returned."""
        works = [self._held[uid].work for uid in self._unexplained]
        self._unexplained.clear()
        return works

    def take(self, uid: str) -> Placement:
        """End the wait of a pod, and return its placement. Raises KeyError: the pod does not wait at Permit."""
        self._unexplained.pop(uid, None)
        return self._held.pop(uid).work

    def lose(self, uid: str, why: str) -> Placement:
        """End the wait of a pod that loses its node, and return its placement. `why`: a clause for the user; "" if its
        time at Permit is over. Raises KeyError: the pod does not wait at Permit.
        """
        work = self.take(uid)
        self._lost.append(Lost(work, why))
        return work

    def lost(self) -> Sequence[Lost]:
        """Return the pods that have lost their nodes since the last call."""
        if not self._lost:
            return ()
        lost, self._lost = self._lost, []
        return lost

    def work_of(self, uid: str) -> Placement | None:
        """None if it does not wait."""
        held = self._held.get(uid)
        return None if held is None else held.work

    def node_of(self, uid: str) -> str:
        """Raises KeyError: the pod does not wait at Permit."""
        return self._held[uid].work.node

    def overdue(self, now: float) -> list[str]:
        """Return the uids of pods whose deadline is `now` or earlier, the earliest deadline first. Each pod is returned
        once. The pods still wait; the caller ends their waits with `take`.
        """
        overdue: list[str] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, uid = heapq.heappop(self._deadlines)
            held = self._held.get(uid)
            if held is not None and held.deadline == deadline:
                overdue.append(uid)
        return overdue

    def next_due(self) -> float | None:
        """Return the earliest deadline in Unix seconds of the service's `Clock`, or None if no pod waits. It may be the
        deadline of a pod that no longer waits.
        """
        return self._deadlines[0][0] if self._deadlines else None

    def on(self, node: str) -> list[str]:
        return [uid for uid, held in self._held.items() if held.work.node == node]

    def on_nodes(self, uids: Iterable[str]) -> dict[str, int]:
        """Return node name -> number of those of the given pods that got this node and wait at Permit."""
        return dict(Counter(self.node_of(uid) for uid in uids if uid in self))
