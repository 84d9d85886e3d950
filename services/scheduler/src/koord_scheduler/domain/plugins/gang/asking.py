"""Which members of a gang group PreEnqueue shall be asked about again after an event, because the answer is another.

    to_ask       after an event about the group
    one_to_ask   one member that may represent the group in the queue

An answer that changes only in its numbers is not told again: with 2,000 members that come one by one, each would
otherwise get 2,000 explanations.

Source: scheduler-core spec, 8.5, 8.7
"""

from koord_scheduler.domain.plugins.gang.checks import attached, basic_check, shortage
from koord_scheduler.domain.plugins.gang.group import Group, Refusal
from koord_scheduler.domain.plugins.gang.roster import Roster
from koord_scheduler.domain.plugins.gang.round import Round


def to_ask(roster: Roster, group: Group, current: Round | None, *, retries: bool) -> list[str]:
    """Return the pods of a group about which PreEnqueue shall be asked again after an event: one that represents the
    group if it may be scheduled, and all if they are placed alone or are refused for another reason than before.

    Args:
        current: The round that is under way; None if there is none.
        retries: Whether the event may help a group that passed the check before.
    """
    if roster.groups.get(group.id) is not group:
        return []
    uids = _newly_free(roster, group)
    refusal = _refusal_of(roster, group)
    if refusal != group.told and refusal:
        uids += _members_to_tell(roster, group)
    elif refusal != group.told or retries:
        found = one_to_ask(roster, group, current)
        uids += found or (_attempted(roster, group, current) if refusal != group.told else [])
    group.told = refusal
    return uids


def one_to_ask(roster: Roster, group: Group, current: Round | None, but: str = "") -> list[str]:
    """Return one member that may represent its group in the queue, as a list. Empty while the round of the group
    fetches its members itself. `but`: uid of a pod that shall not; "" for none.
    """
    is_under_way = current is not None and not current.gang_ids.isdisjoint(group.gang_ids)
    return [] if is_under_way else _one_pending(roster, group, but)


def _attempted(roster: Roster, group: Group, current: Round | None) -> list[str]:
    """Return one member that the round of the group has attempted in vain, and will not fetch again."""
    if current is None or group.representative or current.gang_ids.isdisjoint(group.gang_ids):
        return []
    members = (roster.members.get(uid) for uid in sorted(current.attempted))
    return [member.uid for member in members if member is not None and member.can_be_tried][:1]


def _refusal_of(roster: Roster, group: Group) -> Refusal:
    """Return why `basic_check` refuses the members of a group, without what need not be told again, such as numbers;
    empty if it passes.
    """
    found = (shortage(roster, gang_id) for gang_id in group.gang_ids)
    return tuple(each for each in found if each)


def _one_pending(roster: Roster, group: Group, but: str = "") -> list[str]:
    """Return the uid of one member without a node that may represent its group in the queue, as a list. Empty if
    `basic_check` fails, if the group has a representative, or if no member needs one. Members that cannot be attempted,
    or that have a free pass, do not represent their group. `but`: uid of a pod that shall not; "" for none.
    """
    if group.representative or basic_check(roster, group) is not None:
        return []
    for other in attached(roster, group):
        if not other.has_free_pass:
            for uid, member in other.pending.items():
                if not member.obstacle and uid != but:
                    return [uid]
    return []


def _members_to_tell(roster: Roster, group: Group) -> list[str]:
    """Return the uids of the members of the group without a node that could be attempted if it passed the check."""
    gangs = [gang for gang in attached(roster, group) if not gang.has_free_pass]
    return [uid for gang in gangs for uid, member in gang.pending.items() if not member.obstacle]


def _newly_free(roster: Roster, group: Group) -> list[str]:
    """Return the uids of all members of the group that have no node and may be placed alone (a free pass), if that was
    not so at the last call.
    """
    uids: list[str] = []
    for gang in attached(roster, group):
        if gang.has_free_pass and not gang.is_free:
            uids += sorted(gang.pending)
        gang.is_free = gang.has_free_pass
    return uids
