"""Passes changes of Reservations to the answers that depend on them, one answer for each pod equivalence class."""

from typing import Final
from weakref import finalize

from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.reservation.entry import Entry
from koord_scheduler.domain.reservation.usable import Usable

EVERY_GROUP: Final = 0
"""Number that stands for the Reservations of all groups. Groups have numbers from 1 on."""


class Watchers:
    """The answers that depend on Reservations, by the number of the group of Reservations."""

    def __init__(self) -> None:
        self._by_group: dict[int, dict[int, Usable]] = {}

    def add(self, pod_class: PodClass, groups: tuple[int, ...], usable: Usable) -> None:
        """Pass changes of these groups to the answer for a class from now on, as long as the class has pods."""
        for group in groups:
            self._by_group.setdefault(group, {})[id(usable)] = usable
        finalize(pod_class, self._stop, id(usable), groups).atexit = False

    def told(self, group: int, entry: Entry, *, has_changed: bool) -> None:
        """Tell the answers of a group that a Reservation has changed. See `Usable.told`."""
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
