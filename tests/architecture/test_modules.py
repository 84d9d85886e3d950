"""The size of folders and modules, and import cycles: what the import contracts of pyproject.toml do not check.

Imports count wherever they stand, also below `if TYPE_CHECKING` and in functions.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path.parent for path in [*ROOT.glob("libs/*/src/*/__init__.py"), *ROOT.glob("services/*/src/*/__init__.py")]
)
MODULES_PER_FOLDER = 20
LINES_PER_MODULE = 400


def modules_of(source: Path) -> dict[str, Path]:
    """Return the file of each module of a package by its dotted name."""
    found: dict[str, Path] = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        if "vendor" not in parts:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_by(path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules of the same package that a file imports, each as often as it is imported."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                if inner in modules:
                    yield inner
                elif node.module in modules:
                    yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in modules)


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(sorted(members))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_folder_has_more_modules_than_fit_on_a_screen(source: Path) -> None:
    counts: dict[str, int] = {}
    for path in modules_of(source).values():
        if path.name != "__init__.py":
            folder = str(path.parent.relative_to(ROOT))
            counts[folder] = counts.get(folder, 0) + 1
    assert {folder: count for folder, count in counts.items() if count > MODULES_PER_FOLDER} == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_module_is_longer_than_one_idea_needs(source: Path) -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules_of(source).items()}
    assert {name: length for name, length in lengths.items() if length > LINES_PER_MODULE} == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_modules_import_each_other_in_a_circle(source: Path) -> None:
    modules = modules_of(source)
    graph = {name: set(imported_by(path, modules)) - {name} for name, path in modules.items()}
    assert cycles(graph) == []


def test_cycle_is_found_whatever_leads_to_it() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"d", "b"}, "d": {"e"}, "e": set[str](), "f": {"a"}}
    assert cycles(graph) == [["b", "c"]]
