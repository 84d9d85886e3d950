"""Command lines in Go's style: `-x v`, `--x v`, `-x=v`, `--bool`, `--bool=false`; an unknown flag is fatal.

It only turns words into texts by flag; `koordcore.service.configuration.settings` says which flags
there are and what the texts mean.

Source:
    protocol spec, 11
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass


class InvalidFlag(ValueError):
    """The command line cannot be read; the message names the flag and what would be accepted."""


class HelpRequested(Exception):
    """Raised if `-h` or `--help` is on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSpec:
    """One flag.

    Attributes:
        names: Without dashes, the first is the one shown.
        field: The settings field that it sets.
        is_bool: Takes no following word: `--x` is `true`, `--x=false` is `false`.
        help: One sentence.
        default: As shown in the help; empty: nothing is shown.
    """

    names: tuple[str, ...]
    field: str
    is_bool: bool
    help: str
    default: str


def parse_flags(specs: Sequence[FlagSpec], words: Sequence[str]) -> dict[str, list[str]]:
    """Return the texts given for each field, in order; fields whose flag does not occur are absent.

    Args:
        words: The command line without the program's name.

    Raises:
        InvalidFlag: An unknown flag, a flag without its value, a word that is no flag.
        HelpRequested: `-h` or `--help` stands on the command line; carries nothing.
    """
    by_name = {name: spec for spec in specs for name in spec.names}
    given: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            raise InvalidFlag(f"unexpected argument {word!r}: only flags are accepted")
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        spec = by_name.get(name)
        if spec is None:
            if name in ("h", "help"):
                raise HelpRequested
            raise InvalidFlag(f"unknown flag --{name}: see --help for those that exist")
        if not equals:
            if spec.is_bool:
                value = "true"
            elif (following := next(rest, None)) is None:
                raise InvalidFlag(f"flag --{name} needs a value: --{name}=<value>")
            else:
                value = following
        given.setdefault(spec.field, []).append(value)
    return given


def render_help(program: str, about: str, specs: Sequence[FlagSpec]) -> str:
    """Return the text of `--help`: one paragraph about the program, then every flag with its sentence and default."""
    lines = [f"Usage: {program} [flags]", "", *textwrap.wrap(about, 100), "", "Flags:"]
    for spec in specs:
        names = ", ".join(("-" if len(name) == 1 else "--") + name for name in spec.names)
        lines.append(f"  {names}" + ("" if spec.is_bool else " <value>"))
        shown = f" (default {spec.default})" if spec.default else ""
        lines.extend(textwrap.wrap(spec.help + shown, 100, initial_indent=" " * 8, subsequent_indent=" " * 8))
    return "\n".join(lines) + "\n"
