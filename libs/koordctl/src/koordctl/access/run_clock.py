"""The clock that the running stack shows: simulated with `--speed`, else the host's."""

import os

from koordcore.ports.clock import Clock
from koordcore.service.clock import ScaledClock, SystemClock, parse_clock
from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import live_directory


def run_clock() -> Clock:
    """The clock of the stack whose log is read. Elsewhere (KOORD_NATS) every service has the host's time."""
    if os.environ.get("KOORD_NATS"):
        return SystemClock()
    try:
        return parse_clock((live_directory() / "clock").read_text().strip())
    except (OSError, InvalidInput):
        return SystemClock()


def clock_sentence(clock: Clock) -> str:
    """What a reader has to know of the times that are shown; "" where they are the host's."""
    if not isinstance(clock, ScaledClock):
        return ""
    now = clock.now().isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    pace = f"{clock.speed:g} times as fast as real time" if clock.speed != 1 else "ahead of real time"
    return f"times are the run's, which passes {pace}; there it is {now} UTC now"
