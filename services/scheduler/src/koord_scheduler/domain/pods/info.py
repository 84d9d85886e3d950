"""A pod as it counts on a node."""

import msgspec
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.columns.node_columns import Demand
from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.pods.kinds import PodKind


class PodInfo(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pod on a node.

    class, kind, pod   None when the pod is known from the log's ledger only
    priority              of the pod, 0 when it is not known
    since                 unix seconds from which it counts as assigned there
    """

    uid: str
    demand: Demand
    pod_class: PodClass | None = None
    kind: PodKind | None = None
    pod: Pod | None = None
    priority: int = 0
    since: float = 0.0
