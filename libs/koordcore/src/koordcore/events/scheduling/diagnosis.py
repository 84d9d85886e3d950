"""Diagnosis of an attempt that found no node. Explanations contain it; `koord explain` shows it.

Source:
    scheduler-core spec, 13.1 and 13.2
"""

import msgspec

from koordcore.events.scheduling.pod import Victim

MOST_NODES_NAMED = 100
"""Largest number of node names in a group; `count` is the number of all its nodes."""


class NodeFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Nodes that one plugin refused for one reason.

    Attributes:
        preempt_might_help: Whether the removal of pods may change the result (its code is not Unresolvable).
        nodes: Names of the nodes, or of some of them if they are many.
        details: One sentence per domain (limited), for example the counted pods or the pods that prevent a placement.
    """

    plugin: str
    reason: str
    preempt_might_help: bool = False
    count: int
    nodes: list[str] = []
    details: list[str] = []


class PreemptionDiagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Result of the preemption attempt.

    Attributes:
        node: Nominated node; "" if none.
        examined: Number of nodes on which preemption was tried.
        failed_message: Reason why it did not help; "" if it did.
    """

    plugin: str = ""
    node: str = ""
    victims: list[Victim] = []
    examined: int = 0
    failed_message: str = ""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An action that may help. `type` is EvictWorkloadSelf, WaitingVictimReleased or DeleteConflictPVC."""

    type: str
    message: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Reasons why an attempt found no node, by node.

    Attributes:
        questioned_key: "namespace/name" of the pod, or the id of its gang group.
        pre_filter_message: Reason why the pod was refused before any node was examined; "" if nodes were examined.
        is_root_cause: False if the pod failed only because its gang group had already failed.
        already_waiting: Number of members of its group that wait at Permit.
        waiting_on: Node -> number of members that wait there.
        failures: Refusals by plugin and reason; those that preemption may resolve come first.
    """

    questioned_key: str
    pre_filter_message: str = ""
    is_root_cause: bool = True
    already_waiting: int = 0
    waiting_on: dict[str, int] = {}
    failures: list[NodeFailure] = []
    preemption: PreemptionDiagnosis | None = None
    suggestion: Suggestion | None = None
