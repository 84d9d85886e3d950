"""A tree of commands that imports a command only when it is called.

`koord get` therefore does not wait for the imports of `koord demo`. `app` lists the commands with the text that `koord
--help` shows, so the help imports no command either.
"""

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


class Entry(NamedTuple):
    name: str  # Name on the command line
    panel: str  # Panel of the help that lists it; "": the one without a name
    summary: str  # First paragraph of its help
    module: str  # Module with the command
    attribute: str = "app"  # Attribute of the module: the command's function, or the group's `typer.Typer`


class _Commands(MutableMapping[str, Any]):
    """Names -> commands. Each is built on its first use."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _build(self._entries[name])
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
    holder = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=entry.name, rich_help_panel=entry.panel or None)
    else:
        holder.command(entry.name, rich_help_panel=entry.panel or None)(found)
    return get_group(holder).commands[entry.name]


def lazy_group(entries: tuple[Entry, ...]) -> type[TyperGroup]:
    """Return the class of a command group that imports a command of `entries` only when it is called.

    Use it as `typer.Typer(cls=...)`.
    """

    class LazyGroup(TyperGroup):
        """A group whose help needs only the names and summaries of its commands."""

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.commands = _Commands(entries)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

        def format_help(self, ctx: Any, formatter: Any) -> None:
            shown: dict[str, Any] = {
                entry.name: TyperCommand(entry.name, help=entry.summary, rich_help_panel=entry.panel or None)
                for entry in entries
            }
            listing = TyperGroup(
                name=self.name,
                commands=shown,
                params=self.params,
                help=self.help,
                epilog=self.epilog,
                rich_markup_mode=self.rich_markup_mode,
            )
            listing.format_help(ctx, formatter)

    return LazyGroup
