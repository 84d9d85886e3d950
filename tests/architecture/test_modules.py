"""The size of modules, and import cycles: what the import contracts of pyproject.toml do not check.

Imports count wherever they stand, also below `if TYPE_CHECKING` and in functions.
"""

import ast
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

import pytest
from support.sources import PACKAGES, Source, code_lines, sources_of

CODE_LINES_PER_MODULE = 300

pytestmark = pytest.mark.xdist_group("sources")


def imported_by(source: Source, modules: Container[str]) -> Iterator[str]:
    """Yield the modules of the same package that a module imports, each as often as it is imported."""
    for node in source.nodes:
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


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_module_has_more_code_than_one_idea_needs(package: Path) -> None:
    sizes = {name: code_lines(source) for name, source in sources_of(package).items()}
    assert {name: size for name, size in sizes.items() if size > CODE_LINES_PER_MODULE} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_modules_import_each_other_in_a_circle(package: Path) -> None:
    sources = sources_of(package)
    graph = {name: set(imported_by(source, sources)) - {name} for name, source in sources.items()}
    assert cycles(graph) == []


def test_cycle_is_found_whatever_leads_to_it() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"d", "b"}, "d": {"e"}, "e": set[str](), "f": {"a"}}
    assert cycles(graph) == [["b", "c"]]


def test_texts_imports_comments_and_blank_lines_are_not_code() -> None:
    texts = ['"""Module.', "", 'More."""', "from a import (", "    b,", ")", "", "# why", "c = 1  # code"]
    text = "\n".join([*texts, "def d():", '    """Text."""', "    return b"])
    tree = ast.parse(text)
    assert code_lines(Source(text, tree, tuple(ast.walk(tree)))) == 3
