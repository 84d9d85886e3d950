"""The clock of the running stack: scaled with `--speed`, else the host's clock."""

import os

from koordcore.ports.clock import Clock
from koordcore.service.clock import ScaledClock, SystemClock, parse_clock
from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import live_directory


def run_clock() -> Clock:
    """Return the clock of the stack whose log is read. With KOORD_NATS set, return the host's clock."""
    if os.environ.get("KOORD_NATS"):
        return SystemClock()
    try:
        return parse_clock((live_directory() / "clock").read_text().strip())
    except (OSError, InvalidInput):
        return SystemClock()


def clock_sentence(clock: Clock) -> str:
    """Return a sentence about times that are not host times, or "" if they are host times."""
    if not isinstance(clock, ScaledClock):
        return ""
    now = clock.now().isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    pace = f"{clock.speed:g} times as fast as real time" if clock.speed != 1 else "ahead of real time"
    return f"times are of the run's clock, which is {pace}; it shows {now} UTC"
