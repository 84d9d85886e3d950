"""The scheduling round of a gang group: its members are attempted one after another, before any other pod.

Source: scheduler-core spec, 8.4, 8.6
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from koord_scheduler.domain.plugins.gang.group import Member

Turn = tuple[int, str, str, str]


class RoundEnd(StrEnum):
    """Reason why a scheduling round ended: its group succeeded, all members were attempted, or the gang was deleted."""

    SUCCEEDED = "succeeded"
    GANG_GONE = "gang-gone"
    ALL_ATTEMPTED = "all-attempted"


@dataclass(frozen=True, slots=True)
class EndedRound:
    """A finished scheduling round of a gang group, for the metric of round durations."""

    reason: RoundEnd  # Why it ended
    members: int  # Number of members of the group's gangs at its end
    began_at: float  # When it began, in Unix seconds

    @property
    def job_size(self) -> str:
        """Return the metric label for the number of members: `0`, `1-100`, `101-200`, ..., `901-1000`, `1000+`."""
        if self.members == 0:
            return "0"
        if self.members > 1000:
            return "1000+"
        low = (self.members - 1) // 100 * 100
        return f"{low + 1}-{low + 100}"


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """One attempt that concerned a whole job, for metrics: all members placed in one cycle, or a job preemption."""

    job: str  # Id of the gang; `namespace/name` of the pod if it has no gang
    is_preemption: bool  # True for a job preemption, False if all planned members were placed in one cycle
    succeeded: bool
    pods: int = 0  # Number of planned pods; 0 for a preemption
    nodes: int = 0  # Number of nodes in the plan; 0 for a preemption


@dataclass(slots=True, kw_only=True, eq=False)
class Round:
    """The scheduling round of one gang group: its members are attempted one after another, before any other pod. A
    scheduler has at most one round at a time.
    """

    gang_ids: frozenset[str]  # Ids of the gangs of the group
    first_uid: str  # Uid of the pod whose attempt began the round
    first_gang_id: str  # The gang of that pod
    began_at: float = 0.0  # When the round began, in Unix seconds
    # Uids of the first pod and of all pods that `next_pod` returned.
    attempted: set[str] = field(default_factory=set[str])
    failed_message: str = ""  # Why the group failed; "" while no member has failed
    failed_condition: str = ""  # `Rejection.condition` of the member that failed first
    # Uids of members that were refused without a search, because the group had failed.
    failed_fast: set[str] = field(default_factory=set[str])
    is_told: bool = False  # Whether the members that were not attempted got an explanation with `failed_message`
    preemption_message: str = ""  # Outcome of the round's only job preemption; "" if there was none
    # Uid -> node name that the network topology plan gives each member; None without a plan.
    plan: Mapping[str, str] | None = None
    _turns: list[Turn] = field(default_factory=list[Turn])

    def expect(self, members: Iterable[Member]) -> None:
        """Add members that the round shall attempt. Members that were attempted in this round already are ignored."""
        for member in members:
            if member.uid not in self.attempted:
                heapq.heappush(self._turns, member.turn)

    def node_set(self, uid: str) -> tuple[str, ...] | None:
        """Return the nodes that the round's plan allows for the member: its planned node, as a tuple of one name.
        Result: None if there is no plan. Empty if the plan lacks the member; the attempt is then rejected.
        """
        if self.plan is None:
            return None
        node = self.plan.get(uid)
        return () if node is None else (node,)

    def turns(self) -> Iterable[str]:
        """Yield the uids of the members to attempt, by network index and name, and remove them from the list. Some may
        have a node already; the caller skips these.
        """
        while self._turns:
            yield heapq.heappop(self._turns)[3]
