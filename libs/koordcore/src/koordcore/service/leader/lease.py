"""A lease: one record with a version, written only by whoever saw its last version; what keeps one, and its times."""

import secrets
from dataclasses import dataclass
from typing import Protocol

from koordcore.values.invalid import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The content of a lease.

    Attributes:
        holder: Empty: released.
        epoch: Of the holder's term, from 1.
        duration_seconds: How long others wait after they last saw it change.
    """

    holder: str
    epoch: int
    acquired_at_unix: float
    renewed_at_unix: float
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class SeenLease:
    """A lease as it was read; `record` is None if there is none, a write must name `version`."""

    record: LeaseRecord | None
    version: str


@dataclass(frozen=True, slots=True)
class WrittenLease:
    """A lease as it was written: its new version, and the epoch that the store gave the term."""

    version: str
    epoch: int


class LeaseConflict(Exception):
    """The lease has another version than the one named: read it again."""


class LeaseUnavailable(Exception):
    """The store did not answer, so it is unknown whether the write took place."""


class LeaseStore(Protocol):
    """A place for one lease. One call at a time; calls may be cancelled."""

    async def read(self) -> SeenLease:
        """Return the lease as of now, never older than this store's last successful write. Raises LeaseUnavailable."""
        ...

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        """Replace the lease if it still has the version.

        Args:
            acquiring: Begins a term; the store may give it a greater epoch than the record's.

        Raises:
            LeaseConflict: The lease has another version than the one named: look again.
            LeaseUnavailable: The store did not answer, or not in a way that tells whether the write took place.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Durations in seconds of the given clock; retry < renew_deadline < duration.

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
    """Return a name for this run of a process: a restarted one must not be taken for the one before."""
    return f"{instance}_{secrets.token_hex(4)}"
