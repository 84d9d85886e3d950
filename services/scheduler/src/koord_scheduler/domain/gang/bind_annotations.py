"""What PreBind writes on a member: with whom it is bound, and how many they are.

source    scheduler-core spec, 8.7
"""

from typing import Final

from koordcore.protocol import keys

from koord_scheduler.domain.gang.cache import GangCache

_GROUP_IDS: Final[tuple[str, ...]] = (keys.BIND_GANG_GROUP_ID, keys.BIND_GANG_GROUP_ID_ALIAS)
_COUNTS: Final[tuple[str, ...]] = (keys.BIND_GANG_MEMBER_COUNT, keys.BIND_GANG_MEMBER_COUNT_ALIAS)


def bind_annotations(cache: GangCache, uid: str) -> dict[str, str | None]:
    """Annotation -> its text for a pod that is released with others; None: it is to be removed from the pod."""
    gang = cache.roster.gang_of(uid)
    group = None if gang is None else gang.group
    group_id = count = None
    if group is not None and uid in group.binding and len(group.binding) > 1:
        group_id, count = group.id, str(len(group.binding))
    written: dict[str, str | None] = dict.fromkeys(_GROUP_IDS, group_id)
    written.update(dict.fromkeys(_COUNTS, count))
    return written
