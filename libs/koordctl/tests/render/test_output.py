"""Tables for people: what is in a cell is shown as it is."""

from io import StringIO

import pytest
from koordctl.render import output
from koordctl.render.output import show_table
from rich.console import Console


def test_brackets_in_a_cell_are_no_markup_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    monkeypatch.setattr(output, "console", Console(file=screen, force_terminal=True, color_system=None, width=100))
    show_table(["field", "message"], [["data[colocation-config]", "closes what was not open [/bold]"]])
    assert screen.getvalue().splitlines()[1] == "data[colocation-config]  closes what was not open [/bold]"
