"""What a ScheduleExplanation says of the pod, job or gang that it asks about.

Writer: schedulers. Aggregate: `scheduleexplanation.<ns=name>`.

Source:
    scheduler-core spec, 13.3; protocol spec, 9.8
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE
from koordcore.events.scheduling.diagnosis import NodeFailure


class FeasiblePlacement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod, and the node that it has or would get."""

    namespace: str
    name: str
    uid: str
    node: str


class SchedulingOutlook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whether a node was found in a domain, by scheduling or by preemption.

    Attributes:
        failed_message: Why not, "" when one was.
        failures: Nodes by who refused them why, sorted as in a diagnosis.
    """

    schedulable: bool = False
    failed_message: str = ""
    feasible: list[FeasiblePlacement] = []
    failures: list[NodeFailure] = []


class PossibleVictim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that would have to leave. is_nominated: it waits for a node that it was promised."""

    namespace: str
    name: str
    uid: str
    is_nominated: bool = False


class DomainOutlook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The answer for the nodes of one value of the topology key; "" without a key, and for nodes without the label.

    Attributes:
        victims: Node -> who would have to leave it.
    """

    topology_domain: str = ""
    scheduling: SchedulingOutlook
    preemption: SchedulingOutlook
    victims: dict[str, list[PossibleVictim]] = {}


@CATALOGUE.register(kind="scheduleexplanation")
class ScheduleExplanationComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The object's status: on change, and at least once a minute.

    Attributes:
        uid: Of the object: another one of its name has another status.
        last_update_time: RFC 3339.
        expired: Its time is over: the object is to be deleted, and says nothing more.
    """

    namespace: str
    name: str
    uid: str = ""
    last_update_time: str
    failed_message: str = ""
    schedulable: bool = False
    schedulable_after_preemption: bool = False
    domains: list[DomainOutlook] = []
    expired: bool = False
