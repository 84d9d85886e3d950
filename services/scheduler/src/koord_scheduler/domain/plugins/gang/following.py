"""Which groups to look at again after an event about a gang. The gang's own group is asked at once. Any number of other
gangs may name the gang, so their groups are collected, and asked only if what they need of the gang is another.
"""

from collections.abc import Iterable

from koord_scheduler.domain.plugins.gang.checks import attached, shortage
from koord_scheduler.domain.plugins.gang.group import Group
from koord_scheduler.domain.plugins.gang.roster import Roster


class Following:
    """The groups to look at again since the last call. An event about a gang costs the same however many name it."""

    def __init__(self, roster: Roster) -> None:
        self.to_recheck: dict[str, None] = {}  # Ids of groups that may be ready and whose members wait at Permit
        self._roster = roster
        self._changed: dict[str, None] = {}
        self._standing: dict[str, tuple[str, str, bool]] = {}

    @property
    def is_due(self) -> bool:
        return bool(self.to_recheck or self._changed)

    def recheck(self, group: Group | None) -> None:
        """Record that an event may have made a group ready whose members wait at Permit."""
        if group is not None and any(gang.waiting for gang in attached(self._roster, group)):
            self.to_recheck[group.id] = None

    def changed(self, gang_id: str) -> None:
        """Record an event about a gang. Groups of others that name it are asked again if it has gone to another group,
        falls short in another way, or has become ready (`Gang.is_ready`).
        """
        if not self._roster.is_named_by_others(gang_id):
            self._standing.pop(gang_id, None)
            return
        gang = self._roster.gang(gang_id)
        group = None if gang is None else gang.group
        is_ready = gang is not None and gang.is_ready()
        standing = ("" if group is None else group.id, shortage(self._roster, gang_id), is_ready)
        before = self._standing.get(gang_id)
        self._standing[gang_id] = standing
        if before is None or standing[:2] != before[:2] or (is_ready and not before[2]):
            self._changed[gang_id] = None

    def take(self) -> Iterable[Group]:
        """Return the groups that depend on changed gangs of other groups, each once."""
        if not self._changed:
            return ()
        changed, self._changed = self._changed, {}
        groups = {group.id: group for gang_id in changed for group in self._roster.groups_of_others(gang_id)}
        for group in groups.values():
            self.recheck(group)
        return groups.values()

    def restored(self) -> None:
        """Record that all groups have been asked, after a snapshot was restored."""
        for group in self._roster.groups.values():
            for gang_id in group.gang_ids:
                self.changed(gang_id)
        self._changed.clear()
