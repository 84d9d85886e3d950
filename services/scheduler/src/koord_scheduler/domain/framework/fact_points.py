"""Extension points outside the scheduling cycle: state that a plugin keeps, and events that may help pods it refused.

Source: scheduler-core spec, 2 (events and hints) and 3.
"""

from enum import Enum
from typing import NamedTuple, Protocol

from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.envelope import Event, StoredEvent
from koordcore.protocol.objects import Node

from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.pods.info import PodInfo
from koord_scheduler.domain.pods.record import PodRecord


class NodeFollower(Plugin, Protocol):
    """A plugin that keeps its own arrays over nodes, indexed by row."""

    def put_node(self, row: int, node: Node) -> None:
        """Record a node that is new or has changed."""
        ...

    def drop_node(self, row: int) -> None:
        """Record that the row no longer stands for a node."""
        ...


class SettlingPlugin(Plugin, Protocol):
    """A plugin that computes the effect of many changes at once, before nodes are filtered again."""

    def settle(self) -> None:
        """Bring answers up to date, and record the rows whose answers have changed in the journal."""
        ...


class PodFollower(Plugin, Protocol):
    """A plugin that keeps sums over the pods of each node, such as host ports or load.

    Trials of preemption count as well.
    """

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether a filter uses these sums for pods of this class."""
        ...

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Add the pod to the sums of the node."""
        ...

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """Subtract the pod from the sums of the node: the inverse of `took`."""
        ...


class FoldingPlugin(Plugin, Protocol):
    """A plugin with its own state, which is a fold of the log and part of the scheduler's snapshots.

    Attributes:
        kinds: Kinds of aggregates whose events the plugin folds (`podspec`, `nodespec`, `config`, `customspec`, ...).
    """

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds of aggregates whose events the plugin folds."""
        ...

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Fold one event of the log. Events arrive once and in order; the method must not fail on a valid event.

        Returns:
            Whether the event may help waiting pods, on any node.
        """
        ...

    def facts(self) -> bytes:
        """Return the state as bytes, for a snapshot."""
        ...

    def restore(self, facts: bytes) -> None:
        """Set the state from the bytes of `facts`. Called once, before any event."""
        ...


class ObservingPlugin(Plugin, Protocol):
    """A plugin that reads the usage reports of nodes."""

    def observe(self, node: str, report: NodeUsageReported) -> bool:
        """Record a node's report. Return whether it may help waiting pods on this node."""
        ...


class ClockPlugin(Plugin, Protocol):
    """A plugin whose state expires."""

    def advance(self, now: float) -> None:
        """Expire state that is too old at `now`, in unix seconds of the run's clock."""
        ...


class EventKind(Enum):
    """A kind of event that may help a waiting pod."""

    NODE = "a node has come, has changed or has more room"
    OWN = "what the plugin keeps itself has changed: `hint_version` has grown, or `apply` has said so"


class ClusterEvent(NamedTuple):
    """An event that may help a waiting pod.

    Attributes:
        kind: The kind of the event.
        rows: Rows of the affected nodes, ascending, shape (K,); empty for `EventKind.OWN`.
    """

    kind: EventKind
    rows: Rows


class QueueingHintsPlugin(Plugin, Protocol):
    """A plugin that decides which events wake pods that it refused, or to which it shows other nodes than there are.

    If a plugin does not have this extension point, every event on a node wakes the first of each group of such pods.
    """

    @property
    def wakes_on(self) -> frozenset[EventKind]:
        """Return the kinds of events for which `queueing_hint` is called."""
        ...

    def hint_version(self) -> int:
        """Return a number that grows when the plugin's own state has changed in favour of pods that it refused."""
        ...

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        """Return whether the event makes an attempt of the pod worthwhile (Queue or Skip in kube-scheduler)."""
        ...


class WakesItself:
    """Queueing hints of a plugin that activates refused pods itself, or never. No event wakes them."""

    wakes_on: frozenset[EventKind] = frozenset()

    def hint_version(self) -> int:
        """See `QueueingHintsPlugin.hint_version`."""
        return 0

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        """See `QueueingHintsPlugin.queueing_hint`: never."""
        return False
