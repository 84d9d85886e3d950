"""Other words for sub-commands that are kinds: `koord explain pods web`, `koord top no`, `koord trace pod/web`."""

from collections.abc import Container
from typing import Any, Final

from typer.core import TyperGroup

WORDS: Final = {
    "pods": "pod",
    "po": "pod",
    "nodes": "node",
    "no": "node",
    "reservations": "reservation",
    "resv": "reservation",
    "podmigrationjob": "migration",
    "podmigrationjobs": "migration",
    "migrations": "migration",
    "gpus": "gpu",
}
"""Word -> sub-command."""


def understood(words: list[str], commands: Container[str]) -> list[str]:
    """The words after a group, with the name of a sub-command in the place of another word for it.

    `pod/web` becomes `pod web`. Other words stay.
    """
    if not words or words[0] in commands:
        return words
    kind, slash, name = words[0].partition("/")
    command = WORDS.get(kind.lower(), kind)
    if command not in commands:
        return words
    return [command, name, *words[1:]] if slash else [command, *words[1:]]


class KindGroup(TyperGroup):
    """A group of commands for kinds."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        return super().resolve_command(ctx, understood(args, self.commands))
