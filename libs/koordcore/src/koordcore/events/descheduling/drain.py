"""How the drain of a node, or of a group of nodes, goes on. Writer: the leading descheduler.

Aggregates: `drain.<name of the DrainNode>`, `draingroup.<name of the DrainNodeGroup>`.

    DrainWaiting ─► DrainStarted ─► DrainPodsChanged ... ─► DrainConfirmed ─► DrainPodsChanged ... ─► DrainCompleted
                                                  └────────────────────────────────────────────────► DrainAborted

Places for pods are Reservations, and pods leave by migration jobs. Both are objects with facts of their own.

Source:
    descheduler spec, 11, 14
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class DrainedPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod of a node that is drained.

    Attributes:
        uid: Uid of the pod.
        namespace: Its namespace.
        name: Its name.
        phase: Waiting, Unmigratable, Ready, Available, Unavailable, Migrating, Succeed or Failed.
        since: RFC 3339 time at which the drain saw the pod for the first time.
        phase_since: RFC 3339 time at which the phase began.
        after_confirmed: Whether it arrived after the drain was confirmed.
        target: Node of its Reservation; "" if there is none yet.
        message: Why it is in this phase, such as the reason for which it must not be migrated; "" if there is none.
    """

    uid: str
    namespace: str
    name: str
    phase: str
    since: str
    phase_since: str
    after_confirmed: bool = False
    target: str = ""
    message: str = ""


@CATALOGUE.register(kind="drain")
class DrainWaiting(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A drain waits because of another drain of its node.

    Attributes:
        object_uid: Uid of the DrainNode.
        node: Node that it is to empty.
        message: Why it waits.
    """

    object_uid: str
    node: str
    message: str


@CATALOGUE.register(kind="drain")
class DrainStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The node of a drain was closed for new pods.

    Attributes:
        object_uid: Uid of the DrainNode.
        node: Node that is emptied.
        mode: How it was closed: "Taint" or "Label".
        labels: Labels that the mode Label has set on it.
        pods: The pods to migrate.
        conditions: Types of the conditions that are true.
    """

    object_uid: str
    node: str
    mode: str = "Taint"
    labels: dict[str, str] = {}
    pods: list[DrainedPod] = []
    conditions: list[str] = []


@CATALOGUE.register(kind="drain")
class DrainPodsChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Pods of a drain went on, a pod arrived, or a condition changed.

    Attributes:
        pods: The pods that changed. The others stay as they are.
        conditions: Types of the conditions that are true.
    """

    pods: list[DrainedPod] = []
    conditions: list[str] = []


@CATALOGUE.register(kind="drain")
class DrainConfirmed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A user agreed to the plan of a drain, so its pods may be evicted."""


@CATALOGUE.register(kind="drain")
class DrainCompleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A drain has nothing more to wait for.

    Attributes:
        pods: The pods that changed with it. The others stay as they are.
        conditions: Types of the conditions that are true.
    """

    pods: list[DrainedPod] = []
    conditions: list[str] = []


@CATALOGUE.register(kind="drain")
class DrainAborted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A drain ended without success. Its jobs and Reservations were deleted, and its node was opened again.

    Attributes:
        object_uid: Uid of the DrainNode.
        node: Node of the drain.
        reason: Why it ended.
    """

    object_uid: str = ""
    node: str = ""
    reason: str


@CATALOGUE.register(kind="drain")
class DrainForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The DrainNode of an ended drain was deleted."""


@CATALOGUE.register(kind="draingroup")
class DrainGroupStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes of a group got its label, and their planning begins.

    Attributes:
        object_uid: Uid of the DrainNodeGroup.
        nodes: The nodes that match its selector.
    """

    object_uid: str
    nodes: list[str]


@CATALOGUE.register(kind="draingroup")
class DrainGroupNodePlanned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The next node of a group was chosen. Its DrainNode exists.

    Attributes:
        node: The node.
    """

    node: str


@CATALOGUE.register(kind="draingroup")
class DrainGroupNodeJudged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """It is known whether all pods of a planned node have a place elsewhere.

    Attributes:
        node: The node.
        available: Whether they have.
        reason: Why not; "" if they have.
    """

    node: str
    available: bool
    reason: str = ""


@CATALOGUE.register(kind="draingroup")
class DrainGroupChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The phase of a group changed, or drains of it were confirmed or ended.

    Attributes:
        object_uid: Uid of the DrainNodeGroup.
        phase: Pending, Planning, Waiting, Running, Succeeded, Failed or Aborted.
        message: Why, for example the reason for which no further node is planned.
        confirmed: Nodes whose drains are confirmed.
        running: Number of confirmed drains that run.
        succeeded: Number of drains that ended without a failed pod.
        failed: Number of drains that ended with a failed pod.
    """

    object_uid: str
    phase: str
    message: str = ""
    confirmed: list[str] = []
    running: int = 0
    succeeded: int = 0
    failed: int = 0


@CATALOGUE.register(kind="draingroup")
class DrainGroupForgotten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The DrainNodeGroup of an ended group was deleted."""
