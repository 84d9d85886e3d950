"""`koord man`: write a man page for each command, from the declarations that `--help` and completion show too."""

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer

from koordctl.render.output import write_line
from koordctl.sketches import CommandSketch, ParameterSketch, first_paragraph, read_sketches

_ABOUT: Final = "run, query and replay QoS-aware colocation"
_STATUSES: Final = (
    ("0", "done"),
    ("1", "refused, failed, different or not found, including a position beyond the end of the log"),
    ("2", "wrong usage, or a file that cannot be read"),
    ("3", "the stream of facts is gone (koord up, koord bus bootstrap)"),
    ("130", "interrupted"),
)


def man(
    folder: Annotated[Path, typer.Argument(help="Folder such as ~/.local/share/man/man1; it is created.")],
) -> None:
    """Write the man pages of all commands.

    Afterwards, `man koord` and `man koord-get` show them if MANPATH or its default has the folder above.

    Examples:

      koord man ~/.local/share/man/man1
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages = manual_pages(read_sketches(), version("koordctl"))
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_line(f"{len(pages)} man pages in {folder}")


def manual_pages(sketches: Mapping[str, CommandSketch], release: str) -> dict[str, str]:
    """File name -> man page in the macros of man(7), for `koord` and each command, also in groups."""
    root: CommandSketch = {"help": "", "usage": ["[OPTIONS]", "COMMAND", "[ARGS]..."], "parameters": [], "commands": {}}
    root["commands"] = {**sketches}
    return {f"{'-'.join(words)}.1": _page(words, found, release) for words, found in _commands(("koord",), root)}


def _commands(words: tuple[str, ...], found: CommandSketch) -> Iterator[tuple[tuple[str, ...], CommandSketch]]:
    yield words, found
    for name, child in found["commands"].items():
        yield from _commands((*words, name), child)


def _page(words: tuple[str, ...], found: CommandSketch, release: str) -> str:
    name, command = "-".join(words), " ".join(words)
    text, _, examples = found["help"].partition("Examples:")
    summary = first_paragraph(text) or _ABOUT
    lines = [
        f'.TH "{name.upper()}" "1" "" "koord {release}" "koord"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(summary.removesuffix('.'))}",
        ".SH SYNOPSIS",
        f".B {_plain(command)}",
        _plain(" ".join(found["usage"])),
    ]
    if rest := text.partition("\n\n")[2].strip():
        lines += [".SH DESCRIPTION", *_paragraphs(rest)]
    lines += _list("ARGUMENTS", (each for each in found["parameters"] if len(each["names"]) == 1))
    lines += _list("OPTIONS", (each for each in found["parameters"] if len(each["names"]) > 1))
    if found["commands"]:
        lines.append(".SH COMMANDS")
        for child, below in found["commands"].items():
            lines += _entry(f"{name}-{child}(1)", first_paragraph(below["help"]))
    if examples.strip():
        lines += [".SH EXAMPLES", ".nf", *(_plain(line.strip()) for line in examples.splitlines() if line.strip())]
        lines.append(".fi")
    lines.append(".SH EXIT STATUS")
    for status, meaning in _STATUSES:
        lines += _entry(status, meaning)
    above = "-".join(words[:-1])
    return "\n".join([*lines, *([".SH SEE ALSO", f"{_plain(above)}(1)"] if above else [])]) + "\n"


def _list(title: str, parameters: Iterator[ParameterSketch]) -> list[str]:
    shown = [each["shown"] for each in parameters if each["shown"]]
    return [f".SH {title}", *(line for names, text in shown for line in _entry(names, text))] if shown else []


def _entry(term: str, text: str) -> list[str]:
    return [".TP", f".B {_plain(term)}", _plain(" ".join(text.split()))]


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield ".PP"
        yield _plain(" ".join(paragraph.split()))


def _plain(text: str) -> str:
    """The text without meaning for roff: no escapes, and no request at its begin."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
