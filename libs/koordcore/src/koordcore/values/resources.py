"""Resource lists: name -> amount, with the arithmetic that the protocol defines.

Two forms. *Exact* lists (`ResourceList`, quantities) are for what is written back to a user. *Amounts* (`Amounts`,
integers: milli-cores for `cpu`, whole units for everything else) are for computing. An absent resource equals zero in
both.
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
    """Return a resource list from decoded JSON; null is the empty list, a null entry the zero quantity.

    Raises:
        InvalidInput: Naming the resource, when `raw` is no object or one entry is no quantity.

    Source:
        protocol spec, 1.1
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
    """Return the list with canonical texts, sorted by name."""
    return {name: resources[name].canonical() for name in sorted(resources)}


def parse_amounts(raw: Mapping[str, str | int | float]) -> Amounts:
    """Return integers of a resource list: milli-cores for `cpu`, whole units (rounded up) for every other name.

    Raises:
        InvalidInput: Naming the resource.

    Source:
        scheduler-core spec, conventions
    """
    amounts: Amounts = {}
    for name, value in raw.items():
        try:
            amounts[name] = parse_milli(value) if name == CPU else parse_value(value)
        except InvalidInput as error:
            raise error.at(name) from error
    return amounts


def amount_of(name: str, quantity: Quantity) -> int:
    """Return the integer that stands for `quantity` of resource `name`.

    Milli-cores for `cpu`, whole units otherwise.
    """
    return quantity.milli() if name == CPU else quantity.value()


def quantity_of(name: str, amount: int) -> Quantity:
    """Return the inverse of `amount_of`."""
    return of_milli(amount) if name == CPU else of_value(amount)


def add(*lists: Mapping[str, Quantity]) -> ResourceList:
    """Return the sum, resource by resource."""
    total: ResourceList = {}
    for resources in lists:
        for name, quantity in resources.items():
            total[name] = total[name] + quantity if name in total else quantity
    return total


def subtract(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> ResourceList:
    """Return `a - b` over the names of both; amounts may be negative."""
    return {name: a.get(name, ZERO) - b.get(name, ZERO) for name in _names(a, b)}


def maximum(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> ResourceList:
    """Return the larger of the two, resource by resource, over the names of both.

    A resource that one lacks is the other's.
    """
    return {
        name: max(a[name], b[name]) if name in a and name in b else a.get(name, b.get(name, ZERO))
        for name in _names(a, b)
    }


def is_equal(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> bool:
    """Return whether both lists are equal by value; an absent resource is zero.

    Source:
        protocol spec, 1.1
    """
    return all(a.get(name, ZERO) == b.get(name, ZERO) for name in _names(a, b))


def is_within(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> bool:
    """Return whether every resource of `a` is at most that of `b`; an absent resource is zero."""
    return all(a.get(name, ZERO) <= b.get(name, ZERO) for name in _names(a, b))


def is_zero(resources: Mapping[str, Quantity]) -> bool:
    """Return whether every amount is zero."""
    return not any(resources.values())


def _names(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> Iterable[str]:
    return a.keys() if a.keys() == b.keys() else [*a, *(name for name in b if name not in a)]
