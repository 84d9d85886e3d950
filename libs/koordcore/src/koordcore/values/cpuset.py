"""Linux CPU lists: convert `0-3,8` to an immutable set of CPU ids and back.

The value is a plain `frozenset[int]`, so union, intersection, difference and subset are Python's own operators.
Choosing CPUs by topology is in `topology`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

from koordcore.values.invalid import InvalidInput

CpuSet: TypeAlias = frozenset[int]

EMPTY: Final[CpuSet] = frozenset()
MAX_RANGE_END: Final = 4096
MAX_CPU_ID: Final = 2**31 - 1

_ITEM: Final = re.compile(r"(\+?[0-9]+)(?:-(\+?[0-9]+))?")
_RULE: Final = f"a CPU list such as 0-3,8 (ranges end at {MAX_RANGE_END} or below)"


def parse_cpuset(text: str) -> CpuSet:
    """Parse a Linux CPU list (`0-3,8`) into the set of CPU ids. Items are decimal ids or ranges `a-b`, separated by
    commas, in any order. The empty text gives the empty set. A range with b < a adds no CPU. A CPU may occur
    repeatedly.

    Raises:
        InvalidInput: The text has a blank, an empty item, a sign without a number, a second `-`, a range end above
            4096, or an id beyond int32.

    Source: protocol spec, 7.1.
    """
    if not text:
        return EMPTY
    cpus: set[int] = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None or len(item) > 32:
            raise InvalidInput(_RULE, text)
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if first > MAX_CPU_ID or last > MAX_CPU_ID or (match[2] is not None and last > MAX_RANGE_END):
            raise InvalidInput(_RULE, text)
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def format_cpuset(cpus: Iterable[int]) -> str:
    """Return the canonical Linux CPU list of these ids: ascending, two or more neighbours as `a-b`; "" for no CPU.

    Source: protocol spec, 7.1.
    """
    items: list[str] = []
    first = last = -2
    for cpu in sorted(set(cpus)):
        if cpu == last + 1:
            last = cpu
            continue
        if last >= 0:
            items.append(str(first) if first == last else f"{first}-{last}")
        first = last = cpu
    if last >= 0:
        items.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(items)


def is_same_cpuset(a: str, b: str) -> bool:
    """Return whether the texts `a` and `b` are valid CPU lists with equal CPUs; False if one of them is invalid.

    Source: protocol spec, 7.1.
    """
    try:
        return parse_cpuset(a) == parse_cpuset(b)
    except InvalidInput:
        return False
