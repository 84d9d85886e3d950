"""The answer to a ScheduleExplanation about a pod, job or gang.

Writer: schedulers. Aggregate: `scheduleexplanation.<ns=name>`.

Source:
    scheduler-core spec, 13.3; protocol spec, 9.8
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE
from koordcore.events.scheduling.diagnosis import NodeFailure


class FeasiblePlacement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod and the node that it has or would get."""

    namespace: str
    name: str
    uid: str
    node: str


class SchedulingOutlook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Whether a node was found in a domain, by scheduling or by preemption.

    Attributes:
        failed_message: Reason why no node was found; "" if one was found.
        failures: Refusals of nodes by plugin and reason, sorted as in a diagnosis.
    """

    schedulable: bool = False
    failed_message: str = ""
    feasible: list[FeasiblePlacement] = []
    failures: list[NodeFailure] = []


class PossibleVictim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that would have to be evicted. `is_nominated`: it waits for a nominated node."""

    namespace: str
    name: str
    uid: str
    is_nominated: bool = False


class DomainOutlook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The answer for the nodes with one value of the topology key.

    The value is "" without a key, and for nodes without the label.

    Attributes:
        victims: Node -> pods that would have to be evicted there.
    """

    topology_domain: str = ""
    scheduling: SchedulingOutlook
    preemption: SchedulingOutlook
    victims: dict[str, list[PossibleVictim]] = {}


@CATALOGUE.register(kind="scheduleexplanation")
class ScheduleExplanationComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The status of a ScheduleExplanation. It is published on a change and at least once a minute.

    Attributes:
        uid: Uid of the object. Another object with the same name has its own status.
        last_update_time: RFC 3339 time of the answer.
        expired: Whether its time is over. The object is then deleted and gets no further answers.
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
