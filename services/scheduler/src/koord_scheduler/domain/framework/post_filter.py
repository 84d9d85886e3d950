"""PostFilter: what a plugin may do for a pod that no node suits. The searches themselves are in `preempt`.

Source: scheduler-core spec, 6, 8.10 and 10.8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.record import PodRecord


class PodVictim(NamedTuple):
    """A pod that has to leave its node."""

    pod: PodRecord
    violates_budget: bool
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """The pod fits on the node once the victims are gone.

    Attributes:
        plugin: Name of the plugin.
        node: The node that the pod is nominated to.
        victims: Pods that have to leave.
        examined: Number of nodes that were tried.
        nominations: uid -> node of all members of the pod's job, if it was about the whole job.
        message: What is told beside.
        job: Rules of the job whose members at Permit release their nodes.
    """

    plugin: str
    node: str
    victims: tuple[PodVictim, ...]
    examined: int
    nominations: Mapping[str, str] = field(default_factory=dict[str, str])
    message: str = ""
    job: "JobRules | None" = None


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Why no preemption helps.

    Attributes:
        message: Reason for the user.
        keeps_nomination: Whether an earlier preemption is still under way.
        ends: Whether no other plugin need try.
        unhelpful: Pods whose nominations end.
        job: Rules of the job whose members at Permit release their nodes.
    """

    message: str
    keeps_nomination: bool = False
    ends: bool = False
    unhelpful: Sequence[PodRecord] = ()
    job: "JobRules | None" = None


class Room(Protocol):
    """What a preemption has to keep to beside the nodes: tried with and without victims."""

    def take(self, uid: str) -> None:
        """Let the victim give back what it holds."""
        ...

    def put_back(self, uid: str) -> None:
        """Undo `take`."""
        ...

    def fits(self) -> bool:
        """Return whether the preemptor fits now."""
        ...


class VictimRules(Protocol):
    """For whom, at whose cost and how far a preemption searches one node for one pod."""

    @property
    def name(self) -> str:
        """Name of the plugin."""
        ...

    def spares_everyone(self, pod: PodRecord) -> bool:
        """Return whether no pod at all is a victim; False: `may_preempt` decides pod by pod."""
        ...

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """Return whether the pod may take the place of another one, whose priority is lower."""
        ...

    def room_for(self, pod: PodRecord) -> Room | None:
        """Return what else has to fit; None: nothing."""
        ...

    def most_candidates(self, nodes: int) -> int:
        """Return the maximum number of candidates to examine out of `nodes`."""
        ...


class JobRules(Protocol):
    """Which pods a preemption for a whole job is about."""

    @property
    def name(self) -> str:
        """Name of the plugin."""
        ...

    def members(self, pod: PodRecord) -> Sequence[str]:
        """Return the uids of all pending members of the pod's group in their order, or of the pod alone."""
        ...

    def outcome(self, pod: PodRecord) -> str:
        """Return what the job preemption of this scheduling cycle came to; "" if there was none."""
        ...

    def remember(self, pod: PodRecord, message: str) -> None:
        """Keep the outcome for the rest of the group's scheduling cycle."""
        ...

    def is_job(self, pod: PodRecord) -> bool:
        """Return whether it is about a whole group: what cannot help that helps none of its pods."""
        ...

    def waiting(self, pod: PodRecord) -> Sequence[str]:
        """Return the uids of the members of the pod's group that wait with a node."""
        ...

    def reject_waiting(self, pod: PodRecord) -> Sequence[str]:
        """Count these members as pending from now on, and return their uids."""
        ...

    def peers_of(self, pod: PodRecord) -> Mapping[str, int]:
        """Return node -> number of running pods that the pod wants to be near to."""
        ...


class PreemptionSearch(Protocol):
    """Searches for room for the pod of an attempt at the cost of pods of lower priority."""

    def on_one_node(self, rules: VictimRules) -> Preemption | NoPreemption:
        """Search one node for the pod."""
        ...

    def for_job(self, rules: JobRules) -> Preemption | NoPreemption:
        """Search nodes for all members of the pod's job."""
        ...


class PostFilterPlugin(Plugin, Protocol):
    """Tries to make room for a pod."""

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        """Return the outcome of a search; None: the plugin cannot help a pod that was refused so.

        Args:
            pod: The pod that found no node.
            rejection: How it was refused before any node; None: no node was feasible.
            search: Searches by the rules that it is given.
        """
        ...
