"""The gang group that a member is bound with, and how many of its pods are.

Source: scheduler-core spec, 8.7.
"""

from koordcore.protocol.annotations.gang import BoundGang

from koord_scheduler.domain.gang.cache import GangCache


def bound_gang(cache: GangCache, uid: str) -> BoundGang | None:
    """Return the gang group that is released together with the pod, or None if the pod is bound alone."""
    gang = cache.roster.gang_of(uid)
    group = None if gang is None else gang.group
    if group is None or uid not in group.binding or len(group.binding) < 2:
        return None
    return BoundGang(group.id, len(group.binding))
