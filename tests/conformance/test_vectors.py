"""One test for every case of every vector file; see `registry.py` for how a kind gets its function."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.comparison import differences_of_case
from conformance.registry import REGISTRY, Json, load_adapters
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

OWN_VECTORS = Path(__file__).parent / "vectors"
MODULES = load_adapters()


def vector_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Kind ("protocol.quantity") and file, for a folder of areas or the folder of one area."""
    nested = sorted(folder.glob("*/*.json"))
    for path in nested or sorted(folder.glob("*.json")):
        yield f"{path.parent.name}.{path.stem}", path


def cases(folder: Path) -> Iterator[object]:
    """One parameter set per case, or a single xfail for a kind that nothing answers yet."""
    for name, path in vector_files(folder):
        document = json.loads(path.read_text(encoding="utf-8"))
        kind = str(document.get("kind", name))
        if kind not in REGISTRY.adapters:
            marks = pytest.mark.xfail(reason=f"no adapter for kind {kind}", run=False)
            yield pytest.param(kind, {}, id=kind, marks=marks)
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
