"""Resource lists (name -> amount) and the arithmetic that the protocol defines.

There are two forms. A `ResourceList` has exact quantities, for values that are written back to objects. `Amounts` are
integers for computing: milli-cores for `cpu`, whole units for everything else. In both, an absent resource equals zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, cast

from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO, Quantity, of_milli, of_value, parse_milli, parse_value, quantity_from_json

CPU: Final = "cpu"

ResourceList: TypeAlias = dict[str, Quantity]
Amounts: TypeAlias = dict[str, int]


def parse_resources(raw: object) -> ResourceList:
    """Parse a resource list (name -> quantity) from decoded JSON. null gives an empty list; a null entry is zero.

    Raises:
        InvalidInput: `raw` is not an object, or an entry is not a quantity. The error names the resource.

    Source: protocol spec, 1.1.
    """
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise InvalidInput("an object of resource name to quantity", raw)
    parsed: ResourceList = {}
    for name, value in cast("Mapping[str, object]", raw).items():
        try:
            parsed[name] = quantity_from_json(value)
        except InvalidInput as error:
            raise error.at(name) from error
    return parsed


def format_resources(resources: Mapping[str, Quantity]) -> dict[str, str]:
    """Return resource name -> canonical text of its quantity, sorted by name."""
    return {name: resources[name].canonical() for name in sorted(resources)}


def parse_amounts(raw: Mapping[str, str | int | float]) -> Amounts:
    """Parse a resource list into integers: milli-cores for `cpu`, else whole units, rounded away from zero.

    Raises:
        InvalidInput: A quantity is invalid. The error names the resource.

    Source: scheduler-core spec, conventions.
    """
    amounts: Amounts = {}
    for name, value in raw.items():
        try:
            amounts[name] = parse_milli(value) if name == CPU else parse_value(value)
        except InvalidInput as error:
            raise error.at(name) from error
    return amounts


def amount_of(name: str, quantity: Quantity) -> int:
    """Return a quantity of resource `name` as an integer. The unit is milli-cores for `cpu`, else whole units.
    Fractions are rounded away from zero.
    """
    return quantity.milli() if name == CPU else quantity.value()


def quantity_of(name: str, amount: int) -> Quantity:
    """Return an integer amount of resource `name` (milli-cores for `cpu`, else whole units) as a quantity."""
    return of_milli(amount) if name == CPU else of_value(amount)


def add(*lists: Mapping[str, Quantity]) -> ResourceList:
    """Return the sum of resource lists, resource by resource."""
    total: ResourceList = {}
    for resources in lists:
        for name, quantity in resources.items():
            total[name] = total[name] + quantity if name in total else quantity
    return total


def subtract(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> ResourceList:
    """Return `a - b` over the resources of both. Amounts may be negative."""
    return {name: a.get(name, ZERO) - b.get(name, ZERO) for name in _names(a, b)}


def maximum(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> ResourceList:
    """Return the larger quantity of each resource, over the resources of both. If only one list has a resource, its
    quantity is taken.
    """
    return {
        name: max(a[name], b[name]) if name in a and name in b else a.get(name, b.get(name, ZERO))
        for name in _names(a, b)
    }


def is_equal(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> bool:
    """Return whether both lists have equal amounts; an absent resource counts as zero (protocol spec, 1.1)."""
    return all(a.get(name, ZERO) == b.get(name, ZERO) for name in _names(a, b))


def is_within(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> bool:
    """Return whether the amount of every resource of `a` is at most its amount in `b`, where an absent one is zero."""
    return all(a.get(name, ZERO) <= b.get(name, ZERO) for name in _names(a, b))


def is_zero(resources: Mapping[str, Quantity]) -> bool:
    """Return whether every amount is zero."""
    return not any(resources.values())


def _names(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> Iterable[str]:
    return a.keys() if a.keys() == b.keys() else [*a, *(name for name in b if name not in a)]


# Upper limit of amounts (4 PiB, or 4.5e12 cores), so that sums over a node and products with 1000 fit into int64.
MAX_AMOUNT: Final = 1 << 52


def clamped(amount: int) -> int:
    """Return an amount within 0..`MAX_AMOUNT`."""
    return max(0, min(amount, MAX_AMOUNT))


def at_most_max(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return amounts of resources, each at most `MAX_AMOUNT`; a pod may request more than an array can hold."""
    return {name: min(amount, MAX_AMOUNT) for name, amount in amounts.items()}
