"""Extension points outside the scheduling cycle: state that a plugin keeps, and events that may help pods it refused.

A row is the position of a node in the node columns.

Source: scheduler-core spec, 2 (events and hints) and 3.
"""

from enum import Enum
from typing import NamedTuple, Protocol

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.objects import Node

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.framework.plugin import Plugin


class NodeFollower(Plugin, Protocol):
    """A plugin with its own arrays of one element per node, at the same positions (rows) as in `NodeColumns`."""

    def put_node(self, row: int, node: Node) -> None:
        """Record a new or changed node."""
        ...

    def drop_node(self, row: int) -> None:
        """Forget the node at this position, because it was deleted. A later node may reuse the position."""
        ...


class SettlingPlugin(Plugin, Protocol):
    """A plugin that collects changes, and computes their effect on all nodes at once before nodes are filtered."""

    def settle(self) -> None:
        """Compute the effects of all changes since the last call. The plugin records in a journal of `NodeColumns` each
        row whose filter or score results have changed.
        """
        ...


class PodFollower(Plugin, Protocol):
    """A plugin that keeps sums over the pods of each node, such as host ports or load. Preemption also calls it to
    remove pods on trial and to add them again.
    """

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether a filter of the plugin may refuse pods of this class because of its sums over pods. If False,
        the plugin is not called in preemption trials for pods of the class.
        """
        ...

    def took(self, row: int, pod_info: PodInfo) -> None: ...

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """The exact inverse of `took`."""
        ...


class FoldingPlugin(Plugin, Protocol):
    """A plugin with its own state that is computed from events of the log and is part of the scheduler's snapshots.

    Attributes:
        kinds: Kinds of aggregates whose events the plugin folds (`podspec`, `nodespec`, `config`, `customspec`, ...).
    """

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds of aggregates whose events the plugin folds."""
        ...

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Update the plugin's state with one event. Events arrive once, in the order of the log. The method must not
        raise for a valid event. `stored`: the same event with its envelope and its position in the log. Returns whether
        the event may make waiting pods schedulable, on any node.
        """
        ...

    def facts(self) -> bytes:
        """Return the plugin's state as bytes, in a form that `restore` reads, for a snapshot."""
        ...

    def restore(self, facts: bytes) -> None:
        """Replace the plugin's state by bytes that `facts` returned earlier. Called once, before the first event."""
        ...


class ObservingPlugin(Plugin, Protocol):
    """A plugin that reads the usage reports which the nodes' agents publish."""

    def observe(self, node: str, report: NodeUsageReported) -> bool:
        """Record the usage report of a node. Return whether it may make waiting pods schedulable on this node."""
        ...


class ClockPlugin(Plugin, Protocol):
    """A plugin whose state changes as time passes, for example because a report becomes too old."""

    def advance(self, now: float) -> None:
        """Discard state that is too old at `now`, in Unix seconds. The scheduler calls it before each cycle."""
        ...


class EventKind(Enum):
    """The changed part of the state if an event may make a pod schedulable: nodes, or the plugin's own state."""

    NODE = "a node has come, has changed or has more room"
    OWN = "what the plugin keeps itself has changed: `hint_version` has grown, or `apply` has said so"


class ClusterEvent(NamedTuple):
    """An event that may make a waiting pod schedulable, as queueing hints receive it."""

    kind: EventKind  # Whether nodes have changed or the plugin's own state
    rows: Rows  # Positions of the changed nodes in the node columns, ascending, shape (K,); empty for `EventKind.OWN`


class QueueingHintsPlugin(Plugin, Protocol):
    """A plugin that decides which events return its waiting pods to the active queue. Its waiting pods are the pods
    that it rejected, and pods for which it had changed nodes in their cycle. If a plugin does not have this extension
    point, every event on a node wakes the first pod of each group of its waiting pods.
    """

    @property
    def wakes_on(self) -> frozenset[EventKind]:
        """Return the kinds of events for which `queueing_hint` is called."""
        ...

    def hint_version(self) -> int:
        """Return a number that grows when a change of the plugin's own state may make rejected pods schedulable. The
        scheduler treats the growth as an event of the kind `EventKind.OWN`.
        """
        ...

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        """Return True if the waiting pod shall be attempted because of the event (Queue in kube-scheduler). False
        leaves the pod waiting (Skip in kube-scheduler).
        """
        ...


class WakesItself:
    """Base class for plugins whose rejected pods are never woken by an event. The plugin itself names the pods to
    attempt, for example in `post_bind`, or its rejections are final.
    """

    wakes_on: frozenset[EventKind] = frozenset()

    def hint_version(self) -> int:
        """Return 0 always, so no change of the plugin's state counts as an event."""
        return 0

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        """Return False always: the pod keeps waiting."""
        return False
