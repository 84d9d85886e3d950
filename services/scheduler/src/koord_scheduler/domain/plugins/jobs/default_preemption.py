"""Preemption of any pod of lower priority.

Source:
    scheduler-core spec, 6
"""

from koord_scheduler.domain.config.args.kubernetes import DefaultPreemptionArgs
from koord_scheduler.domain.framework.extension_points import POST_FILTER
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.post_filter import NoPreemption, Preemption, PreemptionSearch, Room
from koord_scheduler.domain.pods.record import PodRecord


class DefaultPreemption:
    """The last resort for a pod that no node suits. It knows no label that would spare a pod (pitfall in the spec)."""

    name = "DefaultPreemption"
    extension_points = (POST_FILTER,)

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self.args = args or DefaultPreemptionArgs()

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        """See `PostFilterPlugin.post_filter`; it can free nodes only."""
        return search.on_one_node(self) if rejection is None else None

    def spares_everyone(self, pod: PodRecord) -> bool:
        """See `VictimRules.spares_everyone`."""
        return False

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """See `VictimRules.may_preempt`: whoever has a lower priority."""
        return True

    def room_for(self, pod: PodRecord) -> Room | None:
        """See `VictimRules.room_for`: nothing else."""
        return None

    def most_candidates(self, nodes: int) -> int:
        """See `VictimRules.most_candidates`: a tenth, at least 100, unless configured otherwise."""
        args = self.args
        wanted = max(nodes * args.min_candidate_nodes_percentage // 100, args.min_candidate_nodes_absolute)
        return min(wanted, nodes)
