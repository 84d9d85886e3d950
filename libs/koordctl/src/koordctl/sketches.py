"""What the help of each command shows and completion offers, without the code of the command.

`sketches.json` is generated (`make schemas`, or `python -m koordctl.sketching FILE`), and a test compares it with the
commands. So `koord drain --help` does not wait for the imports of `koord drain`.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, Literal, TypedDict

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from koordctl.kind_words import KindGroup

COMPLETE: Final = "_KOORD_COMPLETE"
"""Variable that a shell sets when it asks for a completion."""
_HELP: Final = ("-h", "--help")


class ParameterSketch(TypedDict):
    names: list[str]  # Its name in Python, then those of the command line; empty of an argument
    shown: list[str]  # The two columns of the help; empty: it is not shown
    usage: list[str]  # Its part of the line of usage
    is_flag: bool
    is_list: bool  # Whether it takes several values, or is given several times
    choices: list[str]  # Its values; empty: any
    completes: str  # Function of `koordctl.completing` that offers values; "": none


class CommandSketch(TypedDict):
    help: str
    usage: list[str]  # The line of usage after the name of the command
    parameters: list[ParameterSketch]
    commands: dict[str, "CommandSketch"]  # Of a group


def are_wanted() -> bool:
    """Whether this process shows help or completes a command line."""
    words = sys.argv[1:]
    before = words[: words.index("--")] if "--" in words else words
    return COMPLETE in os.environ or any(word in _HELP for word in before)


def read_sketches() -> dict[str, CommandSketch]:
    """Name -> sketch, for the commands of `koord`."""
    return json.loads(files("koordctl").joinpath("sketches.json").read_bytes())


def sketched(name: str, found: CommandSketch, real: Callable[[], Any]) -> TyperCommand | TyperGroup:
    """A command that shows help and completions as the real one, and calls it for everything else."""
    if found["commands"]:
        return _Group(name, found, real)
    return _Command(name, found, real)


def _typer_type(found: ParameterSketch) -> Any:
    """typer's description of the type, which completion reads."""
    from typer._coercion import resolve_type_descriptor
    from typer.models import OptionInfo

    one: Any = bool if found["is_flag"] else Literal[tuple(found["choices"])] if found["choices"] else str
    return resolve_type_descriptor(list[one] if found["is_list"] else one, OptionInfo())


class _Option(TyperOption):
    def __init__(self, found: ParameterSketch) -> None:
        super().__init__(
            param_decls=found["names"],
            type_descriptor=_typer_type(found),
            is_flag=found["is_flag"],
            multiple=found["is_list"],
            help=found["shown"][1].partition("  [")[0] if found["shown"] else "",
            hidden=not found["shown"],
        )
        self._found = found

    def get_help_record(self, ctx: Any) -> Any:
        return tuple(self._found["shown"]) or None

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        offered = _offered(self._found, ctx, incomplete)
        return super().shell_complete(ctx, incomplete) if offered is None else offered


class _Argument(TyperArgument):
    def __init__(self, found: ParameterSketch) -> None:
        super().__init__(
            param_decls=found["names"],
            type_descriptor=_typer_type(found),
            nargs=-1 if found["is_list"] else 1,
            hidden=not found["shown"],
        )
        self._found = found

    def get_help_record(self, ctx: Any) -> Any:
        return tuple(self._found["shown"]) or None

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        offered = _offered(self._found, ctx, incomplete)
        return super().shell_complete(ctx, incomplete) if offered is None else offered


def _offered(found: ParameterSketch, ctx: Any, incomplete: str) -> list[Any] | None:
    """The values that the parameter's function offers; None if it has none."""
    if not found["completes"]:
        return None
    from typer._click.shell_completion import CompletionItem

    from koordctl import completing

    function = getattr(completing, found["completes"])
    given = (ctx.params.get(found["names"][0]) if found["names"] else None) or ()
    offered = function([*given], incomplete) if function is completing.kinds_and_names else function(incomplete)
    return [CompletionItem(each) for each in offered]


def _parameters(found: CommandSketch) -> list[Any]:
    return [_Option(each) if len(each["names"]) > 1 else _Argument(each) for each in found["parameters"]]


class _Command(TyperCommand):
    def __init__(self, name: str, found: CommandSketch, real: Callable[[], Any]) -> None:
        super().__init__(name, help=found["help"], params=_parameters(found), rich_markup_mode=None)
        self._found = found
        self._real = real
        self._words: list[str] = []
        self.short_help = first_paragraph(found["help"])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return list(self._found["usage"])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._words = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Call the real command: what looked like a wish for help was the value of an option."""
        return self._real().main(self._words, prog_name=ctx.command_path, standalone_mode=False)


class _Group(KindGroup):
    def __init__(self, name: str, found: CommandSketch, real: Callable[[], Any]) -> None:
        def below(child: str) -> Callable[[], Any]:
            return lambda: real().commands[child]

        super().__init__(
            name=name,
            help=found["help"],
            params=_parameters(found),
            commands={child: sketched(child, each, below(child)) for child, each in found["commands"].items()},
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        self.short_help = first_paragraph(found["help"])


def first_paragraph(text: str | None) -> str:
    """On one line."""
    return " ".join((text or "").partition("\n\n")[0].split())
