"""The extension point PostFilter: what a plugin may do for a pod without a feasible node. `preempt` has the searches.

Source: scheduler-core spec, 6, 8.10 and 10.8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.record import PodRecord


class PodVictim(NamedTuple):
    """A pod that must leave its node.

    Attributes:
        pod: The pod.
        violates_budget: Whether its eviction exceeds a disruption budget.
        node: The node that it must leave.
    """

    pod: PodRecord
    violates_budget: bool
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A node on which the pod fits after its victims have left.

    Attributes:
        plugin: Name of the plugin.
        node: The node that the pod is nominated to.
        victims: Pods that must leave.
        examined: Number of nodes that were tried.
        nominations: Uid -> node of all members of the pod's job, if the preemption was for the whole job.
        message: Additional text for the user.
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
    """No preemption helps the pod.

    Attributes:
        message: Reason for the user.
        keeps_nomination: Whether an earlier preemption is still in progress.
        ends: Whether no other plugin needs to try.
        unhelpful: Pods whose nominations end.
        job: Rules of the job whose members at Permit release their nodes.
    """

    message: str
    keeps_nomination: bool = False
    ends: bool = False
    unhelpful: Sequence[PodRecord] = ()
    job: "JobRules | None" = None


class Room(Protocol):
    """A limit besides the nodes that the preemptor must fit, such as its quota.

    Victims are removed and put back on trial.
    """

    def take(self, uid: str) -> None:
        """Remove the victim from the usage."""
        ...

    def put_back(self, uid: str) -> None:
        """Undo `take`."""
        ...

    def fits(self) -> bool:
        """Return whether the preemptor fits without the removed victims."""
        ...


class VictimRules(Protocol):
    """Rules of a preemption that searches one node for one pod."""

    @property
    def name(self) -> str:
        """Name of the plugin."""
        ...

    def spares_everyone(self, pod: PodRecord) -> bool:
        """Return whether no pod may be a victim. If False, `may_preempt` decides for each pod."""
        ...

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """Return whether `pod` may evict `victim`, whose priority is lower."""
        ...

    def room_for(self, pod: PodRecord) -> Room | None:
        """Return a further limit that the pod must fit, or None if there is none."""
        ...

    def most_candidates(self, nodes: int) -> int:
        """Return the maximum number of candidates to examine out of `nodes`."""
        ...


class JobRules(Protocol):
    """Rules of a preemption for a whole job."""

    @property
    def name(self) -> str:
        """Name of the plugin."""
        ...

    def members(self, pod: PodRecord) -> Sequence[str]:
        """Return the uids of all pending members of the pod's group in order. Without a group, return the pod alone."""
        ...

    def outcome(self, pod: PodRecord) -> str:
        """Return the message of the job preemption in this round of the group; "" if there was none."""
        ...

    def remember(self, pod: PodRecord, message: str) -> None:
        """Store the message of the job preemption for the rest of the group's round."""
        ...

    def is_job(self, pod: PodRecord) -> bool:
        """Return whether the preemption is for a whole group. If it fails then, no single member may preempt."""
        ...

    def waiting(self, pod: PodRecord) -> Sequence[str]:
        """Return the uids of the members of the pod's group that wait at Permit with a node."""
        ...

    def reject_waiting(self, pod: PodRecord) -> Sequence[str]:
        """Let the gang count its waiting members as pending, and return their uids."""
        ...

    def peers_of(self, pod: PodRecord) -> Mapping[str, int]:
        """Return node -> number of running pods that the pod prefers to be near."""
        ...


class PreemptionSearch(Protocol):
    """Searches nodes where evicting pods of lower priority makes room for the pod of an attempt."""

    def on_one_node(self, rules: VictimRules) -> Preemption | NoPreemption:
        """Return the preemption on the best single node, or why there is none."""
        ...

    def for_job(self, rules: JobRules) -> Preemption | NoPreemption:
        """Return a preemption that makes room for all members of the pod's job, or why there is none."""
        ...


class PostFilterPlugin(Plugin, Protocol):
    """A plugin that tries to make room for a pod."""

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        """Return the outcome of a search, or None if the plugin cannot help.

        Args:
            pod: The pod that found no node.
            rejection: How the pod was rejected before any node was filtered. None: no node was feasible.
            search: Runs the searches, by the rules that it is given.
        """
        ...
