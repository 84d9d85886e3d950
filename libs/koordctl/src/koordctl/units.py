"""How amounts, durations and times are written: cpu in cores, memory and storage in GiB, the rest as a plain number."""

import re
from collections.abc import Mapping
from typing import Final

from koordcore.protocol.amount_text import NOTHING, amount_text, cfs_quota_text, cores, gibibytes

__all__ = [
    "amount_text",
    "amounts_text",
    "cfs_quota_text",
    "cores",
    "duration_text",
    "gibibytes",
    "sentence_in_cores",
    "time_text",
]

_MILLI: Final = re.compile(r"(?<![\w.-])(\d+)m\b")


def amounts_text(amounts: Mapping[str, int]) -> str:
    """`cpu 4, memory 8.0Gi`, by name; `-` for nothing."""
    return ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in sorted(amounts.items())) or NOTHING


def sentence_in_cores(sentence: str) -> str:
    """A service's sentence about cpu with its milli-cores as cores: `9151m of 16000m` -> `9.151 of 16`."""
    return _MILLI.sub(lambda found: cores(int(found[1])), sentence)


def duration_text(seconds: float) -> str:
    """`340 ms`, `2.4 s`, `3 min 5 s`, `2 h 4 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    parts = ((hours, "h"), (left, "min")) if hours else ((minutes, "min"), (rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def time_text(text: str) -> str:
    """The date and time of an RFC 3339 text, to the millisecond; `-` for none."""
    return text.replace("T", " ")[:23].removesuffix("Z") if text else NOTHING
