"""Leadership: the election of one process among several, with a number that fences off former leaders.

Leadership only avoids duplicate work. The log stays correct without it, because every append names its expected
position. The epoch of the term is in the envelope (`Koord-Epoch`). Adapters: `KvLeadership` in
`koordcore.service.leader.lease_kv`,
`LeaseLeadership` in `koordcore.service.leader.lease_kubernetes`. Services run both in a thread of its own, by
`ThreadedLeadership` in `koordcore.service.leader.lease_thread`.

Source: event-bus spec, 4.2; architecture, 7 ("two leaders").
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Term:
    """One period of leadership, from its acquisition to its loss."""

    holder: str  # Name of the leading candidate
    epoch: int  # Fencing number, from 1. Every later term has a greater one.
    acquired_at_unix: float  # Unix seconds at which it began, on the clock of the leader


OnAcquired = Callable[[Term], None]
OnLost = Callable[[Term, str], None]


class Leadership(Protocol):
    """One candidate in the election of a leader among the instances of a service."""

    @property
    def term(self) -> Term | None:
        """The current term if this candidate leads, else None. Check it before every effect. Each access compares the
        last renewal with the clock. If the process was paused for longer than the renew deadline (10 s by default), it
        gets None.
        """
        ...

    @property
    def holder(self) -> str | None:
        """Name of the leader when this candidate last read the lease; None if there was none or it is unknown."""
        ...

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None:
        """Register functions that are called when a term of this candidate begins and ends. They must not block.
        `acquired`: called with the new term. None: no function. `lost`: called with the ended term and the reason.
        None: no function.
        """
        ...

    async def acquired(self) -> Term:
        """Wait until this candidate leads, and return the term."""
        ...

    async def lost(self, term: Term) -> str:
        """Wait until a term of this candidate is over, and return the reason as text."""
        ...

    async def campaign(self) -> None:
        """Take part in the election and renew the lease, until `resign` or cancellation. Errors of the lease store do
        not end the campaign.
        """
        ...

    def withdraw(self, reason: str) -> None:
        """End the term and leave the lease to other candidates until `stand` is called. The campaign continues.
        `reason`: text that `lost` returns.
        """
        ...

    def stand(self) -> None:
        """Compete for the lease again after `withdraw`. No-op for a candidate that has not withdrawn."""
        ...

    async def resign(self) -> None:
        """End the campaign. A leader releases the lease, so that another candidate leads at once. Call it after the
        work of the term has ended.
        """
        ...
