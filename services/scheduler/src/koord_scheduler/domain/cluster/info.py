"""A pod as it counts on a node."""

from collections.abc import Mapping

import msgspec
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import NOTHING, Allocation

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.kinds import PodKind
from koord_scheduler.domain.columns.node_columns import Demand


class PodInfo(msgspec.Struct, frozen=True, eq=False, gc=False):
    uid: str
    demand: Demand  # The amounts that the pod takes on the node
    pod_class: PodClass | None = None  # Its equivalence class; None if only the log's ledger knows the pod
    # Properties that affinity and spread constraints read; None if only the log's ledger knows the pod.
    kind: PodKind | None = None
    pod: Pod | None = None  # Its object; None if only the log's ledger knows the pod
    priority: int = 0  # Its priority; 0 if it is unknown
    since: float = 0.0  # Unix seconds from which the pod counts on the node
    allocation: Allocation = NOTHING  # CPUs, zones, devices and Reservation that the pod got on the node
    # Whether another scheduler bound the pod. Then the allocation was read from its annotations.
    is_bound_by_others: bool = False
    # Whether the pod counts on the node on trial only. Plugins then compute what they would allocate to it.
    is_guest: bool = False

    @property
    def requests(self) -> Mapping[str, int]:
        """From which its demand was made: milli-cores, bytes, whole units."""
        return self.demand.requests
