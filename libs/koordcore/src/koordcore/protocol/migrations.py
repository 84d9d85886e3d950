"""What a PodMigrationJob may say about its mode and the time that it has.

Source: protocol spec, 9.6; reality spec, 5.6.
"""

from typing import Final

from koordcore.values.duration import parse_duration
from koordcore.values.invalid import InvalidInput

RESERVATION_FIRST: Final = "ReservationFirst"
EVICT_DIRECTLY: Final = "EvictDirectly"


def check_ttl(text: str) -> InvalidInput | None:
    """Return why a job's ttl is no duration of Go; None if it is one, or "". It has no path."""
    try:
        if text:
            parse_duration(text)
    except InvalidInput as error:
        return error
    return None


def check_mode(text: str) -> InvalidInput | None:
    """Return why a job's mode is unknown; None if it is known, or "", the default of the controller. It has no path."""
    if text in ("", RESERVATION_FIRST, EVICT_DIRECTLY):
        return None
    return InvalidInput(f"absent or one of {RESERVATION_FIRST}, {EVICT_DIRECTLY}", text)
