"""The status of a Reservation, and one function per step of its life that returns the status after the step.

    Pending -> Available -> Succeeded | Failed        Pending -> Failed

Source: scheduler-fine-grained spec, 3.1, 3.3.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

PENDING: Final = "Pending"
AVAILABLE: Final = "Available"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
SCHEDULED: Final = "Scheduled"
READY: Final = "Ready"
UNSCHEDULABLE: Final = "Unschedulable"
EXPIRED: Final = "Expired"
FINAL_PHASES: Final = (SUCCEEDED, FAILED)


class ReservationOwner(msgspec.Struct, frozen=True, gc=False):
    """A pod that takes resources from a Reservation."""

    namespace: str
    name: str
    uid: str


class ReservationCondition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A condition in the status of a Reservation. `type` is "Scheduled" or "Ready"; times are RFC 3339."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_probe_time: str
    last_transition_time: str


class ReservationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a Reservation as its object shows it."""

    phase: str = PENDING  # Pending, Available, Succeeded or Failed
    node: str = ""  # Node of the Reservation, also after its end; empty if it never had one
    # Resource -> amount that the Reservation holds, or held until its end: milli-cores for cpu, whole units for
    # everything else.
    allocatable: dict[str, int] = {}
    allocated: dict[str, int] = {}  # Sum of its owners' requests, for the resources in `allocatable`. May exceed it.
    # Amounts that its owners take from it and not from the node. Never exceeds `allocatable`.
    taken: dict[str, int] = {}
    owners: list[ReservationOwner] = []  # The pods that take resources from it, ascending by uid
    conditions: list[ReservationCondition] = []

    def condition(self, type_: str) -> ReservationCondition | None:
        return next((each for each in self.conditions if each.type == type_), None)


def unschedulable(status: ReservationStatus, message: str, now: str) -> ReservationStatus:
    """Return the status of a Reservation after an attempt that found no node. The condition `Scheduled` becomes False.
    If it is already True, only its probe time changes. `message`: why no node was found; text of the condition. `now`:
    RFC 3339 time.
    """
    known = status.condition(SCHEDULED)
    if known is not None and known.status == "True":
        return _with(status, msgspec.structs.replace(known, last_probe_time=now))
    since = now if known is None else known.last_transition_time
    return _with(
        status,
        ReservationCondition(
            type=SCHEDULED,
            status="False",
            reason=UNSCHEDULABLE,
            message=message,
            last_probe_time=now,
            last_transition_time=since,
        ),
    )


def bound(status: ReservationStatus, node: str, allocatable: dict[str, int], now: str) -> ReservationStatus:
    """Return the status of a Reservation that got its node: phase Available, both conditions True. `allocatable`:
    resource -> amount that the Reservation holds there. `now`: RFC 3339 time.
    """
    conditions = [_true(SCHEDULED, SCHEDULED, now), _true(READY, AVAILABLE, now)]
    return msgspec.structs.replace(status, phase=AVAILABLE, node=node, allocatable=allocatable, conditions=conditions)


def expired(status: ReservationStatus, now: str, message: str = "") -> ReservationStatus:
    """Return the status of a Reservation whose lifetime is over or whose node was deleted. The phase becomes Failed,
    and the condition `Ready` False with the reason Expired. `now`: RFC 3339 time.
    """
    known = status.condition(READY)
    has_changed = known is None or known.status == "True"
    ready = ReservationCondition(
        type=READY,
        status="False",
        reason=EXPIRED,
        message=message,
        last_probe_time=now,
        last_transition_time=now if known is None or has_changed else known.last_transition_time,
    )
    return _with(msgspec.structs.replace(status, phase=FAILED), ready)


def succeeded(status: ReservationStatus, now: str) -> ReservationStatus:
    """Return the status of a Reservation with `allocateOnce` after its one owner has used it. The phase becomes
    Succeeded, and the condition `Ready` False. `now`: RFC 3339 time.
    """
    known = status.condition(READY)
    ready = ReservationCondition(
        type=READY,
        status="False",
        reason=SUCCEEDED,
        last_probe_time=now,
        last_transition_time=now if known is None else known.last_transition_time,
    )
    return _with(msgspec.structs.replace(status, phase=SUCCEEDED), ready)


def owned(
    status: ReservationStatus, owners: Sequence[ReservationOwner], allocated: dict[str, int], taken: dict[str, int]
) -> ReservationStatus:
    """Return the status of a Reservation with a new set of owners.

    Args:
        owners: Pods that take resources from the Reservation, in any order.
        allocated: Sum of the owners' requests; see `ReservationStatus`.
        taken: Amounts that the owners take from the Reservation; see `ReservationStatus`.
    """
    in_order = sorted(owners, key=lambda owner: owner.uid)
    return msgspec.structs.replace(status, owners=in_order, allocated=allocated, taken=taken)


def _with(status: ReservationStatus, condition: ReservationCondition) -> ReservationStatus:
    found = [condition if each.type == condition.type else each for each in status.conditions]
    if condition not in found:
        found.append(condition)
    return msgspec.structs.replace(status, conditions=found)


def _true(type_: str, reason: str, now: str) -> ReservationCondition:
    return ReservationCondition(type=type_, status="True", reason=reason, last_probe_time=now, last_transition_time=now)
