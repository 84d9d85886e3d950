"""Desired state of nodes for their agents, and pushes of changes. Adapters are in `koordcore.bus`.

Source:
    event-bus spec, 2 (KV koord_desired), 3.3
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from koordcore.events.envelope import StoredEvent
from koordcore.events.scheduling.node_ledger import PodDetails, PodOnNode


class DesiredNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Desired state of one node, which the manager writes and the agent applies.

    Attributes:
        pods: Pods of the node's ledger as of position `as_of["node"]`.
        details: Uid -> labels and annotations, for pods whose object has changed since the ledger entry.
        others: Pods that another scheduler bound to the node; no ledger contains them.
        annotations: Annotations of the node that the agent reads (reservation, system QoS).
        slo: Effective NodeSLO spec as JSON; None if not rendered yet.
        capacity: Capacity of the node: cpu in milli-cores, others in whole units.
        allocatable: Allocatable of the node: cpu in milli-cores, others in whole units.
        metric_policy: `metricCollectPolicy` of its NodeMetric as JSON; absent fields have the agent's defaults.
        as_of: Last folded sequence per aggregate, e.g. {"node": 812, "nodepolicy": 640, "nodespec": 12}.
    """

    node: str
    pods: list[PodOnNode] = []
    details: dict[str, PodDetails] = {}
    others: list[PodOnNode] = []
    slo: dict[str, Any] | None = None
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    metric_policy: dict[str, Any] = {}
    as_of: dict[str, int] = {}


class Push(msgspec.Struct, frozen=True):
    """A fact that is pushed to an agent.

    Attributes:
        last_seq: Sequence of the previous event on the same subject (0 for the first). If the agent has another one, it
            missed an event.
    """

    event: StoredEvent
    last_seq: int


class DesiredStore(Protocol):
    """The KV bucket with desired states. The manager writes it, agents read it."""

    async def put(self, desired: DesiredNode) -> None:
        """Replace the desired state of a node."""
        ...

    async def get(self, node: str) -> DesiredNode | None:
        """Return the desired state of a node; None if there is none.

        It may be old: compare `as_of` with the pushes.
        """
        ...

    async def delete(self, node: str) -> None:
        """Delete the desired state of a deleted node."""
        ...


class PushFeed(Protocol):
    """Facts about some nodes, as the log republishes them. It needs no consumers on the server."""

    def pushes(self, nodes: Sequence[str], kinds: Sequence[str] = ("node", "nodepolicy")) -> AsyncIterator[Push | None]:
        """Iterate over the pushes for these nodes. None means: read the desired state again, then continue.

        The first item is None. It comes after the subscriptions exist, so no push is missed between the desired state
        read then and the next item. None also follows each reconnect and each overflow.
        """
        ...
