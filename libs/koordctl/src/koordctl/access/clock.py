"""The clock of the running stack, and moments that a user names by it: a time, or a duration before now.

The clock of a run is faster than the host's clock if the stack was started with `--speed`.
"""

import os
from datetime import UTC, datetime, timedelta
from typing import Final

from koordcore.ports.clock import Clock
from koordcore.service.clock import ScaledClock, SystemClock, parse_clock
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import live_directory
from koordctl.render.output import fail

_SKEW: Final = timedelta(seconds=60)
"""The clock of a server may be ahead of ours by this much, in host time."""
MOMENT_RULE: Final = "a position, an RFC 3339 time, or a duration before now such as 5m"


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


def parse_moment(text: str) -> datetime:
    """Convert an RFC 3339 text, or a time as commands print it, to a time; a text without an offset is UTC.

    Raises:
        ValueError: The text is not a time.
    """
    moment = datetime.fromisoformat(text.removesuffix(" UTC"))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def given_moment(option: str, text: str) -> datetime:
    """Return the time that the value of an option names: an RFC 3339 time, or a duration before now on the run's clock.

    If it is neither, end the command with exit status 2. If the time has not come yet, end it with 1.
    """
    clock = run_clock()
    now = clock.now()
    try:
        passed = parse_seconds(text)
    except InvalidInput:
        passed = None
    try:
        moment = parse_moment(text) if passed is None else now - timedelta(seconds=passed)
    except (ValueError, OverflowError):
        fail(f"{option} must be {MOMENT_RULE}, got {text!r}", status=2)
    skew = _SKEW * (clock.speed if isinstance(clock, ScaledClock) else 1)
    if moment > now + skew:
        fail(f"{option} {text}: this time has not come yet, it is {now.strftime('%Y-%m-%d %H:%M:%S')} UTC")
    return moment
