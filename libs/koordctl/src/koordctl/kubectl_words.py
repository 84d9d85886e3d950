"""Commands of kubectl that have another name here, and hints for those that do not exist here."""

from typing import Any, Final, NoReturn

import typer

from koordctl.kind_words import understood

_HINTS: Final = {
    "logs": "logs of containers are those of `kubectl logs`; `koord explain pod NAME` shows the life of a pod",
    "exec": "commands in containers are those of `kubectl exec`",
    "edit": "to change an object: `koord get KIND NAME -o yaml`, then `koord apply -f FILE`",
    "create": "to create objects: `koord apply -f FILE`",
    "replace": "to change objects: `koord apply -f FILE`",
    "patch": "to change objects: `koord apply -f FILE`",
}
"""Command of kubectl -> what to do here."""


def our_words(context: Any, words: list[str], explained: set[str]) -> list[str]:
    """The words after `koord`, with a command of ours in the place of one of kubectl.

    `version`, `help` and a hint end the command. While a shell completes, commands follow `help`, and nothing follows
    the others. `explained`: the sub-commands of `koord explain`.
    """
    first, rest = (words[0], words[1:]) if words else ("", [])
    if getattr(context, "resilient_parsing", False):
        if first == "help":
            return rest or words
        if first == "version" or first in _HINTS:
            raise typer.Exit(1)
    if first == "describe":
        is_option = bool(rest) and rest[0].startswith("-")
        if rest and not is_option and understood([rest[0]], explained)[0] not in explained:
            return ["get", *rest, "-o", "yaml"]
        return ["explain", *rest]
    if first == "help" and rest:
        return [*rest, "--help"]
    if first == "help":
        _print_and_end(context.get_help())
    if first == "version":
        _print_and_end(version_text())
    if first in _HINTS:
        from koordctl.render.output import fail  # only now: help needs no output

        fail(f"there is no command {first!r}: {_HINTS[first]}", status=2)
    return words


def version_text() -> str:
    from importlib.metadata import version

    return f"koord {version('koordctl')}"


def _print_and_end(text: str) -> NoReturn:
    from koordctl.render.output import write_line  # only now: help needs no output

    write_line(text)
    raise typer.Exit
