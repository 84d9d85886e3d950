"""Go durations: `1h5m`, `300ms`, `1.5m`, `-1s`, `0`.

Users write them in annotations and configuration. In code, a duration is an integer number of nanoseconds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from koordcore.values.invalid import InvalidInput

_UNIT_NANOS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, what Go prints
    "μs": 10**3,  # U+03BC, what keyboards write
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PIECE: Final = re.compile(r"(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(ns|us|µs|μs|ms|s|m|h)")
_MAX: Final = 2**63 - 1
_RULE: Final = "a duration such as 30s, 1h5m or 0 (units ns us ms s m h)"

NANOS_PER_SECOND: Final = 10**9
MAX_LENGTH: Final = 256  # Longest accepted text. It limits the work that a text can cause.


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> int:
    """Parse a Go duration (`1h5m`, `300ms`, `-1s`, `0`) into nanoseconds; fractions of a nanosecond are cut off.

    Raises:
        InvalidInput: The text is empty, has a blank, has a number without unit (except `0`), or exceeds 292 years.

    Source: protocol spec, 1.2.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidInput(_RULE, text)
    negative = text[:1] == "-"
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    total = 0
    position = 0
    while position < len(rest):
        match = _PIECE.match(rest, position)
        if match is None:
            raise InvalidInput(_RULE, text)
        whole, part, only, unit = match.groups()
        fraction = only or part or ""
        total += int((whole or "") + fraction) * _UNIT_NANOS[unit] // 10 ** len(fraction)
        position = match.end()
    if position == 0 or total > _MAX + negative:
        raise InvalidInput(_RULE, text)
    return -total if negative else total


def parse_seconds(text: str) -> float:
    """Parse a Go duration (`1h5m`, `300ms`) into seconds.

    Raises:
        InvalidInput: The text is not a Go duration.
    """
    return parse_duration(text) / NANOS_PER_SECOND


def format_duration(nanos: int) -> str:
    """Format nanoseconds as Go does: `5m0s`, `24h0m0s`, `1.5s`, `250ms`, `0s` (protocol spec, 1.2)."""
    if nanos == 0:
        return "0s"
    sign = "-" if nanos < 0 else ""
    nanos = abs(nanos)
    if nanos < NANOS_PER_SECOND:
        for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
            if nanos < size * 1000:
                return f"{sign}{_decimal(nanos, size)}{unit}"
    minutes, rest = divmod(nanos, _UNIT_NANOS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(rest, NANOS_PER_SECOND)
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}s"
    return f"{sign}{minutes}m{seconds}s" if minutes else f"{sign}{seconds}s"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if rest == 0:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")
