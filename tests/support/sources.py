"""The Python modules of the product, each read and parsed once per process."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = sorted(
    path.parent for path in [*ROOT.glob("libs/*/src/*/__init__.py"), *ROOT.glob("services/*/src/*/__init__.py")]
)


@dataclass(frozen=True)
class Source:
    """A module; `nodes` are those of its whole tree."""

    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]


@cache
def sources_of(package: Path) -> Mapping[str, Source]:
    """The modules of a package by their dotted names, without those of others that lie in a folder `vendor`."""
    found: dict[str, Source] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if "vendor" not in parts:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Source(text, tree, tuple(ast.walk(tree)))
    return found


def all_sources() -> list[Source]:
    return [source for package in PACKAGES for source in sources_of(package).values()]


def code_lines(source: Source) -> int:
    """The lines that are code: no docstring, import, comment, and not blank."""
    others: set[int] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            others.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str())) as docstring:
                    others.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
                case _:
                    pass
    lines = enumerate(map(str.strip, source.text.splitlines()), 1)
    return sum(number not in others and line != "" and not line.startswith("#") for number, line in lines)
