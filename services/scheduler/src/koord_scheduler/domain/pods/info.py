"""A pod as it counts on a node."""

from collections.abc import Mapping

import msgspec
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import NOTHING, Allocation

from koord_scheduler.domain.columns.node_columns import Demand
from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.pods.kinds import PodKind


class PodInfo(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pod on a node.

    class, kind, pod   None when the pod is known from the log's ledger only

    Attributes:
        priority: Of the pod, 0 when it is not known.
        since: Unix seconds from which it counts as assigned there.
        allocation: What it was given there beyond its demand.
    """

    uid: str
    demand: Demand
    pod_class: PodClass | None = None
    kind: PodKind | None = None
    pod: Pod | None = None
    priority: int = 0
    since: float = 0.0
    allocation: Allocation = NOTHING

    @property
    def requests(self) -> Mapping[str, int]:
        """What it takes, as it was given."""
        return self.demand.requests
