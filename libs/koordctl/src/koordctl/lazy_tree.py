"""A tree of commands that imports a command only when it is called.

`koord get` therefore does not wait for the imports of `koord demo`. `app` lists the commands with the text that `koord
--help` and the completion of a shell show, so they import no command either.

Help is plain text: a command must not wait for the import of rich, which takes longer than most commands run.
"""

from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from importlib import import_module
from itertools import groupby
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group

from koordctl import sketches
from koordctl.kind_words import understood
from koordctl.plain_values import read_plainly

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
"""Settings of the contexts of all commands."""


read_plainly()


class Entry(NamedTuple):
    name: str  # Name on the command line
    panel: str  # Panel of the help that lists it; "": the one without a name
    summary: str  # First paragraph of its help
    module: str  # Module with the command
    attribute: str = "app"  # Attribute of the module: the command's function, or the group's `typer.Typer`


class _Commands(MutableMapping[str, Any]):
    """Names -> commands. Each is built on its first use."""

    def __init__(self, entries: tuple[Entry, ...], *, is_root: bool) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._built: dict[str, Any] = {}
        self._is_root = is_root

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            entry = self._entries[name]
            known = sketches.read_sketches().get(name) if self._is_root and sketches.are_wanted() else None
            self._built[name] = (
                _build(entry) if known is None else sketches.sketched(name, known, partial(_build, entry))
            )
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._entries[name]
        self._built.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _build(entry: Entry) -> Any:
    found = getattr(import_module(entry.module), entry.attribute)
    holder = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=entry.name)
    else:
        holder.command(entry.name)(found)
    command = get_group(holder).commands[entry.name]
    _prepare(command)
    return command


def _prepare(command: Any) -> None:
    """Let a list of commands show the first paragraph of each as a whole."""
    command.short_help = sketches.first_paragraph(command.help)
    if not isinstance(commands := getattr(command, "commands", {}), _Commands):
        for each in commands.values():
            _prepare(each)


def lazy_group(
    entries: tuple[Entry, ...], *, translated: Callable[[Any, list[str]], list[str]] | None = None
) -> type[TyperGroup]:
    """Return the class of a command group that imports a command of `entries` only when it is called.

    Use it as `typer.Typer(cls=...)`.

    Args:
        translated: Of the root: the words that follow `koord`, with our words in the place of others.
    """
    is_root = translated is not None
    panels = list(dict.fromkeys(entry.panel for entry in entries))

    class LazyGroup(TyperGroup):
        """A group whose help needs only the names and summaries of its commands."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands = _Commands(entries, is_root=is_root)

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            if translated is not None:
                args = translated(ctx, args)
            return super().resolve_command(ctx, understood(args, self.commands))

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            width = max(len(entry.name) for entry in entries)
            for panel, listed in groupby(sorted(entries, key=lambda entry: panels.index(entry.panel)), _panel):
                with formatter.section(panel or "Commands"):
                    formatter.write_dl([(entry.name.ljust(width), entry.summary) for entry in listed])

        def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
            from typer._click.shell_completion import CompletionItem

            named = [entry for entry in entries if entry.name.startswith(incomplete)]
            return [
                *(CompletionItem(entry.name, help=entry.summary) for entry in named),
                *super(TyperGroup, self).shell_complete(ctx, incomplete),
            ]

    return LazyGroup


def _panel(entry: Entry) -> str:
    return entry.panel
