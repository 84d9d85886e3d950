"""The extension point PostFilter: plugins that help a pod without a feasible node, for example by preemption.

`preempt` contains the searches for victims.

Source: scheduler-core spec, 6, 8.10 and 10.8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.plugin import Plugin


class PodVictim(NamedTuple):
    """A pod that preemption evicts to make room."""

    pod: PodRecord
    violates_budget: bool  # Whether its eviction exceeds a PodDisruptionBudget
    node: str  # Name of the node that it must leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A successful search for victims: the node on which the pod fits after they have left."""

    plugin: str
    node: str  # Name of the node that the pod is nominated to
    victims: tuple[PodVictim, ...]  # The pods to evict
    examined: int  # Number of nodes on which evictions were tried
    # Uid -> node name of all members of the pod's job, if the preemption was for the whole job.
    nominations: Mapping[str, str] = field(default_factory=dict[str, str])
    message: str = ""  # Additional text for the user
    # Rules of the job whose members waiting at Permit release their nodes; None for a single pod.
    job: "JobRules | None" = None


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """An unsuccessful search for victims: evicting pods does not help the pod now."""

    message: str  # Reason for the user
    # Whether the pod keeps its nominated node, because victims of an earlier preemption are leaving.
    keeps_nomination: bool = False
    ends: bool = False  # True if the remaining PostFilter plugins are not called
    unhelpful: Sequence[PodRecord] = ()  # Pods that lose their nomination to a node
    # Rules of the job whose members waiting at Permit release their nodes; None for a single pod.
    job: "JobRules | None" = None
    notes: str = ""  # Sentence that is added to the refusal of the pod and does not concern preemption; empty for none
    # Unix seconds at which a further search may find victims, because a pod that stays for now may be evicted from then
    # on; None if no pod stays for this reason.
    retry_at: float | None = None


class Room(Protocol):
    """A limit besides the free amounts of nodes that the preempting pod must fit, such as its quota. The search
    subtracts possible victims from the limit's usage on trial, and adds them again.
    """

    def take(self, uid: str) -> None:
        """Subtract a possible victim, the pod with this uid, from the usage that counts against the limit."""
        ...

    def put_back(self, uid: str) -> None:
        """Add the requests of a pod to the usage again, after `take` has subtracted them."""
        ...

    def fits(self) -> bool:
        """Return whether the preempting pod fits the limit after the victims of `take` were subtracted."""
        ...


class VictimRules(Protocol):
    """Rules of a preemption for one pod: the possible victims, and the number of nodes that the search tries."""

    @property
    def name(self) -> str: ...

    def spares_everyone(self, pod: PodRecord) -> bool:
        """Return True if the pod may not evict any pod. If False, `may_preempt` decides for each possible victim."""
        ...

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """Return whether `pod` may evict `victim`. The caller ensures that the victim has a lower priority."""
        ...

    def room_for(self, pod: PodRecord) -> Room | None:
        """Return a limit that the pod must fit besides the nodes, such as its quota, or None if there is none."""
        ...

    def most_candidates(self, nodes: int) -> int:
        """Return the maximum number of candidate nodes to examine out of `nodes`."""
        ...


class JobRules(Protocol):
    """The part of a plugin in preemption for a whole gang group: its members, and the result that they share.
    Preemption asks which pending pods belong to the group of a pod, so that victims make room for all of them at once.
    """

    @property
    def name(self) -> str: ...

    def members(self, pod: PodRecord) -> Sequence[str]:
        """Return the uids of all pending members of the pod's gang group, in scheduling order. Members with scheduling
        gates are left out. Without a group: the pod alone.
        """
        ...

    def outcome(self, pod: PodRecord) -> str:
        """Return the message that `remember` stored in this scheduling round of the gang group; "" without one."""
        ...

    def remember(self, pod: PodRecord, message: str) -> None:
        """Store the result of the job preemption, so that attempts of other members do not repeat the search.
        `message`: result of the search, for users.
        """
        ...

    def is_job(self, pod: PodRecord) -> bool:
        """Return whether the pod belongs to a gang group, so that preemption is for all pending members together. If
        True and the preemption fails, no single member may preempt for itself.
        """
        ...

    def waiting(self, pod: PodRecord) -> Sequence[str]:
        """Return the uids of the members of the pod's group that wait at Permit with a node."""
        ...

    def reject_waiting(self, pod: PodRecord) -> Sequence[str]:
        """Count the group's members that wait at Permit as pending again, and return their uids."""
        ...

    def peers_of(self, pod: PodRecord) -> Mapping[str, int]:
        """Return node name -> number of running pods there that are peers of the pod. Peers have the same value of the
        annotation `scheduling.koordinator.sh/network-topology-selector`.
        """
        ...


class PreemptionSearch(Protocol):
    """Searches for nodes on which evicting pods of lower priority makes room for the pod of the present attempt."""

    def on_one_node(self, rules: VictimRules) -> Preemption | NoPreemption:
        """Return the best node with its victims for the pod alone, or why no node can be made free."""
        ...

    def for_job(self, rules: JobRules) -> Preemption | NoPreemption:
        """Return nodes and victims that make room for all pending members of the pod's job, or why there are none."""
        ...


class PostFilterPlugin(Plugin, Protocol):
    """A plugin that tries to make room for a pod that found no node, usually by preemption."""

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        """Search for victims whose eviction makes room for the pod, by `search` under the plugin's rules. `rejection`:
        at PreFilter; None: nodes were filtered, none was feasible. Returns None if the plugin did not search.
        """
        ...
