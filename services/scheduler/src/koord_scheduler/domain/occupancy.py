"""What every pod on a node counts for: resources, host ports, what constraints of other pods ask, measured load.

One `take` when a pod is assumed or found on a node, one `give` when it leaves; everything that is summed over pods
follows from these two, so a trial (`give`, look, `take`) leaves no trace.

source    scheduler-core spec, 1 (step 11), 5.1
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from koord_scheduler.domain.columns import NodeColumns
from koord_scheduler.domain.occupant import Occupant
from koord_scheduler.domain.population import Population
from koord_scheduler.domain.templates import PodTemplate


class Follower(Protocol):
    """Something that sums over the pods of a node (host ports, load estimates)."""

    def may_refuse(self, template: PodTemplate) -> bool:
        """Whether a filter of pods like this looks at what it sums."""
        ...

    def took(self, row: int, occupant: Occupant) -> None:
        """The pod counts on the node."""
        ...

    def gave(self, row: int, occupant: Occupant) -> None:
        """The pod counts there no more."""
        ...


class Occupancy:
    """Pods on rows of the columns."""

    def __init__(self, nodes: NodeColumns, population: Population | None, followers: Sequence[Follower] = ()) -> None:
        self.nodes = nodes
        self.population = population
        self.followers = list(followers)

    def take(self, row: int, occupant: Occupant) -> None:
        """The pod counts on the node from now on."""
        self.nodes.take(row, occupant.demand)
        if self.population is not None and occupant.kind is not None:
            self.population.arrive(row, occupant.kind)
        for follower in self.followers:
            follower.took(row, occupant)

    def give(self, row: int, occupant: Occupant) -> None:
        """The exact inverse of `take`."""
        self.nodes.give(row, occupant.demand)
        if self.population is not None and occupant.kind is not None:
            self.population.leave(row, occupant.kind)
        for follower in self.followers:
            follower.gave(row, occupant)

    def parts_for(self, template: PodTemplate, *, coupled: bool) -> "Occupancy":
        """For trials: only what filters of pods like this look at is moved. coupled: they look at pods elsewhere."""
        followers = [follower for follower in self.followers if follower.may_refuse(template)]
        return Occupancy(self.nodes, self.population if coupled else None, followers)

    @contextmanager
    def trial(self) -> Generator[None]:
        """Takes and gives in here are undone by the caller before it ends: cached answers are not told of them."""
        with self.nodes.unrecorded():
            yield
