"""Events of the container runtime that an NRI plugin may follow, and the mask that selects them.

Source: runtime spec, 7.1, 7.2 (6).
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from koordcore.values.invalid import InvalidInput


class NriEvent(IntEnum):
    """An event with its number in the protocol."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14

    @property
    def mask(self) -> int:
        """The bit of the event in a mask."""
        return 1 << (self - 1)


DEFAULT_EVENTS: Final = ("RunPodSandbox", "RemovePodSandbox", "CreateContainer", "UpdateContainer")
_BY_NAME: Final = {event.name.replace("_", "").lower(): event for event in NriEvent}
_GROUPS: Final = {"pod": "pod", "podsandbox": "pod", "container": "container", "all": ""}
"""Name of a group -> text that the names of its events contain."""


def event_mask(events: Iterable[str]) -> int:
    """Return the mask that selects events.

    Args:
        events: Names of events, or lists of names with commas between them. The case does not matter. `pod`,
            `podsandbox`, `container` and `all` stand for groups of events.

    Raises:
        InvalidInput: A name is unknown.
    """
    mask = 0
    for name in (part.strip().lower() for each in events for part in each.split(",")):
        if name in _GROUPS:
            found = [event for key, event in _BY_NAME.items() if _GROUPS[name] in key]
        elif name in _BY_NAME:
            found = [_BY_NAME[name]]
        else:
            raise InvalidInput("the name of an NRI event", name, "events")
        for event in found:
            mask |= event.mask
    return mask
