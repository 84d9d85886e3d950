"""Amounts of resources as text for users."""

from collections.abc import Mapping
from typing import Final

from koordcore.protocol.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY
from koordcore.values.quantity import Notation, of_milli, of_value

_EMPTY: Final = "<empty>"


def quantity_text(resource: str, amount: int) -> str:
    """Return an amount as Kubernetes quantity: `1500m` for cpu (in milli-cores), `8Gi` for bytes, else decimal."""
    if resource == CPU:
        return of_milli(amount).canonical()
    is_bytes = resource == EPHEMERAL_STORAGE or resource.endswith(MEMORY) or resource.startswith("hugepages-")
    return of_value(amount, Notation.BINARY if is_bytes else Notation.DECIMAL).canonical()


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return resource -> amount as Kubernetes quantity (`quantity_text`), sorted by resource."""
    return {name: quantity_text(name, amounts[name]) for name in sorted(amounts)}


def list_text(amounts: Mapping[str, int]) -> str:
    """Return amounts as in `cpu:4,memory:8Gi`, sorted by resource; `<empty>` if there are none.

    Source:
        scheduler-core spec, 10.5
    """
    return ",".join(f"{name}:{text}" for name, text in quantities(amounts).items()) or _EMPTY


def without_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts that are not zero, sorted by resource, so that equal sums are equal values."""
    return {name: amounts[name] for name in sorted(amounts) if amounts[name]}
