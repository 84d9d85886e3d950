"""Output of commands: tables for people, YAML and JSON for programs. Colours are used on a terminal only.

Everything that commands print goes through this module. Texts of objects and of the log may contain orders to a
terminal, so control characters are shown as escapes (`koordcore.values.visible`).
"""

import json
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from typing import Annotated, Any, Final, NoReturn, cast

import typer
from koordcore.values.visible import visible, visible_json, visible_line

from koordctl.render.console import Console, Line, style_of

console = Console()
errors = Console(stderr=True)
WholeOption = Annotated[
    bool, typer.Option("--whole", help="Begin at the first fact, not at a snapshot of the archive (KOORD_ARCHIVE).")
]
_NOT_DONE: Final = ("refused", "failed", "not-found")


class Format(StrEnum):
    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="table (for people), json or yaml.")]


def start_text(position: int, otherwise: str = "from the first fact") -> str:
    """Where a fold began: `position` of its snapshot, or, for 0, the text for a fold without a snapshot."""
    return f"from the snapshot at {position:,}" if position else otherwise


def show_start(position: int) -> None:
    """Print the position of the snapshot from which a re-run started. No-op for 0: it started at the first fact."""
    if position:
        console.print(f"started {start_text(position)}")


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "nothing found",
    headers: bool = True,
) -> None:
    """Print a table in the style of kubectl: upper-case headers, no lines. If piped, print it plain and unwrapped.

    Args:
        rows: Cells of each row, one per column. None is printed as `-`, a float with one decimal place.
        empty: Sentence for stderr if there are no rows. Then no headers are printed.
        headers: Whether the first line names the columns.
    """
    lines = [[_text(cell) for cell in row] for row in rows]
    if not lines:
        errors.print(empty)
        return
    if not console.is_terminal:
        shown = [[column.upper() for column in columns], *lines] if headers else lines
        widths = [max(len(line[index]) for line in shown) for index in range(len(columns))]
        for line in shown:
            write_line("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    console.print_table(columns, lines, headers=headers)


def show_rows(columns: Sequence[str], rows: Iterable[Sequence[object]], least: Sequence[int]) -> None:
    """Print further rows below a table, each column at least so wide."""
    for row in rows:
        cells = [_text(cell).ljust(width) for cell, width in zip(row, least, strict=True)]
        between = "  " if console.is_terminal else "   "
        parts = [
            Line((between if number else "") + cell, style_of(column, cell.strip()))
            for number, (column, cell) in enumerate(zip(columns, cells, strict=True))
        ]
        console.print(*parts, soft_wrap=True)


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.1f}"
    return visible_line(str(cell))


def write_line(text: str) -> None:
    """Print a line on stdout as it is, without wrapping."""
    sys.stdout.write(visible(text) + "\n")


def write_text(text: str) -> None:
    """Print a text on stdout as it is, without a line break at its end."""
    sys.stdout.write(visible(text))


def flush() -> None:
    sys.stdout.flush()


def print_lines(lines: Iterable[Line]) -> None:
    """On a terminal, the further lines of a long one are indented more than its first. If piped, unwrapped."""
    for text, style in lines:
        indent = " " * (len(text) - len(text.lstrip(" ")))
        console.print_below([Line(text[len(indent) :], style)], indent, f"{indent}  ")


def show_story(document: object, lines: Iterable[Line], form: Format) -> None:
    """Print a story: its document as YAML or JSON, or its lines for people."""
    if form is Format.TABLE:
        print_lines(lines)
    else:
        show_document(document, form)


def show_document(value: object, form: Format) -> None:
    if form is Format.JSON:
        sys.stdout.write(visible_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")
    else:
        from koordcore.values.yaml_text import dump_yaml

        sys.stdout.write(dump_yaml(value))


def write_json_line(value: object) -> None:
    """Print a JSON document on one line."""
    sys.stdout.write(visible_json(json.dumps(value, ensure_ascii=False)) + "\n")


@contextmanager
def progress(what: str, total: int, *, counted: bool = False) -> Generator[Callable[[int], None]]:
    """Show a progress bar on stderr inside the block, and yield the function that sets it. Nothing without a terminal.

    Args:
        counted: Whether the numbers are shown, instead of a percentage.
    """
    if not errors.is_terminal:
        yield lambda _: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    from koordctl.render.rich_console import rich_errors

    number = MofNCompleteColumn() if counted else TaskProgressColumn()
    columns = (TextColumn(what), BarColumn(), number, TimeRemainingColumn())
    with Progress(*columns, console=rich_errors(), transient=True) as bar:
        task = bar.add_task(what, total=max(total, 1))
        yield lambda position: bar.update(task, completed=position)


def working(what: str) -> AbstractContextManager[object]:
    """Show a spinner and `what` on stderr inside the context; nothing if stderr is not a terminal.

    Code inside the context must print nothing on stdout: the spinner would redirect it to stderr.
    """
    if not errors.is_terminal:
        return nullcontext()
    from rich.text import Text

    from koordctl.render.rich_console import rich_errors

    return rich_errors().status(Text(what))


def fail(message: str, *, status: int = 1) -> NoReturn:
    say_error(message)
    raise typer.Exit(status)


def say_error(message: str) -> None:
    """Without line breaks if stderr is not a terminal."""
    errors.print(f"error: {message}", style="red")


def say_warning(message: str) -> None:
    errors.print(f"warning: {message}", style="yellow")


@contextmanager
def going_on(sentence: str) -> Generator[None]:
    """If the user interrupts what is inside, say what goes on without this command."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(sentence)
        raise


def field(item: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """The value at a path such as `a.b.c` in nested mappings, or `default` if a part of the path is missing."""
    value: Any = item
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return default
        value = cast("Mapping[str, Any]", value)[name]
    return value


def is_refused(result: Mapping[str, Any]) -> bool:
    """Whether a document was not applied or deleted: the manager refused it, it failed, or was not found."""
    return result["action"] in _NOT_DONE


def show_remarks(result: Mapping[str, Any], mark: str = "") -> str:
    """Print the warnings of one result and, if it was refused, every reason with field, rule and value.

    Args:
        mark: Text after the action, for example " (dry run)".

    Returns:
        The document's name for people, such as "pod/web in default".
    """
    where = f"{result.get('kind', '').lower() or 'document'}/{result.get('name', '?')}"
    if result.get("namespace"):
        where += f" in {result['namespace']}"
    for warning in result.get("warnings", []):
        say_warning(f"{where}: {warning}")
    if not is_refused(result):
        return where
    errors.print(f"{where} {result['action'].replace('-', ' ')}{mark}", style="red")
    from koord_manager.domain.documents.admitting import WITHIN_RULE

    for error in result.get("errors", []):
        if error["rule"].startswith(WITHIN_RULE):
            sentence = f"  {error['value']} ({error['rule'].removeprefix(WITHIN_RULE)})"
            errors.print(sentence)
            continue
        place = f"{error['field']}: " if error["field"] else ""
        value = f", got {error['value']}" if error["value"] else ""
        rule = error["rule"] if not error["field"] else f"must be {error['rule']}"
        errors.print(f"  {place}{rule}{value}")
    return where
