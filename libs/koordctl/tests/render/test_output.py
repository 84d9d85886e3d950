"""What others wrote is shown as it is: no markup, and no orders to the terminal."""

import ast
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import koordctl
import pytest
import typer
import yaml
from koordctl.render import output
from koordctl.render.console import Console, Line
from koordctl.render.output import (
    Format,
    fail,
    print_lines,
    show_document,
    show_remarks,
    show_table,
    write_json_line,
    write_line,
)
from koordctl.render.rich_console import SafeConsole
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

# Clears the screen, shows one address and opens another, overwrites the line, turns the direction of the text.
HOSTILE = "web\x1b[2J\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\\r\x08\x07\x9b31m\x7f\u202eexe\u2066"
ORDERS = set("\x1b\r\x08\x07\x9b\x7f\u202e\u2066")


class Screen(StringIO):
    """A stream that may be a terminal."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "dumb")


def shown_on(screen: Screen, monkeypatch: pytest.MonkeyPatch, *, width: int = 100) -> None:
    """Let commands print on a screen."""
    monkeypatch.setattr(output, "console", Console(file=screen, width=width))
    monkeypatch.setattr(output, "errors", Console(file=screen, width=width, stderr=True))


def test_brackets_in_a_cell_are_no_markup_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Screen()
    shown_on(shown, monkeypatch)
    show_table(["field", "message"], [["data[colocation-config]", "closes what was not open [/bold]"]])
    assert shown.getvalue().splitlines()[1] == "data[colocation-config]  closes what was not open [/bold]"


def table() -> None:
    show_table(["name", "node"], [[HOSTILE, "n-1"], ["b\nforged", None]])


def refused() -> None:
    error = {"field": HOSTILE, "rule": HOSTILE, "value": HOSTILE}
    item = {"action": "refused", "kind": HOSTILE, "name": HOSTILE, "namespace": HOSTILE, "warnings": [HOSTILE]}
    show_remarks({**item, "errors": [error, {**error, "rule": f"within rule {HOSTILE}"}]})


def failed() -> None:
    with pytest.raises(typer.Exit):
        fail(HOSTILE)


def rich_things() -> None:
    grid = Table(HOSTILE)
    grid.add_row(HOSTILE)
    tree = Tree(HOSTILE)
    tree.add(Text(HOSTILE, "red"))
    live = SafeConsole(file=output.console.file, color_system=None, width=100)
    for thing in (HOSTILE, grid, tree, Text(HOSTILE)):
        live.print(thing)


def entry_of_a_tree() -> None:
    output.console.print_below([Line(HOSTILE, "red"), Line(HOSTILE)], "├── ", "│   ")


WAYS: dict[str, Callable[[], None]] = {
    "table": table,
    "story": lambda: print_lines([Line(HOSTILE), Line(HOSTILE, "red")]),
    "parts": lambda: output.console.print(Line(HOSTILE, "green"), HOSTILE),
    "entry of a tree": entry_of_a_tree,
    "line": lambda: write_line(HOSTILE),
    "refused": refused,
    "failed": failed,
    "rich": rich_things,
    "json": lambda: show_document({HOSTILE: HOSTILE}, Format.JSON),
    "json line": lambda: write_json_line({HOSTILE: HOSTILE}),
}


@pytest.mark.parametrize("is_terminal", [False, True], ids=["piped", "terminal"])
@pytest.mark.parametrize("way", WAYS)
def test_texts_of_others_give_no_orders_to_the_terminal(
    way: str, is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Screen(is_terminal=is_terminal)
    shown_on(shown, monkeypatch)
    WAYS[way]()
    text = "".join(capsys.readouterr()) + shown.getvalue()
    assert not set(text) & ORDERS
    assert "web\\x1b[2J" in text.replace("\\u001b", "\\x1b")
    assert "\nforged" not in text


def test_programs_get_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    show_document({"name": HOSTILE}, Format.JSON)
    assert json.loads(capsys.readouterr().out) == {"name": HOSTILE}
    show_document({"name": HOSTILE}, Format.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == {"name": HOSTILE}


def test_a_text_of_others_is_no_markup() -> None:
    text = "[link=http://evil.example]web[/link] :smile:"
    for console in (Console, SafeConsole):
        shown = Screen()
        console(file=shown, width=100).print(text)
        assert shown.getvalue() == f"{text}\n"


def test_commands_print_through_this_module_only() -> None:
    """Other ways do not make control characters visible. `--version` and `help` print a text of our own."""
    found: list[str] = []
    root = Path(koordctl.__file__).parent
    for file in root.rglob("*.py"):
        if file.name in ("output.py", "rich_console.py", "app.py", "kubectl_words.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("print", "typer.echo", "sys.stdout.write", "sys.stderr.write", "Console"):
                    found.append(f"{file.relative_to(root)}:{node.lineno}: {called}")
    assert found == []
