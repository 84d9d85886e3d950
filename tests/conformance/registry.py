"""Which function answers which kind of vector.

An adapter translates the names of a case's input into a call of the public code and the answer back into the names of
`expect`; it computes nothing. Modules in `adapters/` register themselves here by decorating such functions;
`test_vectors.py` runs them, `comparison.py` judges. An `InvalidInput` or `DecodeError` that leaves an adapter is
the outcome `{"error": true}`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Vectors are JSON of many shapes: Any is the honest type on this edge.
Json = Any
AdapterFunction = Callable[[dict[str, Json]], dict[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the answers of one kind are compared; names are keys at any depth of `expect`.

    resource_lists  maps name -> quantity, by value in both directions: an absent resource is zero
    exact_text      texts (or lists of texts) that must be equal to the letter; other texts may also agree as
                    quantities or durations
    whole           objects that must have no further non-empty keys than expected
    sets            lists whose order means nothing
    sublists        lists of which only the expected items must exist, in this relative order
    mentions        lists of texts that must be parts of the answered text
    """

    resource_lists: frozenset[str] = frozenset()
    exact_text: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()
    sublists: frozenset[str] = frozenset()
    mentions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One kind's function and its comparison rules."""

    function: AdapterFunction
    rules: Rules


@dataclass(slots=True)
class Registry:
    """Everything that the adapter modules have registered."""

    adapters: dict[str, Adapter] = field(default_factory=dict[str, Adapter])
    disputed: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])


REGISTRY = Registry()


def adapter(
    kind: str,
    *,
    resource_lists: tuple[str, ...] = (),
    exact_text: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
    sets: tuple[str, ...] = (),
    sublists: tuple[str, ...] = (),
    mentions: tuple[str, ...] = (),
) -> Callable[[AdapterFunction], AdapterFunction]:
    """Register the decorated function for `kind` ("protocol.quantity"); the keyword arguments are `Rules`."""

    def register(function: AdapterFunction) -> AdapterFunction:
        known = REGISTRY.adapters.get(kind)
        if known is not None and known.function.__module__ != function.__module__:
            raise ValueError(f"two adapters for {kind}: {known.function.__module__} and {function.__module__}")
        rules = Rules(
            resource_lists=frozenset(resource_lists),
            exact_text=frozenset(exact_text),
            whole=frozenset(whole),
            sets=frozenset(sets),
            sublists=frozenset(sublists),
            mentions=frozenset(mentions),
        )
        REGISTRY.adapters[kind] = Adapter(function=function, rules=rules)
        return function

    return register


def disputed(kind: str, case: str, derivation: str) -> None:
    """Mark a case as wrong: a strict xfail whose reason derives the right answer from the specification."""
    REGISTRY.disputed[kind, case] = derivation


def load_adapters() -> dict[str, Exception | None]:
    """Import every module of `adapters/<area>/`; the value is the reason why one could not be imported, or None."""
    folder = Path(__file__).parent / "adapters"
    outcome: dict[str, Exception | None] = {}
    for path in sorted(folder.glob("*/*.py")):
        module = f"{path.parent.name}.{path.stem}"
        try:
            importlib.import_module(f"conformance.adapters.{module}")
        except Exception as error:  # noqa: BLE001 - whatever a broken adapter module raises becomes that module's own failing test
            outcome[module] = error
        else:
            outcome[module] = None
    return outcome
