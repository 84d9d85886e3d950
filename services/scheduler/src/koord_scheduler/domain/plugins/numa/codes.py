"""Filter codes of NodeNUMAResource, and the sentences that they stand for, with numbers of free CPUs and amounts. A
code has the kind of the refusal in its lowest bits, then the CPUs per core, then a number that depends on the kind: a
bit for each short resource, or the index of a reason in a list.

Source: scheduler-fine-grained spec, 1.3 to 1.9
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from koordcore.protocol.resource_names import CPU, amount_text

from koord_scheduler.domain.plugins.numa.accumulator import BindPolicy
from koord_scheduler.domain.plugins.numa.binding import CONFLICT, NO_LAYOUT, NOT_WHOLE, NOT_WHOLE_CORES
from koord_scheduler.domain.plugins.numa.books import NumaBooks
from koord_scheduler.domain.plugins.numa.columns import UNEQUAL_CORES, WHOLE
from koord_scheduler.domain.plugins.numa.need import NO_ZONES, POLICY_MISMATCH, Need

KIND_BITS: Final = 5
CORE_BITS: Final = 8
NUMBER_SHIFT: Final = KIND_BITS + CORE_BITS
MOST_BITS: Final = 30
"""A pod with more resources than this shares the last bit."""


class Kind(IntEnum):
    """The kind of reason for which NodeNUMAResource refuses a node."""

    PASSES = 0
    POLICY_MISMATCH = 1
    NO_ZONES = 2
    NOT_WHOLE = 3
    INVALID_RATIO = 4
    NO_LAYOUT = 5
    CONFLICT = 6
    NOT_WHOLE_CORES = 7
    AMPLIFIED = 8
    FULL_CORES = 9
    OPEN_CORES = 10
    FREE_CPUS = 11
    ONE_ZONE = 12
    ALL_ZONES = 13
    EXACT = 14


LAST_UNRESOLVABLE: Final = Kind.NOT_WHOLE_CORES
"""Up to here no pod's leaving helps."""
_FIXED: Final[Mapping[int, str]] = {
    Kind.POLICY_MISMATCH: POLICY_MISMATCH,
    Kind.NO_ZONES: NO_ZONES,
    Kind.NOT_WHOLE: NOT_WHOLE,
    Kind.INVALID_RATIO: "node(s) invalid CPU amplification ratio",
    Kind.NO_LAYOUT: NO_LAYOUT,
    Kind.CONFLICT: CONFLICT,
    Kind.NOT_WHOLE_CORES: NOT_WHOLE_CORES,
    Kind.AMPLIFIED: "Insufficient amplified cpu",
}


def code_of(kind: int, per_core: int = 0, number: int = 0) -> int:
    """Return the filter code of a refusal. `per_core`: CPUs per core of the node, if the reason needs them. `number`: a
    bit for each short resource, or the index of a reason, depending on the kind.
    """
    return kind | min(per_core, (1 << CORE_BITS) - 1) << KIND_BITS | number << NUMBER_SHIFT


def kind_of(code: int) -> int:
    """Return the kind of refusal that a filter code contains."""
    return code & ((1 << KIND_BITS) - 1)


def reasons_of(code: int, amounts: Mapping[str, int], policy: BindPolicy | None, exact: list[str]) -> tuple[str, ...]:
    """Return the meaning of a filter code as phrases for users. `amounts`: resource -> requested amount, in the order
    of the bits of the code. `policy`: the pod's own CPU bind policy; None if it has none. `exact`: reasons of the exact
    decision, by their numbers in codes.
    """
    kind, per_core, number = kind_of(code), code >> KIND_BITS & ((1 << CORE_BITS) - 1), code >> NUMBER_SHIFT
    cpus = amounts.get(CPU, 0) // 1000
    match kind:
        case Kind.FULL_CORES:
            return (f"needs {whole_cores_text(cpus, per_core)}",)
        case Kind.OPEN_CORES:
            return (f"needs {counted(cpus, 'core')} with a free CPU",)
        case Kind.FREE_CPUS:
            return (f"needs {counted(cpus, 'free CPU')}",)
        case Kind.ONE_ZONE | Kind.ALL_ZONES:
            return _zone_reasons(kind, per_core, number, amounts, policy)
        case Kind.EXACT:
            return (exact[number],)
        case _:
            return (_FIXED[kind],)


def whole_cores_text(cpus: int, per_core: int) -> str:
    """Return how many cores `cpus` CPUs fill, rounded up, or how many CPUs they are if cores differ."""
    if per_core == UNEQUAL_CORES:
        return f"{counted(cpus, 'CPU')} of whole cores"
    return counted(-(-cpus // max(1, per_core)), "whole core")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun as text, in the plural unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def needed_text(resource: str, amount: int, policy: BindPolicy | None, per_core: int) -> str:
    """Return the need of a pod for a resource as text, for example "2 whole cores" or "1500m cpu"."""
    if resource == CPU and policy is BindPolicy.FULL_PCPUS and amount % 1000 == 0:
        return whole_cores_text(amount // 1000, per_core)
    return f"{amount_text(resource, amount)} {resource}"


def place_text(kind: int) -> str:
    """Return where the amounts are needed, for the kinds `ONE_ZONE` and `ALL_ZONES`."""
    return "in one zone" if kind == Kind.ONE_ZONE else "in its zones together"


def _zone_reasons(
    kind: int, per_core: int, bits: int, amounts: Mapping[str, int], policy: BindPolicy | None
) -> tuple[str, ...]:
    texts = [needed_text(resource, amount, policy, per_core) for resource, amount in amounts.items()]
    short = [text for index, text in enumerate(texts) if bits >> min(index, MOST_BITS) & 1]
    if short:
        return tuple(f"needs {text} {place_text(kind)}" for text in short)
    return (f"needs {', '.join(texts)} {place_text(kind)}",)


def details_of(need: Need, code: int, books: NumaBooks, row: int) -> str:
    """Return a phrase with the free CPUs or amounts of a node that refuses; "" if numbers do not explain the refusal.
    `books`: CPUs and zone amounts that pods hold on all nodes.
    """
    columns, kind = books.columns, kind_of(code)
    match kind:
        case Kind.FULL_CORES:
            return f"has {_free_cores(books, WHOLE, row)}"
        case Kind.OPEN_CORES:
            return f"has {counted(columns.open.item(WHOLE, row), 'core')} with a free CPU"
        case Kind.FREE_CPUS:
            return f"has {counted(columns.free.item(WHOLE, row), 'free CPU')}"
        case Kind.ONE_ZONE | Kind.ALL_ZONES:
            return _of_zones(need, kind, code >> NUMBER_SHIFT, books, row)
        case _:
            return ""


def _of_zones(need: Need, kind: int, bits: int, books: NumaBooks, row: int) -> str:
    texts: list[str] = []
    zones = books.book(row).hardware.zones
    per_core = books.columns.per_core.item(row)
    for index, (resource, amount) in enumerate(need.amounts.items()):
        if bits and not bits >> min(index, MOST_BITS) & 1:
            continue
        of_zones = [f"zone {zone} has {_left(need, books, row, zone, resource)}" for zone in zones]
        needed = needed_text(resource, amount, need.binding.policy, per_core)
        texts.append(f"needs {needed} {place_text(kind)}: {', '.join(of_zones)}")
    return "; ".join(texts)


def _left(need: Need, books: NumaBooks, row: int, zone: int, resource: str) -> str:
    if resource == CPU and need.binding.policy is BindPolicy.FULL_PCPUS:
        per_core, full = books.columns.per_core.item(row), books.columns.full.item(zone + 1, row)
        return str(full // max(1, per_core)) if per_core != UNEQUAL_CORES else whole_cores_text(full, per_core)
    left = books.columns.available(resource).item(zone + 1, row)
    if resource == CPU and need.binding.policy is not None:
        return f"{counted(books.columns.open.item(zone + 1, row), 'core')} with a free CPU"
    return amount_text(resource, left)


def _free_cores(books: NumaBooks, entry: int, row: int) -> str:
    per_core, full = books.columns.per_core.item(row), books.columns.full.item(entry, row)
    return (
        whole_cores_text(full, per_core)
        if per_core == UNEQUAL_CORES
        else counted(full // max(1, per_core), "whole core")
    )
