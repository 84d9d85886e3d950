"""How amounts are written, everywhere: cpu in cores, memory and storage in GiB, everything else as a plain number.

cpu 1500 -> 1.5    kubernetes.io/batch-cpu 1500 -> 1.5    memory 3 << 29 -> 1.5Gi    pods 110 -> 110
"""

import re
from collections.abc import Mapping
from typing import Final

from koordcore.protocol.resource_names import BATCH_CPU, MID_CPU
from koordcore.values.resources import CPU

NOTHING: Final = "-"
IN_CORES: Final = (CPU, BATCH_CPU, MID_CPU)
_GIB: Final = 1 << 30
_MILLI: Final = re.compile(r"(?<![\w.-])(\d+)m\b")


def cores(milli: int | None) -> str:
    """Milli-cores as cores: 1500 -> `1.5`; None: `-`."""
    return NOTHING if milli is None else f"{milli / 1000:.10g}"


def gibibytes(amount: int | None) -> str:
    """Bytes as GiB: `1.5Gi`, below one GiB with two digits that count: `0.25Gi`; None: `-`."""
    if amount is None:
        return NOTHING
    return f"{amount / _GIB:.1f}Gi" if amount == 0 or abs(amount) >= _GIB else f"{amount / _GIB:.2g}Gi"


def amount_text(resource: str, amount: int) -> str:
    """An amount of a resource: milli-cores for cpu (batch and mid too), bytes for memory and storage."""
    if resource in IN_CORES:
        return cores(amount)
    if resource.endswith(("memory", "storage")) or "hugepages-" in resource:
        return gibibytes(amount)
    return str(amount)


def amounts_text(amounts: Mapping[str, int]) -> str:
    """`cpu 4, memory 8.0Gi`, by name; `-` for nothing."""
    return ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in sorted(amounts.items())) or NOTHING


def cfs_quota_text(microseconds: int) -> str:
    """A cfs quota per 100 ms as cores; negative: `unlimited`."""
    return "unlimited" if microseconds < 0 else f"{cores(microseconds // 100)} cores"


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
