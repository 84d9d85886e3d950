"""Progress of the drain of a node or of a group of nodes: a node is closed, and its pods move to other nodes.

Writer: the leading descheduler.

Aggregates: `drain.<name of the DrainNode>`, `draingroup.<name of the DrainNodeGroup>`.

    DrainWaiting ─► DrainStarted ─► DrainPodsChanged ... ─► DrainConfirmed ─► DrainPodsChanged ... ─► DrainCompleted
                                                  └────────────────────────────────────────────────► DrainAborted

Each pod gets a Reservation on another node, and a migration job evicts the pod. Both are objects with facts of their
own.

Source: descheduler spec, 11, 14.
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class DrainedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of one pod of a node that is drained."""

    uid: str  # Uid of the pod
    namespace: str  # Namespace of the pod
    name: str  # Name of the pod
    # Waiting, Unmigratable, Ready, Available (its Reservation has a node), Unavailable (no node was found), Migrating,
    # Succeed or Failed.
    phase: str
    since: str  # RFC 3339 time at which the drain saw the pod for the first time
    phase_since: str  # RFC 3339 time at which the phase began
    after_confirmed: bool = False  # Whether the pod came to the node after the drain had been confirmed
    target: str = ""  # Node of the pod's Reservation; "" if there is none yet
    # Why the pod is in this phase, such as the reason why it must not be migrated; "" if there is none.
    message: str = ""


@CATALOGUE.register(kind="drain")
class DrainWaiting(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A DrainNode was accepted, but another drain works on the same node. This drain waits for the end of the other."""

    object_uid: str  # Uid of the DrainNode
    node: str  # Node that the drain is to empty
    message: str  # Why the drain waits, one sentence


@CATALOGUE.register(kind="drain")
class DrainStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The node of a drain was closed for new pods."""

    object_uid: str  # Uid of the DrainNode
    node: str  # Node that the drain empties
    mode: str = "Taint"  # How the node was closed: "Taint" or "Label"
    labels: dict[str, str] = {}  # Labels that mode "Label" set on the node; empty with mode "Taint"
    pods: list[DrainedPod] = []  # The pods on the node that have to be migrated
    conditions: list[str] = []  # Types of the DrainNode's conditions that are true


@CATALOGUE.register(kind="drain")
class DrainPodsChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """During a drain, pods changed their phase, a pod arrived on the node, or a condition of the DrainNode changed."""

    # The pods that changed, with their new progress. Pods that are not listed are unchanged.
    pods: list[DrainedPod] = []
    conditions: list[str] = []  # Types of all conditions of the DrainNode that are true now


@CATALOGUE.register(kind="drain")
class DrainConfirmed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The `confirmState` of a DrainNode became Confirmed, so pods of the node may be evicted from now on.

    A user confirms a drain, or the drain of the node's group does.
    """


@CATALOGUE.register(kind="drain")
class DrainCompleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A drain ended: no pod of the node remains to be migrated."""

    # The pods that changed with this event, with their new progress. Pods that are not listed are unchanged.
    pods: list[DrainedPod] = []
    conditions: list[str] = []  # Types of all conditions of the DrainNode that are true now


@CATALOGUE.register(kind="drain")
class DrainAborted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A drain ended without success.

    Its migration jobs and Reservations were deleted, and its node was opened again.
    """

    object_uid: str = ""  # Uid of the DrainNode
    node: str = ""  # Node of the drain
    reason: str  # Why the drain ended, one sentence


@CATALOGUE.register(kind="drain")
class DrainForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The object DrainNode of an ended drain was deleted, so the state of the drain is dropped."""


@CATALOGUE.register(kind="draingroup")
class DrainGroupStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The drain of a group of nodes began: the nodes got the label `drain.descheduler.koordinator.sh/node-group`.

    From now on, the nodes are planned one after the other.
    """

    object_uid: str  # Uid of the DrainNodeGroup
    nodes: list[str]  # Names of the nodes that match the selector of the group


@CATALOGUE.register(kind="draingroup")
class DrainGroupNodePlanned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The drain of a group chose the next node to plan, and created a DrainNode for it."""

    node: str  # Name of the node


@CATALOGUE.register(kind="draingroup")
class DrainGroupNodeJudged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The drain of a group found out whether one of its nodes can be drained: whether all its pods fit on other nodes.

    An available node becomes unavailable if its drain ends before the group confirms it.
    """

    node: str  # Name of the planned node
    available: bool  # Whether all its pods have a place elsewhere. If not, the DrainNode of the node is rejected.
    reason: str = ""  # Why a pod has no place, or why there is no DrainNode; "" if `available`


@CATALOGUE.register(kind="draingroup")
class DrainGroupChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The phase of a DrainNodeGroup changed, or drains of its nodes were confirmed or ended."""

    object_uid: str  # Uid of the DrainNodeGroup
    phase: str  # Pending, Planning, Waiting, Running, Succeeded, Failed or Aborted
    message: str = ""  # Why the group is in this phase, for example why no further node is planned; "" for no reason
    confirmed: list[str] = []  # Nodes of the group whose drains are confirmed
    running: int = 0  # Number of confirmed drains that have not ended
    succeeded: int = 0  # Number of drains that ended without a failed pod
    failed: int = 0  # Number of drains that ended with a failed pod, or that were aborted
    results: dict[str, str] = {}  # Confirmed node whose drain ended -> why the drain failed; "" if it succeeded


@CATALOGUE.register(kind="draingroup")
class DrainGroupForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The object DrainNodeGroup of an ended group was deleted, so the state of the group is dropped."""
