"""Facts about gangs. Writer: schedulers. Aggregate: `gang.<ns=name>`.

Source:
    event-bus spec, 2.1 and 4.2; scheduler-core spec, 8.7 and 8.9
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class PlacedMember(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A member of a gang and its node."""

    uid: str
    namespace: str
    name: str
    node: str


@CATALOGUE.register(kind="gang")
class GangPlaced(Event, frozen=True, kw_only=True, omit_defaults=True):
    """All members of a gang group were placed in one atomic batch.

    Attributes:
        group: Ids of all gangs that are placed together, joined by ",".
    """

    namespace: str
    name: str
    group: str = ""
    members: list[PlacedMember]


@CATALOGUE.register(kind="gang")
class GangPhaseChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The status of the gang's PodGroup changed.

    Attributes:
        phase: Pending, PreScheduling, Scheduling, Scheduled, Running, Failed, Finished.
    """

    namespace: str
    name: str
    phase: str
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None
