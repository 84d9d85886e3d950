"""Coscheduling: gangs, as the extension points see them; the rules are in `domain.gang`.

source    scheduler-core spec, 8
"""

from collections.abc import Sequence
from typing import Final

from koord_scheduler.domain.framework.outcomes import Allow, Failure, Next, Rejection, Wait
from koord_scheduler.domain.gang.cache import GangCache
from koord_scheduler.domain.gang.outcomes import Refused, Released
from koord_scheduler.domain.pods.record import PodRecord

_NANOS: Final = 1_000_000_000
_NOBODY: Final = Next()
_ALONE: Final = Allow()
"""For pods without a gang, which are most: nothing is made anew for them."""


class Coscheduling:
    """Gang members are placed all or none."""

    name = "Coscheduling"

    def __init__(self, gangs: GangCache) -> None:
        self.gangs = gangs

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """See `PreEnqueuePlugin.pre_enqueue`: at most one pod of a group is in the queues."""
        if pod.uid not in self.gangs.roster.members:
            return None
        refused = self.gangs.pre_enqueue(pod.uid)
        return None if refused is None else refused.message

    def next_pod(self) -> Next:
        """See `NextPodPlugin.next_pod`: the other members of the group that is being scheduled."""
        if self.gangs.round is None:
            return _NOBODY
        found = self.gangs.next_pod()
        return Next(uid=found.uid or "", like=found.first_uid, rejected=found.rejected)

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        """See `PreFilterPlugin.pre_filter`."""
        if pod.uid not in self.gangs.roster.members:
            return None
        refused = self.gangs.before_pre_filter(pod.uid, now=now)
        return None if refused is None else Rejection(plugin=self.name, message=refused.message)

    def reserve(self, pod: PodRecord, node: str) -> None:
        """Nothing: the gang counts the pod when it is permitted."""

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """See `ReservePlugin.unreserve`: a Strict gang loses its other waiting members."""
        return self.gangs.unreserve(pod.uid).rejected if pod.uid in self.gangs.roster.members else ()

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        """See `ReservePlugin.post_bind`."""
        return self.gangs.post_bind(pod.uid).activate if pod.uid in self.gangs.roster.members else ()

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """See `PermitPlugin.permit`."""
        if pod.uid not in self.gangs.roster.members:
            return _ALONE
        match self.gangs.permit(pod.uid):
            case Refused(message=message):
                return Rejection(plugin=self.name, message=message, resolvable=True)
            case Released(consequences=released):
                gang = self.gangs.roster.gang_of(pod.uid)
                return Allow(waiting=released.allowed, activate=released.activate, gang="" if gang is None else gang.id)
            case waits:
                return Wait(seconds=waits.nanos / _NANOS)

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """See `AfterPostFilterPlugin.after_post_filter`."""
        failed = self.gangs.after_post_filter(pod.uid, message)
        return Failure(
            message=failed.message, rejected=failed.rejected, is_root_cause=failed.is_root_cause, tell=failed.tell
        )
