"""The lease of a leader election: its content, the protocol of its storage, and its durations.

A service with one instance leads without an election (`SoleLeader`). Appends stay safe even if there are several.
"""

import asyncio
import secrets
from dataclasses import dataclass
from typing import Protocol

from koordcore.ports.leadership import OnAcquired, OnLost, Term
from koordcore.values.invalid import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    holder: str  # Name of the leader; empty: released
    epoch: int  # Number of the leader's term, from 1
    acquired_at_unix: float  # Unix seconds at which the term began
    renewed_at_unix: float  # Unix seconds of the last renewal
    duration_seconds: float  # Time after the last change of the lease until another candidate may take it


@dataclass(frozen=True, slots=True)
class SeenLease:
    record: LeaseRecord | None  # Content; None if there is no lease
    version: str  # Version in the store. The next write must name it.


@dataclass(frozen=True, slots=True)
class WrittenLease:
    version: str  # New version in the store
    epoch: int  # Number of the leader's term


class LeaseConflict(Exception):
    """A write of the lease was refused, because the lease has another version than the write named. Read it again."""


class LeaseUnavailable(Exception):
    """The store of the lease did not answer. It is unknown whether a write took place."""


class LeaseStore(Protocol):
    """Storage of one lease, such as a Kubernetes object. Only one call at a time is allowed; calls may be cancelled."""

    async def read(self) -> SeenLease:
        """Return the lease. It is at least as new as the last successful write of this object.

        Raises:
            LeaseUnavailable: The store did not answer.
        """
        ...

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        """Replace the lease if it still has this version. `version`: Version that was read or written last.
        `acquiring`: whether the write begins a term. The store may then choose a greater epoch than the record's.

        Raises:
            LeaseConflict: The lease has another version.
            LeaseUnavailable: It is unknown whether the write took place.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Durations of a leader election in seconds: retry < renew_deadline < duration.

    Source: protocol spec, 11.4: 15 s, 10 s, 2 s.
    """

    duration: float = 15.0  # Time without renewal after which another candidate may take the lease
    renew_deadline: float = 10.0  # If renewals fail for this time, the leader stops leading
    retry: float = 2.0  # Time between two reads of a candidate, or two renewals of a leader

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew_deadline < self.duration:
            raise InvalidInput(
                "retry < renew deadline < lease duration, all positive",
                f"{self.retry:g} s, {self.renew_deadline:g} s, {self.duration:g} s",
                "leader_election",
            )


def unique_holder(instance: str) -> str:
    """Return a candidate's name that differs in every run of a process: the instance name and a random part."""
    return f"{instance}_{secrets.token_hex(4)}"


class SoleLeader:
    """A candidate without an election: it leads from the start until it resigns. The port `Leadership` has the
    methods.
    """

    def __init__(self, holder: str) -> None:
        self._term = Term(holder, 1, 0.0)
        self._resigned = asyncio.Event()

    @property
    def term(self) -> Term | None:
        """The only term, from the start of the process until `resign`; then None."""
        return None if self._resigned.is_set() else self._term

    @property
    def holder(self) -> str | None:
        """Name of this process until `resign`; then None."""
        return None if self._resigned.is_set() else self._term.holder

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None:
        """No-op: the only term has begun already, and ends with the process."""

    async def acquired(self) -> Term:
        """Return the term at once. After `resign`, wait forever."""
        if self._resigned.is_set():
            await asyncio.Event().wait()
        return self._term

    async def lost(self, term: Term) -> str:
        """Wait for `resign`, and return "resigned"."""
        await self._resigned.wait()
        return "resigned"

    async def campaign(self) -> None:
        """Wait for `resign`, because there is no other candidate."""
        await self._resigned.wait()

    def withdraw(self, reason: str) -> None:
        """No-op, because there is no other candidate."""

    def stand(self) -> None:
        """No-op, because a sole leader never withdraws."""

    async def resign(self) -> None:
        self._resigned.set()
