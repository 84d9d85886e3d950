"""Facts about gangs (pods that are placed together or not at all). Writer: schedulers. Aggregate: `gang.<ns=name>`.

Source: event-bus spec, 2.1 and 4.2; scheduler-core spec, 8.7 and 8.9.
"""

import hashlib
import re
from typing import Final

import msgspec

from koordcore.events.envelope import AggregateRef, Event, namespaced_token
from koordcore.events.registry import CATALOGUE

# Characters and length of the name of an object, which become a token of a subject that no other name has.
_NAME: Final = re.compile(r"[0-9A-Za-z.-]{1,253}")


def gang_ref(namespace: str, name: str) -> AggregateRef:
    """Return the aggregate of a gang: `gang.<namespace>=<name>`, each with `.` replaced by `_`.

    An annotation may name a gang by any text of any length. If the name cannot be that of an object, its digest takes
    its place, behind a `~`. So no two gangs share an aggregate. The facts contain the name.
    """
    if not _NAME.fullmatch(name):
        name = f"~{hashlib.blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    return AggregateRef("gang", namespaced_token(namespace, name))


class PlacedMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A member pod of a gang (uid, namespace, name) and the node on which it was placed."""

    uid: str
    namespace: str
    name: str
    node: str


# The log takes events of at most 1 MiB. A member has about 200 bytes here, and all that matters is in its own event.
MOST_NAMED: Final = 1000


@CATALOGUE.register(kind="gang")
class GangPlaced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """All members of a gang group were placed. Their `PodPlaced` are in the same atomic batch."""

    namespace: str  # Namespace of the gang on whose aggregate the event lies
    name: str  # Name of that gang
    group: str = ""  # Ids of all gangs that are placed together, joined by ","
    members: list[PlacedMember]  # The placed pods with their nodes; of a larger gang, the first 1,000
    count: int = 0  # Number of placed pods, if `members` does not have all of them; 0: it has all


@CATALOGUE.register(kind="gang")
class GangPhaseChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler computed a new status for the PodGroup of a gang."""

    namespace: str
    name: str
    phase: str  # Pending, PreScheduling, Scheduling, Scheduled, Running, Failed, Finished
    occupied_by: str = ""  # Owners of the first member pod, for the PodGroup's status `occupiedBy`; "" for none
    scheduled: int = 0  # Number of members that have a node
    running: int = 0  # Number of members in phase Running
    succeeded: int = 0  # Number of members in phase Succeeded
    failed: int = 0  # Number of members in phase Failed
    schedule_start_time: str | None = None  # RFC 3339 time at which scheduling of the gang started; None before
