"""What a PodMigrationJob may say about its mode and the time that it has.

Source: protocol spec, 9.6; reality spec, 5.6.
"""

from typing import Final

from koordcore.values.duration import parse_duration
from koordcore.values.invalid import InvalidInput

RESERVATION_FIRST: Final = "ReservationFirst"
EVICT_DIRECTLY: Final = "EvictDirectly"
MIGRATION_MODES: Final = ("", RESERVATION_FIRST, EVICT_DIRECTLY)  # "": the default of the controller


def check_ttl(text: str) -> InvalidInput | None:
    """Return why a job's ttl is no duration of Go; None if it is one, or "". It has no path."""
    try:
        if text:
            parse_duration(text)
    except InvalidInput as error:
        return error
    return None
