"""The depth of tests that try many inputs: few in `make test`, all in `make test-all`, hardly any in `make check`.

The variable KOORD_FUZZ decides: `deep`, `quick`, or nothing. `pytest --suite deep` sets it.

    @settings(max_examples=examples(150))                a property
    for number in range(repeats(20_000)): ...            a loop over random inputs; the test has the marker `fuzz`
    @pytest.mark.parametrize("seed", seeds(8))           one test per seed; the later ones have the marker `deep`
    @pytest.mark.parametrize("kind", first_of(KINDS))    one test per kind; all but the first have the marker `deep`
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest


def depth() -> str:
    return os.environ.get("KOORD_FUZZ", "")


def examples(deep: int) -> int:
    """The examples of a property, of which a run with all of them has `deep`."""
    match depth():
        case "deep":
            return deep
        case "quick":
            return min(deep, 5)
        case _:
            return min(deep, 25)


def repeats(deep: int, few: int | None = None) -> int:
    """The rounds of a loop over random inputs, which `make check` leaves out, or a count that outcomes must reach.

    `few`: for `make test`; None for a tenth. Rare outcomes of few rounds need some room.
    """
    return deep if depth() == "deep" else max(1, deep // 10 if few is None else few)


def seeds(deep: int, *, few: int = 2) -> list[Any]:
    """The seeds from 0 on, of which `make test` runs the first `few`."""
    return first_of(range(deep), few)


def first_of(cases: Iterable[object], few: int = 1) -> list[Any]:
    """All cases for `parametrize`, of which `make test` runs the first `few`."""
    return [case if number < few else pytest.param(case, marks=pytest.mark.deep) for number, case in enumerate(cases)]
