"""The answer to a ScheduleExplanation, an object that asks whether and where a pod, job or gang finds nodes.

Writer: schedulers. Aggregate: `scheduleexplanation.<ns=name>`.

Source: scheduler-core spec, 13.3; protocol spec, 9.8.
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.explanations import NodeFailure
from koordcore.events.registry import CATALOGUE


class FeasiblePlacement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod (namespace, name, uid) and the node that it has or would get."""

    namespace: str
    name: str
    uid: str
    node: str


class SchedulingOutlook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Outlook of a pod, job or gang in one topology domain: the nodes that it would get, or the refused nodes."""

    schedulable: bool = False  # Whether nodes were found
    failed_message: str = ""  # Reason why no node was found; "" if one was found
    feasible: list[FeasiblePlacement] = []  # The pods with their nodes
    # Refused nodes by plugin and reason. Reasons that preemption may resolve come first.
    failures: list[NodeFailure] = []


class PossibleVictim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that would have to be evicted, so that the asked pod, job or gang fits."""

    namespace: str
    name: str
    uid: str
    is_nominated: bool = False  # Whether the pod does not run on the node yet, but is nominated for it


class DomainOutlook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Part of the answer to a ScheduleExplanation: the outlook on the nodes with one value of its topology key."""

    # Value of the topology key. It is "" for nodes without the label, and if there is no key.
    topology_domain: str = ""
    scheduling: SchedulingOutlook  # Outlook without evictions
    preemption: SchedulingOutlook  # Outlook if pods may be evicted
    victims: dict[str, list[PossibleVictim]] = {}  # Node -> pods that would have to be evicted there


@CATALOGUE.register(kind="scheduleexplanation")
class ScheduleExplanationComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The scheduler computed the status of a ScheduleExplanation, which asks whether a pod, job or gang finds a node.

    It is published on a change and at least once a minute.
    """

    namespace: str  # Namespace of the ScheduleExplanation
    name: str  # Name of the ScheduleExplanation
    uid: str = ""  # Uid of the ScheduleExplanation. A later object with the same name gets a status of its own.
    last_update_time: str  # RFC 3339 time of the answer
    failed_message: str = ""  # Reason why no node was found; "" if one was found
    schedulable: bool = False  # Whether a node was found without evictions
    schedulable_after_preemption: bool = False  # Whether a node was found with evictions
    domains: list[DomainOutlook] = []  # Outlook by topology domain
    expired: bool = False  # Whether the lifetime of the object is over. It is then deleted and gets no further answers.
