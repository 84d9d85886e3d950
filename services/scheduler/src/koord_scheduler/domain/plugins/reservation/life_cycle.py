"""The end of a Reservation (it expires, its node is deleted, its single use began), and the deletion of its object.
Times are Unix seconds as floats, or RFC 3339 texts in a status.

Source: scheduler-fine-grained spec, 3.3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koordcore.protocol import reservation_status as statuses
from koordcore.protocol.reservations import Reservation
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds

_SOONEST: Final = 3.0
_LATEST: Final = 15.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Lifetime of a Reservation; times are Unix seconds."""

    created: float  # Time of its creation
    ttl: float | None = None  # Largest age in seconds (`spec.ttl`); 0: it never expires; None: no limit by age
    expires: float | None = None  # Time at which it expires (`spec.expires`); None: no such limit

    def is_over(self, now: float) -> bool:
        """Return whether the Reservation has expired at `now` (Unix seconds): its end lies before `now`. At its end
        itself it has not expired. With `ttl` 0 it never expires, even if `expires` is set.
        """
        if self.ttl == 0:
            return False
        return (self.expires is not None and now > self.expires) or (
            self.ttl is not None and now - self.created > self.ttl
        )

    def due(self) -> float | None:
        """Return the Unix seconds until which the Reservation is valid; None if it never expires."""
        if self.ttl == 0:
            return None
        ends = [] if self.ttl is None else [self.created + self.ttl]
        return min([*ends, *([] if self.expires is None else [self.expires])], default=None)

    def look_again(self, now: float) -> float:
        """Return the number of seconds (3 to 15) after which the controller must check the Reservation again. 0: never,
        because it has no limit.
        """
        if self.ttl == 0 or (self.expires is None and self.ttl is None):
            return 0.0
        end = self.expires if self.expires is not None else self.created + (self.ttl or 0.0)
        return min(_LATEST, max(_SOONEST, end - now))


def limits_of(reservation: Reservation) -> Limits:
    """Return when a Reservation expires, from `spec.ttl` and `spec.expires` of its object. If `ttl` is missing or
    invalid, its age has no limit. (Admission sets a missing `ttl` to 24h.) An invalid `expires` counts as 1970-01-01:
    the Reservation has expired, unless its `ttl` is 0.
    """
    spec = reservation.spec
    try:
        ttl = None if spec.ttl is None else parse_seconds(spec.ttl)
    except InvalidInput:
        ttl = None
    expires = None if spec.expires is None else unix_seconds(spec.expires)
    return Limits(unix_seconds(reservation.metadata.creation_timestamp or ""), ttl, expires)


@dataclass(frozen=True, slots=True)
class OwnerPod:
    """A pod that is not terminated and names a Reservation in its annotation `reservation-allocated`."""

    owner: statuses.ReservationOwner  # The pod as an entry of `status.currentOwners`
    node: str  # Name of the pod's node
    reservation_uid: str  # Uid of the Reservation that the pod uses
    requests: Mapping[str, int]  # Resource -> amount that the pod requests


def bind(
    status: statuses.ReservationStatus, node: str, allocatable: dict[str, int], now: str
) -> statuses.ReservationStatus:
    """Return the status of a Reservation after it got its node. `allocatable`: resource -> quantity that the
    Reservation holds there. `now`: RFC 3339 time. Raises InvalidInput: the Reservation has ended already.
    """
    if status.phase in statuses.FINAL_PHASES:
        raise InvalidInput("reservation is not active", status.phase, "status.phase")
    return statuses.bound(status, node, allocatable, now)


def synced(
    status: statuses.ReservationStatus,
    uid: str,
    limits: Limits,
    now: str,
    *,
    is_once: bool,
    has_node: Callable[[str], bool],
    pods: Sequence[OwnerPod],
) -> tuple[statuses.ReservationStatus, float]:
    """Return the status after the controller has checked a Reservation, and after how many seconds it must check again.
    An expired Reservation, and one whose node is deleted, fails. One that may be used only once succeeds as soon as it
    has an owner. 0 seconds: check again only after another event.

    Args:
        now: RFC 3339 time.
        is_once: Whether it may be used only once.
        has_node: Returns whether a node exists.
        pods: Pods that name a Reservation. Only those on its node that name this one are its owners.
    """
    if status.phase in statuses.FINAL_PHASES:
        return status, 0.0
    if limits.is_over(unix_seconds(now)) or (status.node and not has_node(status.node)):
        return statuses.expired(status, now), 0.0
    if status.node:
        owning = [pod for pod in pods if pod.node == status.node and pod.reservation_uid == uid]
        allocated: dict[str, int] = {}
        for pod in owning:
            for name, amount in pod.requests.items():
                if name in status.allocatable:
                    allocated[name] = allocated.get(name, 0) + amount
        after = statuses.owned(status, [pod.owner for pod in owning], allocated, status.taken)
        if after != status:
            if is_once and after.owners:
                return statuses.succeeded(after, now), 0.0
            status = after
    return status, limits.look_again(unix_seconds(now))


def is_garbage(status: statuses.ReservationStatus, now: float, keep: float, has_node: Callable[[str], bool]) -> bool:
    """Return whether the object of a Reservation that succeeded or expired must be deleted now. True if its node is
    deleted, or if the Reservation ended more than `keep` seconds ago. A Reservation that failed for another reason is
    kept. `now`: Unix seconds. `keep`: seconds for which the object is kept after the end of the Reservation.
    `has_node`: returns whether a node exists.
    """
    ready = status.condition(statuses.READY)
    if status.phase == statuses.SUCCEEDED:
        since = ready.last_probe_time if ready is not None else ""
    elif status.phase == statuses.FAILED and ready is not None and ready.reason == statuses.EXPIRED:
        since = ready.last_transition_time
    else:
        return False
    return bool(status.node and not has_node(status.node)) or now - unix_seconds(since) > keep
