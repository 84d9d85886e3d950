"""Extension points outside the cycle: what a plugin follows, and when pods that it refused may have better luck.

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
    """Keeps columns of its own over nodes, aligned with the rows."""

    def put_node(self, row: int, node: Node) -> None:
        """Take note of a node that is new or has changed."""
        ...

    def drop_node(self, row: int) -> None:
        """Take note that the row is no longer a node."""
        ...


class SettlingPlugin(Plugin, Protocol):
    """Works out what follows from many changes at once, before nodes are judged again."""

    def settle(self) -> None:
        """Bring answers up to date, and record the rows whose answers have changed."""
        ...


class PodFollower(Plugin, Protocol):
    """Sums over the pods of each node (host ports, load estimates); told of trials of preemption, too."""

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether a filter of pods of this class looks at the sums."""
        ...

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Count the pod on the node."""
        ...

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """Undo `took`."""
        ...


class FoldingPlugin(Plugin, Protocol):
    """Keeps a state of its own, folded from the log and kept in the scheduler's snapshots.

    Attributes:
        kinds: Kinds of aggregates whose events it takes (`podspec`, `nodespec`, `config`, `customspec`, ...).
    """

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of aggregates that it follows."""
        ...

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Take one event of the log: each once, in order; a valid event must not fail.

        Returns:
            Whether waiting pods may have better luck now, on any node.
        """
        ...

    def facts(self) -> bytes:
        """Return the state, for a snapshot."""
        ...

    def restore(self, facts: bytes) -> None:
        """Begin with this state; called once, before any event."""
        ...


class ObservingPlugin(Plugin, Protocol):
    """Follows the reports of the nodes."""

    def observe(self, node: str, report: NodeUsageReported) -> bool:
        """Take a node's report; return whether waiting pods may have better luck there."""
        ...


class ClockPlugin(Plugin, Protocol):
    """Keeps what expires."""

    def advance(self, now: float) -> None:
        """Let expire what is too old at `now`, in unix seconds of the run's clock."""
        ...


class EventKind(Enum):
    """What may help a waiting pod."""

    NODE = "a node has come, has changed or has more room"
    OWN = "what the plugin keeps itself has changed: `hint_version` has grown, or `apply` has said so"


class ClusterEvent(NamedTuple):
    """Something that may help a waiting pod.

    Attributes:
        kind: What has happened.
        rows: The nodes, ascending, shape (K,); empty for `EventKind.OWN`.
    """

    kind: EventKind
    rows: Rows


class QueueingHintsPlugin(Plugin, Protocol):
    """Says which events are worth an attempt of a pod that it refused, or to which it shows other nodes than there are.

    If a plugin does not declare this extension point, every event on a node wakes the first of each group of such pods.
    """

    @property
    def wakes_on(self) -> frozenset[EventKind]:
        """The events for which `queueing_hint` is asked."""
        ...

    def hint_version(self) -> int:
        """Return a number that grows when what the plugin keeps has changed in favour of pods that it refused."""
        ...

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        """Return whether the event makes an attempt of the pod worth while (Queue or Skip in kube-scheduler)."""
        ...


class WakesItself:
    """Queueing hints of a plugin that activates the pods that it refused itself, or whose refusals are for good."""

    wakes_on: frozenset[EventKind] = frozenset()

    def hint_version(self) -> int:
        """See `QueueingHintsPlugin.hint_version`."""
        return 0

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        """See `QueueingHintsPlugin.queueing_hint`: never."""
        return False
