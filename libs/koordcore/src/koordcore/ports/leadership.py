"""Leadership: which of several equal processes works, with a number that fences off former leaders.

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
    """One period of leadership.

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
        """The current term if this candidate leads, else None.

        It looks at the clock each time: a process that was paused for too long gets None as soon as it runs again,
        before any message reaches it. Ask before every effect.
        """
        ...

    @property
    def holder(self) -> str | None:
        """The leader when this candidate last read the lease; None if there was none or it has not read it yet."""
        ...

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None:
        """Register functions that are called when a term begins and when it ends; they must not block."""
        ...

    async def acquired(self) -> Term:
        """Wait until this candidate leads; returns at once when it does."""
        ...

    async def lost(self, term: Term) -> str:
        """Wait until a term of this candidate is over and return the reason."""
        ...

    async def campaign(self) -> None:
        """Stand for election, renew the lease, stand again; until `resign` or cancellation.

        Errors of the outside world do not end the campaign.
        """
        ...

    async def resign(self) -> None:
        """End the campaign. A leader releases the lease, so that another candidate need not wait until it expires.

        Call it when the work of the term has ended: the next leader begins at once.
        """
        ...
