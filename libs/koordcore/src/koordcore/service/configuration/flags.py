"""Parse command lines in Go's style: `-x v`, `--x v`, `-x=v`, `--bool`, `--bool=false`.

An unknown flag is an error. The result is texts by flag. `koordcore.service.configuration.settings` defines the flags
and parses the texts.

Source:
    protocol spec, 11
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass


class InvalidFlag(ValueError):
    """The command line is invalid. The message names the flag and the accepted values."""


class HelpRequested(Exception):
    """The command line contains `-h` or `--help`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSpec:
    """Definition of one flag of a command line.

    Attributes:
        names: Names without dashes; help shows the first one.
        field: Field of the settings that the flag sets.
        is_bool: Whether it is a boolean flag, which takes no following word: `--x` is `true`, `--x=false` is `false`.
        help: One sentence about the flag, as `--help` shows it.
        default: Default as help shows it; empty: help shows none.
        no_effect: Why the flag is accepted without effect; empty: it has an effect.
    """

    names: tuple[str, ...]
    field: str
    is_bool: bool
    help: str
    default: str
    no_effect: str = ""


def without_effect(names: str, why: str, *, is_bool: bool = False) -> list[FlagSpec]:
    """Return flags that are accepted without effect, so that the command line of another program starts this one.

    Args:
        names: Names without dashes, separated by white space.
        why: Why they have no effect.
        is_bool: Whether they are boolean flags.
    """
    about = f"Accepted without effect: {why}."
    return [
        FlagSpec(names=(name,), field=name, is_bool=is_bool, help=about, default="", no_effect=why)
        for name in names.split()
    ]


def parse_flags(specs: Sequence[FlagSpec], words: Sequence[str]) -> dict[str, list[str]]:
    """Parse a command line. Return field of the settings -> values of its flags as text, in order.

    A field whose flags are not on the command line is absent.

    Args:
        specs: Definitions of the flags.
        words: The command line without the program's name.

    Raises:
        InvalidFlag: A flag is unknown, a flag has no value, or a word is not a flag.
        HelpRequested: The command line contains `-h` or `--help`.
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
    """Return the text of `--help`: the paragraph `about`, then every flag with its sentence and default.

    Args:
        program: Name of the program.
        about: What the program does.
        specs: Definitions of the flags.
    """
    lines = [f"Usage: {program} [flags]", "", *textwrap.wrap(about, 100), "", "Flags:"]
    for spec in specs:
        names = ", ".join(("-" if len(name) == 1 else "--") + name for name in spec.names)
        lines.append(f"  {names}" + ("" if spec.is_bool else " <value>"))
        shown = f" (default {spec.default})" if spec.default else ""
        lines.extend(textwrap.wrap(spec.help + shown, 100, initial_indent=" " * 8, subsequent_indent=" " * 8))
    return "\n".join(lines) + "\n"
