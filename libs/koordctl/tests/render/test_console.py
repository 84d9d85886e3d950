"""Lines, tables and trees as a terminal and a pipe show them."""

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordctl.render.console import Console, Line, cells, fitting, style_of
from koordctl.render.rich_console import SafeConsole
from rich.table import Table


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def on_terminal(width: int = 100) -> tuple[Screen, Console]:
    screen = Screen()
    return screen, Console(file=screen, width=width)


def test_styles_are_for_terminals() -> None:
    screen, console = on_terminal()
    console.print(Line("held", "green"), " rule")
    console.print("gone", style="bold red")
    assert screen.getvalue() == "\x1b[32mheld\x1b[0m rule\n\x1b[1;31mgone\x1b[0m\n"
    pipe = StringIO()
    Console(file=pipe).print(Line("held", "green"), " rule", style="red")
    assert pipe.getvalue() == "held rule\n"


def test_no_color_keeps_bold_and_drops_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen, console = on_terminal()
    console.print("gone", style="bold red")
    console.print("gone", style="red")
    assert screen.getvalue() == "\x1b[1mgone\x1b[0m\ngone\n"


TABLE = (
    ["name", "status", "age"],
    [["a", "NotReady,SchedulingDisabled", "5m"], ["b", "Running", "5m"], ["c", "x", ""]],
)


def test_statuses_have_the_colour_of_their_worst_word() -> None:
    screen, console = on_terminal()
    console.print_table(*TABLE)
    assert screen.getvalue().splitlines() == [
        "\x1b[1mNAME  STATUS                       AGE\x1b[0m",
        "a     \x1b[31mNotReady,SchedulingDisabled\x1b[0m  5m",
        "b     \x1b[32mRunning\x1b[0m                      5m",
        "c     x",
    ]
    screen, console = on_terminal()
    console.print_table(*TABLE, headers=False)
    assert screen.getvalue().count("\n") == 3
    assert [style_of("status", each) for each in ("Pending", "Init:0/1", "Ready,NoReport", "Init:Error", "Ready")] == [
        "yellow", "yellow", "yellow", "red", "green"
    ]  # fmt: skip
    assert style_of("name", "Error") == style_of("status", "of Error") == ""


def test_statuses_have_no_colour_if_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen, console = on_terminal()
    console.print_table(*TABLE)
    assert "\x1b[3" not in screen.getvalue()


def test_a_terminal_without_styles_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen, console = on_terminal()
    console.print("gone", style="bold red")
    assert screen.getvalue() == "gone\n"


@pytest.mark.parametrize(("name", "value", "is_terminal"), [("FORCE_COLOR", "1", True), ("TTY_COMPATIBLE", "1", True)])
def test_variables_make_a_pipe_a_terminal(
    name: str, value: str, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert Console(file=StringIO()).is_terminal is is_terminal


@pytest.mark.parametrize(("name", "value"), [("FORCE_COLOR", ""), ("TTY_COMPATIBLE", "0")])
def test_variables_make_a_terminal_a_pipe(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert not Console(file=Screen()).is_terminal


WORDS = st.text("ab 漢é", max_size=60)


@given(WORDS, st.integers(2, 30))
def test_lines_are_wrapped_as_rich_wraps_them(text: str, width: int) -> None:
    ours, console = on_terminal(width)
    console.print(text)
    theirs = Screen()
    SafeConsole(file=theirs, width=width, color_system=None).print(text)
    # Blanks at the end of a line are not seen.
    assert [line.rstrip() for line in ours.getvalue().split("\n")] == [
        line.rstrip() for line in theirs.getvalue().split("\n")
    ]


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4), st.integers(20, 200))
def test_a_table_that_fits_looks_as_rich_draws_it(rows: list[tuple[str, str, str]], width: int) -> None:
    screen, console = on_terminal(200)
    console.print_table(["name", "node", "what"], rows)
    table = Table(box=None, pad_edge=False)
    for column in ("NAME", "NODE", "WHAT"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    theirs = Screen()
    SafeConsole(file=theirs, width=200, color_system=None).print(table)
    shown = [line.rstrip() for line in theirs.getvalue().splitlines()]
    ours = [line.removeprefix("\x1b[1m").removesuffix("\x1b[0m").rstrip() for line in screen.getvalue().splitlines()]
    assert ours == shown
    narrow, console = on_terminal(width)
    console.print_table(["name", "node", "what"], rows)
    bare = narrow.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(map(cells, bare.splitlines())) <= width


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(6, 120))
def test_columns_share_the_width_and_only_wide_ones_become_narrower(widest: list[int], width: int) -> None:
    widths = fitting(widest, width)
    assert sum(widths) <= max(width, len(widest))
    assert all(1 <= given <= wanted for given, wanted in zip(widths, widest, strict=True))
    if sum(widest) <= width:
        assert widths == widest
    else:
        assert sum(widths) == width
        narrower = [given for given, wanted in zip(widths, widest, strict=True) if given < wanted]
        assert max(widths) - min(narrower) <= 1


def test_an_entry_of_a_tree_is_wrapped_beside_its_branch() -> None:
    screen, console = on_terminal(12)
    console.print_below([Line("root", "green"), Line(" used cpu 4")], "├── ", "│   ")
    assert screen.getvalue() == "├── \x1b[32mroot\x1b[0m\n│   used cpu\n│   4\n"
    pipe = StringIO()
    Console(file=pipe).print_below([Line("root", "green"), Line(" used cpu 4")], "├── ", "│   ")
    assert pipe.getvalue() == "├── root used cpu 4\n"
