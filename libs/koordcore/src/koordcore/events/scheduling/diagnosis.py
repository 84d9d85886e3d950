"""The diagnosis of an attempt that found no node, as a value carried by explanations: the source of "why pending".

Source:
    scheduler-core spec, 13.1 and 13.2
"""

import msgspec

from koordcore.events.scheduling.pod import Victim

MOST_NODES_NAMED = 100
"""A group names so many of its nodes; `count` says how many they are."""


class NodeFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Nodes that one plugin refused for one reason.

    Attributes:
        preempt_might_help: Pods that leave may change it (the status is not Unresolvable).
        nodes: Some of them by name, all when they are few.
        details: One sentence for each of some domains: what was counted there, or who is in the way.
    """

    plugin: str
    reason: str
    preempt_might_help: bool = False
    count: int
    nodes: list[str] = []
    details: list[str] = []


class PreemptionDiagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What was tried at the cost of others.

    Attributes:
        node: Nominated, "" none.
        examined: Nodes on which it was tried.
        failed_message: Why it did not help, "" when it did.
    """

    plugin: str = ""
    node: str = ""
    victims: list[Victim] = []
    examined: int = 0
    failed_message: str = ""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a person may do, or wait for. type: EvictWorkloadSelf, WaitingVictimReleased, DeleteConflictPVC."""

    type: str
    message: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Why, node by node.

    Attributes:
        questioned_key: "namespace/name" of the pod, or the id of its gang group.
        pre_filter_message: Why the pod was refused before any node, "" when nodes were looked at.
        is_root_cause: False: it failed because its gang group had failed already.
        already_waiting: Members of its group that wait with a node.
        waiting_on: Node -> how many of them.
        failures: Sorted by plugin, then reason, those that preemption may help first.
    """

    questioned_key: str
    pre_filter_message: str = ""
    is_root_cause: bool = True
    already_waiting: int = 0
    waiting_on: dict[str, int] = {}
    failures: list[NodeFailure] = []
    preemption: PreemptionDiagnosis | None = None
    suggestion: Suggestion | None = None
