"""Passes changes of Reservations to the objects `Usable` that depend on them, one for each pod equivalence class."""

from typing import Final
from weakref import finalize

from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.reservation.entry import Entry
from koord_scheduler.domain.reservation.usable import Usable

EVERY_GROUP: Final = 0
"""Number that stands for the Reservations of all groups. Groups have numbers from 1 on."""


class Watchers:
    """The cached objects `Usable` that depend on Reservations, by the id of the group of Reservations."""

    def __init__(self) -> None:
        self._by_group: dict[int, dict[int, Usable]] = {}

    def add(self, pod_class: PodClass, groups: tuple[int, ...], usable: Usable) -> None:
        """Update `usable` on changes of these groups of Reservations from now on, as long as the class has pods.

        Args:
            pod_class: The pod equivalence class.
            groups: Ids of the groups.
            usable: The Reservations that pods of the class may use.
        """
        for group in groups:
            self._by_group.setdefault(group, {})[id(usable)] = usable
        finalize(pod_class, self._stop, id(usable), groups).atexit = False

    def told(self, group: int, entry: Entry, *, has_changed: bool) -> None:
        """Update the Reservations of all classes that watch a group, after one of its Reservations changed.

        Args:
            group: Id of the group.
            entry: The Reservation that changed.
            has_changed: As for `Usable.told`.
        """
        watchers = self._by_group.get(group)
        if watchers:
            for usable in tuple(watchers.values()):  # the garbage collector may remove one meanwhile
                usable.told(entry, has_changed=has_changed)

    def _stop(self, number: int, groups: tuple[int, ...]) -> None:
        """Forget the answer for a class of which no pod is left."""
        for group in groups:
            watchers = self._by_group.get(group)
            if watchers is not None and watchers.pop(number, None) is not None and not watchers:
                del self._by_group[group]
