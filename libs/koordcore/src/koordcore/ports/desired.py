"""Desired state of nodes for their agents, and the pushes that keep it fresh. Adapters in `koordcore.bus`.

Source:
    event-bus spec, 2 (KV koord_desired), 3.3
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from koordcore.events.envelope import StoredEvent
from koordcore.events.scheduling.node_ledger import PodDetails, PodOnNode


class DesiredNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the manager wants on one node.

    annotations node annotations that the agent reads (reservation, system QoS)

    Attributes:
        pods: Pods of its ledger, as of position `as_of["node"]`: the fold of the ledger's events.
        details: Uid -> labels and annotations, of pods whose object says otherwise now than the ledger did.
        others: Pods that somebody else bound to it, which are in no ledger.
        slo: Effective NodeSLO spec (wire spelling), None: not rendered yet.
        capacity: Cpu in milli-cores, others in whole units.
        allocatable: Cpu in milli-cores, others in whole units.
        metric_policy: `metricCollectPolicy` of its NodeMetric (wire spelling); absent fields have the agent's defaults.
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
    """A fact pushed to an agent.

    Attributes:
        last_seq: Sequence of the event before it on the same subject (0: the first); must equal what the agent has.
    """

    event: StoredEvent
    last_seq: int


class DesiredStore(Protocol):
    """The KV bucket of desired states: written by the manager, read by agents."""

    async def put(self, desired: DesiredNode) -> None:
        """Replace the node's value."""
        ...

    async def get(self, node: str) -> DesiredNode | None:
        """Return the node's value or None. It may be stale: compare `as_of` with the pushes."""
        ...

    async def delete(self, node: str) -> None:
        """Delete the value of a deleted node."""
        ...


class PushFeed(Protocol):
    """Facts about some nodes as the log republishes them, without consumers on the server."""

    def pushes(self, nodes: Sequence[str], kinds: Sequence[str] = ("node", "nodepolicy")) -> AsyncIterator[Push | None]:
        """Push for the nodes as they arrive. None: read the desired state (again), then go on.

        The first item is None, given once the subscriptions stand, so that a value read then has no gap to the pushes;
        another None follows each reconnect and each overflow.
        """
        ...
