"""DefaultPreemption: evicts pods of lower priority.

Source: scheduler-core spec, 6
"""

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.config.kubernetes_args import DefaultPreemptionArgs
from koord_scheduler.domain.framework.extension_points import POST_FILTER
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.post_filter import NoPreemption, Preemption, PreemptionSearch, Room


class DefaultPreemption:
    """The plugin DefaultPreemption: evicts pods of lower priority for a pod that finds no node. No label protects a
    pod.
    """

    name = "DefaultPreemption"
    extension_points = (POST_FILTER,)

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self.args = args or DefaultPreemptionArgs()

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        """Search one node on which evicting pods of lower priority makes room. None if a plugin rejected the pod,
        because then free nodes do not help.
        """
        return search.on_one_node(self) if rejection is None else None

    def spares_everyone(self, pod: PodRecord) -> bool:
        return False

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        return True

    def room_for(self, pod: PodRecord) -> Room | None:
        return None

    def most_candidates(self, nodes: int) -> int:
        """Return the configured share of the nodes, at least the configured number: by default a tenth and 100."""
        args = self.args
        wanted = max(nodes * args.min_candidate_nodes_percentage // 100, args.min_candidate_nodes_absolute)
        return min(wanted, nodes)
