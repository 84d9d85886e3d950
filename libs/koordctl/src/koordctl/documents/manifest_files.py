"""Reading of the files that a user names for `koord apply`, `koord delete` and `koord lint`.

One rule holds for all files. A file that is missing, empty, or not valid YAML or JSON is wrong usage (exit status 2).
The content of a valid file is judged by the command (exit status 1).
"""

import sys
from pathlib import Path
from typing import Final

from koordctl.render.output import fail

SUFFIXES: Final = (".yaml", ".yml", ".json")
STANDARD_INPUT: Final = "-"
UNREADABLE: Final = 2
"""Exit status for a text that is not a manifest."""


def manifest_texts(name: str) -> list[tuple[str, bytes]]:
    """Return the texts of the named manifests, each with a label for messages.

    The name is a file, a folder (whose manifests are read, without subfolders), or `-` for standard input.

    If a file cannot be read, or a folder has no manifests, the command ends with exit status 2.
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
