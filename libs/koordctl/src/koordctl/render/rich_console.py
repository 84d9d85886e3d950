"""Consoles of the library rich, for progress bars and live views. Commands that only read do not import this module."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from koordcore.values.override import override
from koordcore.values.visible import visible
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text


class SafeConsole(Console):
    """A console for texts that others wrote: without markup, and with visible control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    @override
    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)

    @override
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def rich_errors() -> SafeConsole:
    """Standard error."""
    return SafeConsole(stderr=True, soft_wrap=True)


def show_live(columns: Sequence[str], rows: Callable[[], Sequence[Sequence[object]]], *, seconds: float) -> NoReturn:
    """Show a table until the user interrupts it. It is drawn again after every `seconds`."""
    console = SafeConsole(soft_wrap=not sys.stdout.isatty())

    def table() -> Table:
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            drawn.add_column(column.upper(), overflow="fold")
        for row in rows()[: max(console.height - 2, 1)]:
            drawn.add_row(*("-" if cell is None else str(cell) for cell in row))
        return drawn

    with Live(table(), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            time.sleep(seconds)
            live.update(table(), refresh=True)
