"""Write `sketches.json`, the help and the parameters of all commands, and `kinds.json` beside it, the words for kinds.

`python -m koordctl.sketching FILE` writes both.
"""

import json
import sys
from pathlib import Path
from typing import Any

from koordcore.protocol.crd import accepted_kinds
from typer.main import get_command

from koordctl.app import app
from koordctl.completing import OF_COMMANDS, OF_PARAMETERS
from koordctl.objects.kinds import KINDS, SHORT, plural
from koordctl.sketches import CommandSketch, ParameterSketch


def all_sketches() -> dict[str, CommandSketch]:
    """Name -> sketch, for the commands of `koord`. All are imported."""
    root: Any = get_command(app)
    return _sketch_of(root, _context(root, "koord", None))["commands"]


def _sketch_of(command: Any, context: Any) -> CommandSketch:
    return {
        "help": command.help or "",
        "usage": command.collect_usage_pieces(context),
        "parameters": [_parameter_of(param, context) for param in command.params],
        "commands": {
            name: _sketch_of(child, _context(child, name, context))
            for name, child in getattr(command, "commands", {}).items()
        },
    }


def _context(command: Any, name: str, parent: Any) -> Any:
    return command.make_context(name, [], parent=parent, resilient_parsing=True)


def _parameter_of(param: Any, context: Any) -> ParameterSketch:
    names = [param.name]
    if param.param_type_name == "option":
        names += ["/".join(both) for both in zip(param.opts, param.secondary_opts, strict=False)]
        names += param.opts[len(param.secondary_opts) :]
    return {
        "names": names,
        "shown": list(param.get_help_record(context) or ()),
        "usage": param.get_usage_pieces(context),
        "is_flag": bool(getattr(param, "is_flag", False)),
        "is_list": bool(param.multiple or param.nargs == -1),
        "completes": _completing(param, context),
        "choices": [str(getattr(choice, "value", choice)) for choice in param.type_descriptor.choices or ()],
    }


def _completing(param: Any, context: Any) -> str:
    """Name of the function that offers values for a parameter: its own one, or by its name; "" if there is none."""
    own = getattr(param.type_descriptor.parameter_info, "autocompletion", None)
    if own is not None:
        return str(own.__name__)
    if getattr(param, "is_flag", False):
        return ""
    if param.name == "name":  # of what the command is called after, as in `koord explain pod`
        return OF_COMMANDS.get(context.info_name, "")
    return OF_PARAMETERS.get(param.name, "")


def all_kind_words() -> dict[str, str]:
    """Word on the command line -> kind."""
    words = {word: kind for known in (KINDS, SHORT) for word, kind in known.items()}
    words |= {plural(word): kind for word, kind in words.items() if len(word) > 2}
    for resource in accepted_kinds():
        words |= dict.fromkeys((resource.kind.lower(), resource.plural, *resource.short_names), resource.kind)
    return dict(sorted(words.items()))


if __name__ == "__main__":
    for file, found in ((sys.argv[1], all_sketches()), (Path(sys.argv[1]).with_name("kinds.json"), all_kind_words())):
        Path(file).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
