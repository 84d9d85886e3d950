"""One test for every case of every vector file; see `registry.py` for how a kind gets its function."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.comparison import differences_of_case
from conformance.pending_kinds import pending_kinds
from conformance.registry import REGISTRY, Json, load_adapters
from conformance.vector_files import OWN_VECTORS, vector_files
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

MODULES = load_adapters()


def cases(folder: Path) -> Iterator[object]:
    """Yield one parameter set for each case, or a single xfail for a kind that no adapter answers."""
    pending = pending_kinds()
    for kind, document in vector_files(folder):
        if kind not in REGISTRY.adapters:
            reason = f"no adapter for kind {kind}" + (f" until {pending[kind]!r}" if kind in pending else "")
            yield pytest.param(kind, {}, id=kind, marks=pytest.mark.xfail(reason=reason, run=False))
            continue
        for case in document["cases"]:
            reason = REGISTRY.disputed.get((kind, case["name"]))
            marks = pytest.mark.xfail(reason=reason, strict=True) if reason else ()
            yield pytest.param(kind, case, id=f"{kind}: {case['name']}", marks=marks)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--vectors", default=None)
        folder = Path(chosen) if chosen else OWN_VECTORS
        found = list(cases(folder))
        if not found:
            raise pytest.UsageError(f"--vectors {folder}: no <area>/<kind>.json below it")
        metafunc.parametrize(("kind", "case"), found)
    if "module" in metafunc.fixturenames:
        metafunc.parametrize("module", sorted(MODULES))


def test_adapter_module_can_be_imported(module: str) -> None:
    error = MODULES[module]
    if error is not None:
        raise error


def test_vector(kind: str, case: dict[str, Json]) -> None:
    answer = REGISTRY.adapters[kind]
    try:
        actual = answer.function(copy.deepcopy(case["input"]))
    except (InvalidInput, codec.DecodeError) as error:
        actual = {"error": True, "refused": str(error)}
    found = differences_of_case(case["expect"], actual, answer.rules)
    assert not found, (found, actual)
