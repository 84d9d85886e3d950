"""Who of several equal processes does the work, with a number that fences off those who only believe that they do.

Leadership avoids waste; it is not what keeps the log right: every append states what it expects, and the term's epoch
travels in the envelope (`Koord-Epoch`). Adapters: `KvLeadership` in `koordcore.service.leader.lease_kv`,
`LeaseLeadership` in `koordcore.service.leader.lease_kubernetes`.

Source:
    event-bus spec, 4.2; architecture, 7 ("two leaders")
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Term:
    """One time of leading.

    Attributes:
        epoch: Fencing number, from 1; a later term of anybody has a greater one.
        acquired_at_unix: When it began, by the leader's clock.
    """

    holder: str
    epoch: int
    acquired_at_unix: float


OnAcquired = Callable[[Term], None]
OnLost = Callable[[Term, str], None]


class Leadership(Protocol):
    """One candidate."""

    @property
    def term(self) -> Term | None:
        """The term that this candidate leads in at this moment; None when it does not lead.

        It looks at the clock each time: a process that was paused for too long gets None as soon as it runs again,
        before any message reaches it. Ask before every effect.
        """
        ...

    @property
    def holder(self) -> str | None:
        """Who led when the candidate last looked; None: nobody, or it has not looked yet."""
        ...

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None:
        """Has plain functions called when a term begins, and when it ends with the reason. They must not wait."""
        ...

    async def acquired(self) -> Term:
        """Wait until this candidate leads; returns at once when it does."""
        ...

    async def lost(self, term: Term) -> str:
        """Wait until the term is over; returns why. Only for terms of this candidate."""
        ...

    async def campaign(self) -> None:
        """Stand for election, renew the lease, stand again; until `resign` or cancellation.

        Errors of the outside world do not end the campaign.
        """
        ...

    async def resign(self) -> None:
        """End the campaign; a leader lets go, so that another one need not wait for the lease to expire.

        Call it when the work of the term has ended: the next leader begins at once.
        """
        ...
