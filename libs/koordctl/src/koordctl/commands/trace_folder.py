"""The folder of the openb traces."""

from pathlib import Path
from typing import Final

from koordctl.render.output import fail

TRACE_FOLDER: Final = "examples/openb"


def find_trace(option: str) -> Path:
    """Return the folder examples/openb of the project, from any folder inside the project.

    If there is none, end the command.

    Args:
        option: Command-line option with which the user can name another folder, for the error.
    """
    here = Path.cwd()
    starts = (here, *here.parents, *Path(__file__).resolve().parents)
    found = next((folder / TRACE_FOLDER for folder in starts if (folder / TRACE_FOLDER).is_dir()), None)
    return found or fail(f"no {TRACE_FOLDER} in {here} or above; name the folder with {option}")
