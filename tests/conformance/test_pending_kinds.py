"""The list of pending kinds is exact, whichever folder of vectors is run."""

from __future__ import annotations

import pytest
from conformance.pending_kinds import PATH, complaints, pending_kinds
from conformance.registry import REGISTRY, load_adapters
from conformance.vector_files import OWN_VECTORS, vector_files

load_adapters()


def test_every_kind_is_answered_by_an_adapter_or_listed_as_pending() -> None:
    kinds = {kind for kind, _ in vector_files(OWN_VECTORS)}
    assert complaints(kinds, REGISTRY.adapters, pending_kinds()) == [], f"{PATH.name} is not exact"


@pytest.mark.parametrize(
    ("kinds", "answered", "pending", "expected"),
    [
        ({"a.x"}, {"a.x"}, {}, []),
        ({"a.x"}, set[str](), {"a.x": "Later"}, []),
        ({"a.x"}, set[str](), {}, ["a.x has no adapter: list it below the issue that brings it"]),
        ({"a.x"}, {"a.x"}, {"a.x": "Later"}, ["a.x has an adapter: remove it from 'Later'"]),
        (set[str](), set[str](), {"a.x": "Later"}, ["a.x has no vector file: remove it from 'Later'"]),
    ],
)
def test_list_that_is_not_exact_is_reported_with_what_to_do(
    kinds: set[str], answered: set[str], pending: dict[str, str], expected: list[str]
) -> None:
    assert complaints(kinds, answered, pending) == expected
