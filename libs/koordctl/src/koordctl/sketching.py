"""Write `sketches.json`: the help and the parameters of all commands (`python -m koordctl.sketching FILE`)."""

import json
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from koordctl.app import app
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
        "choices": [str(getattr(choice, "value", choice)) for choice in param.type_descriptor.choices or ()],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(all_sketches(), indent=1, ensure_ascii=False) + "\n")
