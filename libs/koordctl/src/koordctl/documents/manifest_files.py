"""The files that a user names for `apply`, `delete` and `lint`.

One rule for all files: what is not there, is no YAML or JSON or holds nothing is wrong usage (exit status 2); what it
says is judged by the command (1).
"""

import sys
from pathlib import Path
from typing import Final

from koordctl.render.output import fail

SUFFIXES: Final = (".yaml", ".yml", ".json")
STANDARD_INPUT: Final = "-"
UNREADABLE: Final = 2
"""Exit status for a text that is no manifest."""


def manifest_texts(name: str) -> list[tuple[str, bytes]]:
    """(label, text) of a file, of standard input for `-`, or of a folder's own manifests, not of those below it.

    Ends the command for what cannot be read, and for a folder without manifests.
    """
    if name == STANDARD_INPUT:
        return [("standard input", sys.stdin.buffer.read())]
    path = Path(name)
    files = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES) if path.is_dir() else [path]
    if not files:
        fail(f"{name}: no *.yaml, *.yml or *.json in this folder", status=2)
    try:
        return [(str(file), file.read_bytes()) for file in files]
    except OSError as error:
        fail(f"{name}: {error.strerror}", status=2)
