"""The clock of the running stack, which runs faster than the host's clock if the stack was started with `--speed`."""

import os

from koordcore.ports.clock import Clock
from koordcore.service.clock import ScaledClock, SystemClock, parse_clock
from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import live_directory
from koordctl.render.output import errors


def run_clock() -> Clock:
    """Return the clock that the events of the current log follow.

    If KOORD_NATS names a remote log, or no stack has stored a clock, this is the clock of the host.
    """
    if os.environ.get("KOORD_NATS"):
        return SystemClock()
    try:
        return parse_clock((live_directory() / "clock").read_text().strip())
    except (OSError, InvalidInput):
        return SystemClock()


def clock_sentence(clock: Clock) -> str:
    """Return a warning for the user if the shown times are not those of the host's clock (a simulated clock).

    Else "".
    """
    if not isinstance(clock, ScaledClock):
        return ""
    now = clock.now().isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
    pace = f"{clock.speed:g} times as fast as real time" if clock.speed != 1 else "ahead of real time"
    return f"times are of the run's clock, which is {pace}; it shows {now} UTC"


def warn_of_clock() -> None:
    """Say on stderr that the shown times are those of a simulated clock. No-op with the host's clock."""
    if clock := clock_sentence(run_clock()):
        errors.print(clock, highlight=False, markup=False)
