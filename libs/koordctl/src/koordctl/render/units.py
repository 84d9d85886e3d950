"""Formatting of amounts, durations and times as text.

CPU is written in cores, memory and storage in GiB, and other resources as plain numbers.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from koordcore.protocol.resource_names import NOTHING, amount_text, cfs_quota_text, cores, gibibytes

__all__ = [
    "age_text",
    "amount_text",
    "amounts_text",
    "by_count",
    "cfs_quota_text",
    "cores",
    "duration_text",
    "gibibytes",
    "seconds_between",
    "sentence_in_cores",
    "time_text",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI: Final = re.compile(r"(?<![\w.-])(\d+)m\b")


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Amounts by resource name, for example `cpu 4, memory 8.0Gi`, or `-` if there are none."""
    return ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in sorted(amounts.items())) or NOTHING


def sentence_in_cores(sentence: str) -> str:
    """Write the milli-cores of a sentence as cores: `9151m of 16000m` -> `9.151 of 16`."""
    return _MILLI.sub(lambda found: cores(int(found[1])), sentence)


def duration_text(seconds: float) -> str:
    """For example `340 ms`, `2.4 s`, `3 min 5 s` or `2 h 4 min`; rounded half up, as on the dashboard."""
    if _rounded(seconds * 1000) < 1000:
        return f"{_rounded(seconds * 1000)} ms"
    if _rounded(seconds * 10) < 600:
        return f"{_rounded(seconds * 10) / 10:.1f} s"
    if _rounded(seconds) < 3600:
        return _parts(_rounded(seconds), "min", "s")
    return _parts(_rounded(seconds / 60), "h", "min")


def age_text(begin: str, now: datetime | None) -> str | None:
    """The time since `begin` (RFC 3339) as kubectl shows it: `8s`, `5m10s`, `3h5m`, `2d`. None if one is unknown.

    Source:
        apimachinery, util/duration: HumanDuration
    """
    try:
        passed = int((now - datetime.fromisoformat(begin)).total_seconds()) if now is not None else None
    except ValueError:
        return None
    if passed is None:
        return None
    minutes, seconds = divmod(max(passed, 0), 60)
    hours, days = minutes // 60, minutes // 60 // 24
    if minutes < 2:
        return f"{max(passed, 0)}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds}s" if seconds else "")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 2 * 365:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y" + (f"{rest}d" if rest and years < 8 else "")


def seconds_between(begin: str, end: str) -> float:
    """The difference of two RFC 3339 times as `time_text` prints them.

    0 if the writers' clocks disagree by more than the elapsed time.
    """
    passed = _milliseconds(end) - _milliseconds(begin)
    return max(passed, 0) / 1000


def _milliseconds(text: str) -> int:
    """Since 1970."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


def _rounded(amount: float) -> int:
    return math.floor(amount + 0.5)


def _parts(amount: int, unit: str, below: str) -> str:
    whole, rest = divmod(amount, 60)
    return f"{whole} {unit}" + (f" {rest} {below}" if rest else "")


def time_text(text: str) -> str:
    """Date and time of an RFC 3339 time to the millisecond with its zone, which is UTC, or `-` if the text is empty.

    The dashboard writes times in the same form.
    """
    return f"{text.replace('T', ' ')[:23].removesuffix('Z')} UTC" if text else NOTHING


def by_count(counts: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    """Highest count first; entries with the same count by name."""
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
