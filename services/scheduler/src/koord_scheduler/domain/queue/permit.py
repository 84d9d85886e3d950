"""Pods that wait at Permit with a node.

Source: scheduler-core spec, 1 (step 13)
"""

import heapq
from dataclasses import dataclass

from koord_scheduler.domain.commit.work import Placement


@dataclass(frozen=True, slots=True)
class Held:
    """One waiting pod.

    Attributes:
        work: Its placement.
        deadline: End of its wait in seconds of the run's clock.
    """

    work: Placement
    deadline: float


class WaitingPods:
    """The waiting pods by uid."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._deadlines: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def uids(self) -> list[str]:
        """Return the uids of all waiting pods."""
        return list(self._held)

    def hold(self, work: Placement, deadline: float) -> None:
        """Let the pod wait until the deadline."""
        self._held[work.uid] = Held(work, deadline)
        heapq.heappush(self._deadlines, (deadline, work.uid))

    def take(self, uid: str) -> Placement:
        """End the wait of a pod and return its placement. Raise KeyError if the pod does not wait."""
        return self._held.pop(uid).work

    def work_of(self, uid: str) -> Placement | None:
        """Return the placement of a waiting pod, or None if it does not wait."""
        held = self._held.get(uid)
        return None if held is None else held.work

    def node_of(self, uid: str) -> str:
        """Return the node that the pod waits with. Raise KeyError if the pod does not wait."""
        return self._held[uid].work.node

    def overdue(self, now: float) -> list[str]:
        """Return the pods whose deadline has passed, the earliest deadline first. They still wait."""
        overdue: list[str] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, uid = heapq.heappop(self._deadlines)
            held = self._held.get(uid)
            if held is not None and held.deadline == deadline:
                overdue.append(uid)
        return overdue

    def next_due(self) -> float | None:
        """Return the earliest deadline in seconds of the run's clock, or None if no pod waits."""
        return self._deadlines[0][0] if self._deadlines else None

    def on(self, node: str) -> list[str]:
        """Return pods that wait on the node."""
        return [uid for uid, held in self._held.items() if held.work.node == node]

    def on_nodes(self) -> dict[str, int]:
        """Return node -> number of pods that wait with it."""
        counts: dict[str, int] = {}
        for held in self._held.values():
            counts[held.work.node] = counts.get(held.work.node, 0) + 1
        return counts
