"""The group that is being scheduled: its members are tried one after another before any other pod is.

Source:
    scheduler-core spec, 8.4, 8.6
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from koord_scheduler.domain.gang.group import Member

Turn = tuple[int, str, str, str]


class RoundEnd(StrEnum):
    """Why a round is over."""

    SUCCEEDED = "succeeded"
    GANG_GONE = "gang-gone"
    ALL_ATTEMPTED = "all-attempted"


@dataclass(frozen=True, slots=True)
class EndedRound:
    """For the metric of round durations. members: of the group's gangs at the end; began_at: as `Round` has it."""

    reason: RoundEnd
    members: int
    began_at: float

    @property
    def job_size(self) -> str:
        """Return the label value: `0`, `1-100`, `101-200`, ..., `901-1000`, `1000+`."""
        if self.members == 0:
            return "0"
        if self.members > 1000:
            return "1000+"
        low = (self.members - 1) // 100 * 100
        return f"{low + 1}-{low + 100}"


@dataclass(frozen=True, slots=True)
class JobAttempt:
    """For the metrics of attempts that were about a whole job. job: id of its gang, or its pod's key.

    Attributes:
        is_preemption: Room for it was looked for at the cost of others; else its planned members were placed at once.
        pods: How many were planned, and on how many nodes; 0 for a preemption.
        nodes: How many were planned, and on how many nodes; 0 for a preemption.
    """

    job: str
    is_preemption: bool
    succeeded: bool
    pods: int = 0
    nodes: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Round:
    """The scheduling of one gang group. A scheduler has at most one round at a time.

    Attributes:
        gang_ids: Gangs of the group.
        first_uid: Pod that began it, `first_gang_id` its gang.
        began_at: Seconds of the run's clock.
        attempted: Uids of the first pod and of all that `next_pod` returned.
        failed_message: "" while no member has failed.
        failed_fast: Uids of members that failed because the group had failed.
        is_told: Pending members have been told of the failure.
        preemption_message: Outcome of the round's only job preemption, "" if none was tried.
        suggestion: Advice for the user, "" if there is none. The first writer wins.
        plan: Uid -> node by the network topology, or None without a plan.
    """

    gang_ids: frozenset[str]
    first_uid: str
    first_gang_id: str
    began_at: float = 0.0
    attempted: set[str] = field(default_factory=set[str])
    failed_message: str = ""
    failed_fast: set[str] = field(default_factory=set[str])
    is_told: bool = False
    preemption_message: str = ""
    suggestion: str = ""
    plan: Mapping[str, str] | None = None
    _turns: list[Turn] = field(default_factory=list[Turn])

    def expect(self, members: Iterable[Member]) -> None:
        """These may have to be tried, unless they have been."""
        for member in members:
            if member.uid not in self.attempted:
                heapq.heappush(self._turns, member.turn)

    def preempt_once(self, preempt: Callable[[], str]) -> str:
        """Return the message of the round's one job preemption; `preempt` is called for it the first time."""
        self.preemption_message = self.preemption_message or preempt()
        return self.preemption_message

    def node_set(self, uid: str) -> tuple[str, ...] | None:
        """Return the only node that the member may go to.

        None: no plan restricts it; empty: the plan forgot it, an error.
        """
        if self.plan is None:
            return None
        node = self.plan.get(uid)
        return () if node is None else (node,)

    def turns(self) -> Iterable[str]:
        """Uids that may have to be tried, by index and name, each handed out once; the caller judges them."""
        while self._turns:
            yield heapq.heappop(self._turns)[3]
