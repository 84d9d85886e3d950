"""Coscheduling as a plugin. The rules of gangs are beside it.

Source: scheduler-core spec, 8
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from koordcore.protocol.objects import WAITING_FOR_GANG, Pod
from koordcore.values.allocation import NOTHING, Allocation

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.fact_points import WakesItself
from koord_scheduler.domain.framework.lifecycle_hooks import Eviction, PageAnswer, Status
from koord_scheduler.domain.framework.outcomes import Allow, Failure, Next, Rejection, Wait
from koord_scheduler.domain.framework.plugin import ExtensionPoint
from koord_scheduler.domain.framework.post_filter import NoPreemption, Preemption, PreemptionSearch
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.controller import gang_phases
from koord_scheduler.domain.plugins.gang.outcomes import Reason, Refused, Released
from koord_scheduler.domain.plugins.gang.parameters import gang_id_of
from koord_scheduler.domain.plugins.gang.summary import gang_pages

_NANOS: Final = 1_000_000_000
_NOBODY: Final = Next()
_ALONE: Final = Allow()
"""The answer for pods without a gang, which are most pods; it is not created again for each."""


class Coscheduling(WakesItself):
    """The plugin Coscheduling: places the members of a gang together or not at all."""

    name = "Coscheduling"
    extension_points: tuple[ExtensionPoint[Any], ...] = (
        points.CONCERNS,
        points.PRE_ENQUEUE,
        points.NEXT_POD,
        points.PRE_FILTER,
        points.AFTER_POST_FILTER,
        points.RESERVE,
        points.PERMIT,
        points.POST_BIND,
        points.QUEUEING_HINTS,
        points.CONTROLLER,
        points.PAGES,
    )

    def __init__(self, gangs: GangCache, *, preempts: bool = False) -> None:
        self.gangs = gangs
        if preempts:
            self.extension_points = (*self.extension_points, points.POST_FILTER)

    def concerns(self, pod: Pod) -> bool:
        return bool(gang_id_of(pod))

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Return why the pod must stay out of the queue, as a sentence; None if it may enter, or belongs to no gang. It
        stays out while a gang of its group is unknown or too small, and while another pod of the group is in the queue.
        While the members of the group are being attempted, it stays out, too: the plugin itself names the next.
        """
        if pod.uid not in self.gangs.roster.members:
            return None
        refused = self.gangs.pre_enqueue(pod.uid)
        return None if refused is None else refused.message

    def next_pod(self) -> Next:
        """Return the next member of the gang group that is being scheduled. If there is none, the queue decides."""
        if self.gangs.round is None:
            return _NOBODY
        return replace(self.gangs.next_pod(), plugin=self.name)

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        """Reject a member whose gang cannot be scheduled now. None for pods without a gang."""
        if pod.uid not in self.gangs.roster.members:
            return None
        return self.rejected(pod, self.gangs.before_pre_filter(pod.uid, now=now))

    def rejected(self, pod: PodRecord, refused: Refused | None) -> Rejection | None:
        """Return the refusal of a member as a rejection; None if it is not refused. Members of a gang wait together."""
        if refused is None:
            return None
        gang_id, current = self.gangs.roster.members[pod.uid].gang_id, self.gangs.round_of(pod.uid)
        is_failed = refused.reason is Reason.GROUP_FAILED
        return Rejection(
            plugin=self.name,
            message=refused.message,
            key=gang_id,
            is_replayable=False,
            condition=WAITING_FOR_GANG if current is None or not is_failed else current.failed_condition,
        )

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Return an empty allocation. The gang counts the pod later, at Permit."""
        return NOTHING

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Count the pod, which lost its node, as pending again. Return the uids of members that lose their nodes, too.
        If its gang is Strict, these are all members of its group that wait at Permit; otherwise there are none.
        """
        return self.gangs.unreserve(pod.uid).rejected if pod.uid in self.gangs.roster.members else ()

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Count the pod as bound. Return the uids of members of its group that may be attempted because of it."""
        return self.gangs.post_bind(pod.uid).activate if pod.uid in self.gangs.roster.members else ()

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """Let the pod wait until enough members of its gang group have nodes, and then allow all of them. A pod without
        a gang is allowed at once. Only a pod whose gang is not known is rejected. With too few members, or after a
        member has failed, the pod waits; `pre_filter` rejects further attempts of such a group.
        """
        if pod.uid not in self.gangs.roster.members:
            return _ALONE
        match self.gangs.permit(pod.uid):
            case Refused(message=message):
                return Rejection(plugin=self.name, message=message, resolvable=True, condition=WAITING_FOR_GANG)
            case Released(consequences=released):
                gang = self.gangs.roster.gang_of(pod.uid)
                return Allow(waiting=released.allowed, activate=released.activate, gang="" if gang is None else gang.id)
            case waits:
                return Wait(seconds=waits.nanos / _NANOS)

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        return replace(self.gangs.after_post_filter(pod.uid, message), plugin=self.name)

    # --- preemption for a whole job (`JobRules`) ---------------------------------------------------------------------

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        """Search victims for all pending members together. It can help if no node was feasible, or if the job's plan
        found too few nodes.
        """
        can_help = rejection is None or (rejection.plugin == self.name and rejection.resolvable)
        return search.for_job(self) if can_help else None

    def members(self, pod: PodRecord) -> Sequence[str]:
        """Return the uids of the pending members of the pod's gang group that can be attempted. A pod without a gang is
        alone, and so is a pod that may be placed without its group.
        """
        return [member.uid for member in self.gangs.members_to_place(pod.uid)] or [pod.uid]

    def outcome(self, pod: PodRecord) -> str:
        current = self.gangs.round_of(pod.uid)
        return "" if current is None else current.preemption_message

    def remember(self, pod: PodRecord, message: str) -> None:
        """Store the result of a preemption for the whole gang group, unless it has one."""
        current = self.gangs.round_of(pod.uid)
        if current is not None:
            current.preemption_message = current.preemption_message or message

    def is_job(self, pod: PodRecord) -> bool:
        return self.gangs.round_of(pod.uid) is not None

    def waiting(self, pod: PodRecord) -> Sequence[str]:
        return self.gangs.waiting_with(pod.uid)

    def reject_waiting(self, pod: PodRecord) -> Sequence[str]:
        return self.gangs.reject_waiting(pod.uid)

    def peers_of(self, pod: PodRecord) -> Mapping[str, int]:
        return {}

    def control_due(self) -> float | None:
        return 0.0 if self.gangs.roster.touched else None

    def control(self, now: float) -> Sequence[Eviction | Status]:
        return gang_phases(self.gangs, now)

    def pages(self) -> Mapping[str, PageAnswer]:
        return gang_pages(self.gangs)
