"""PostFilter: room for a pod that no node suits, at the cost of pods of lower priority."""

from typing import Protocol

from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.record import PodRecord


class Room(Protocol):
    """What a preemption has to keep to beside the nodes: tried with and without victims."""

    def take(self, uid: str) -> None:
        """The victim gives back what it holds."""
        ...

    def put_back(self, uid: str) -> None:
        """It does not, after all."""
        ...

    def fits(self) -> bool:
        """Whether the preemptor fits now."""
        ...


class PreemptionPlugin(Plugin, Protocol):
    """A preemption's rules: for whom, at whose cost, and how far it searches (`domain.preemption` does the search)."""

    def answers(self, rejection: Rejection | None) -> bool:
        """Whether it can help a pod that was rejected so; None: no node was feasible."""
        ...

    def spares_everyone(self, pod: PodRecord) -> bool:
        """Whether nobody at all is a victim for the pod: no node need be looked at. False: `may_preempt` tells."""
        ...

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """Whether the pod may take the other one's place; the other's priority is lower."""
        ...

    def room_for(self, pod: PodRecord) -> Room | None:
        """What else has to fit; None: nothing."""
        ...

    def most_candidates(self, nodes: int) -> int:
        """How many nodes of so many are examined."""
        ...
