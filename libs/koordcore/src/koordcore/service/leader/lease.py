"""A lease: its record, the store protocol, and its durations."""

import secrets
from dataclasses import dataclass
from typing import Protocol

from koordcore.values.invalid import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """Content of a lease.

    Attributes:
        holder: Name of the leader; empty: released.
        epoch: Epoch of the holder's term, from 1.
        duration_seconds: Time after its last change until another candidate may take it.
    """

    holder: str
    epoch: int
    acquired_at_unix: float
    renewed_at_unix: float
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease as it was read. `record` is None if there is none. A write has to name `version`."""

    record: LeaseRecord | None
    version: str


@dataclass(frozen=True, slots=True)
class WrittenLease:
    """A lease as it was written: its new version and the epoch of the term."""

    version: str
    epoch: int


class LeaseConflict(Exception):
    """The lease has another version than the one that the write named. Read it again."""


class LeaseUnavailable(Exception):
    """The store did not answer. It is unknown whether the write took place."""


class LeaseStore(Protocol):
    """Storage of one lease. Only one call at a time; calls may be cancelled."""

    async def read(self) -> SeenLease:
        """Return the lease, at least as new as this store's last successful write. Raises LeaseUnavailable."""
        ...

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        """Replace the lease if it still has this version.

        Args:
            acquiring: Whether the write begins a term. The store may then choose a greater epoch than the record's.

        Raises:
            LeaseConflict: The lease has another version. Read it again.
            LeaseUnavailable: It is unknown whether the write took place.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Durations in seconds of the given clock: retry < renew_deadline < duration.

    Source:
        protocol spec, 11.4: 15 s, 10 s, 2 s
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew_deadline < self.duration:
            raise InvalidInput(
                "retry < renew deadline < lease duration, all positive",
                f"{self.retry:g} s, {self.renew_deadline:g} s, {self.duration:g} s",
                "leader_election",
            )


def unique_holder(instance: str) -> str:
    """Return a name for this run of a process, which differs from that of earlier runs."""
    return f"{instance}_{secrets.token_hex(4)}"
