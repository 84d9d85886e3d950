"""Coscheduling's PostFilter: a job that finds no room may take it from pods of lower priority, for all members at once.

source    scheduler-core spec, 8.10
"""

from collections.abc import Sequence

from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.gang.cache import GangCache
from koord_scheduler.domain.pods.record import PodRecord


class JobPreempting:
    """What `domain.job_preemption` asks of gangs; enabled by `enablePreemption`."""

    name = "Coscheduling"

    def __init__(self, gangs: GangCache) -> None:
        self.gangs = gangs

    def answers(self, rejection: Rejection | None) -> bool:
        """Whether it can help a pod rejected so: no node was feasible, or the plan of its job found too few."""
        return rejection is None or (rejection.plugin == self.name and rejection.resolvable)

    def members(self, pod: PodRecord) -> Sequence[str]:
        """Uids of all pending members of the pod's group in their order, or the pod alone."""
        return [member.uid for member in self.gangs.members_to_place(pod.uid)] or [pod.uid]

    def said(self, pod: PodRecord) -> str:
        """What the one job preemption of the round came to; "" there was none."""
        current = self.gangs.round_of(pod.uid)
        return "" if current is None else current.preemption_message

    def remember(self, pod: PodRecord, message: str) -> None:
        """Once a round."""
        current = self.gangs.round_of(pod.uid)
        if current is not None:
            current.preempt_once(lambda: message)

    def is_job(self, pod: PodRecord) -> bool:
        """Whether it is about a whole group: what cannot help that helps none of its pods."""
        return self.gangs.round_of(pod.uid) is not None

    def waiting(self, pod: PodRecord) -> Sequence[str]:
        """Uids of the members of the pod's group that wait with a node."""
        return self.gangs.waiting_with(pod.uid)

    def reject_waiting(self, pod: PodRecord) -> Sequence[str]:
        """They lose their nodes: the gang counts them as pending from now on."""
        return self.gangs.reject_waiting(pod.uid)
