"""Desired state of nodes for their agents, and pushes of changes. Adapters are in `koordcore.bus`.

Source: event-bus spec, 2 (KV koord_desired), 3.3.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import msgspec

from koordcore.events.envelope import StoredEvent
from koordcore.events.node_ledger import PodDetails, PodOnNode


class DesiredNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Desired state of one node: its pods and settings.
    The manager writes it; the node's agent reads and applies it.
    """

    node: str
    pods: list[PodOnNode] = []  # Pods in the node's ledger as of position `as_of["node"]`
    # Uid -> labels and annotations, for pods whose object has changed since the ledger entry.
    details: dict[str, PodDetails] = {}
    others: list[PodOnNode] = []  # Pods that another scheduler bound to the node. No ledger contains them.
    # Whether an API server binds the pods, so that a placed pod may wait for its volume claims.
    binds_pods: bool = False
    unbound: list[str] = []  # Uids of pods in `pods` that wait for their volume claims
    slo: dict[str, Any] | None = None  # Effective NodeSLO spec as JSON; None if not rendered yet
    capacity: dict[str, int] = {}  # Capacity of the node: cpu in milli-cores, others in whole units
    allocatable: dict[str, int] = {}  # Allocatable of the node: cpu in milli-cores, others in whole units
    annotations: dict[str, str] = {}  # Annotations of the node that the agent reads (reservation, system QoS)
    labels: dict[str, str] = {}  # Labels of the node that the agent reads
    # `metricCollectPolicy` of its NodeMetric as JSON; absent fields have the agent's defaults.
    metric_policy: dict[str, Any] = {}
    # Aggregate kind -> sequence of its last folded event, e.g. {"node": 812, "nodepolicy": 640}.
    as_of: dict[str, int] = {}


class Push(msgspec.Struct, frozen=True):
    """A fact about a node that the NATS server republished to the node's agent."""

    event: StoredEvent
    # Sequence of the previous event on its subject; 0 for the first. If the agent's last event has another sequence,
    # the agent missed an event.
    last_seq: int


class DesiredStore(Protocol):
    """Key-value store with the desired state of each node. The manager writes it, agents read it."""

    async def put(self, desired: DesiredNode, check: Callable[[], None] | None = None) -> None:
        """Replace the desired state of a node. `check`: called before each attempt to write; if it raises, the write
        ends with its exception. None: no check.
        """
        ...

    async def get(self, node: str) -> DesiredNode | None:
        """Return the desired state of a node; None if there is none. The result may be older than the pushes. Compare
        its `as_of` with the sequences of the pushes.
        """
        ...

    async def delete(self, node: str, check: Callable[[], None] | None = None) -> None:
        """Delete the desired state of a node after the node was deleted. No-op if there is none. `check`: as for
        `put`.
        """
        ...


class PushFeed(Protocol):
    """Subscription to the facts of some nodes, which the server republishes. It needs no consumer on the server."""

    def pushes(self, nodes: Sequence[str], kinds: Sequence[str] = ("node", "nodepolicy")) -> AsyncIterator[Push | None]:
        """Iterate over new facts of these nodes. The item None means: read the desired state again, then continue. The
        first item is None, after the subscriptions exist. So no push is lost between the reading and the next item.
        None also comes after each reconnect and after each overflow of the queue. `kinds`: Aggregate kinds whose facts
        are delivered.
        """
        ...
