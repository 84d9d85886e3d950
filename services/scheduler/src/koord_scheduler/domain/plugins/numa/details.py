"""Numbers of free CPUs and amounts on a node, which explain why it is refused."""

from koordcore.protocol.resource_names import CPU, amount_text

from koord_scheduler.domain.numa.accumulator import BindPolicy
from koord_scheduler.domain.numa.books import NumaBooks
from koord_scheduler.domain.numa.columns import WHOLE
from koord_scheduler.domain.plugins.numa.codes import (
    MOST_BITS,
    NUMBER_SHIFT,
    Kind,
    counted,
    kind_of,
    needed_text,
    place_text,
)
from koord_scheduler.domain.plugins.numa.need import Need


def details_of(need: Need, code: int, books: NumaBooks, row: int) -> str:
    """Return a phrase with the free CPUs or amounts of a node that refuses; "" if numbers do not explain the refusal.

    Args:
        need: Needs of the pod's class in CPUs and zones.
        code: Filter code of the node.
        books: CPUs and zone amounts that pods hold on all nodes.
        row: Position of the node.
    """
    columns, kind = books.columns, kind_of(code)
    match kind:
        case Kind.FULL_CORES:
            return f"has {counted(_whole_cores(books, WHOLE, row), 'whole core')}"
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
        return str(_whole_cores(books, zone + 1, row))
    left = books.columns.available(resource).item(zone + 1, row)
    if resource == CPU and need.binding.policy is not None:
        return f"{counted(books.columns.open.item(zone + 1, row), 'core')} with a free CPU"
    return amount_text(resource, left)


def _whole_cores(books: NumaBooks, entry: int, row: int) -> int:
    return books.columns.full.item(entry, row) // max(1, books.columns.per_core.item(row))
