"""Reading of the files that a user names on the command line.

One rule holds for all files. A file that is missing, empty, or not valid YAML or JSON is wrong usage (exit status 2).
The content of a valid file is judged by the command (exit status 1).
"""

import sys
from pathlib import Path
from typing import Final

from koordcore.values.invalid import InvalidInput

from koordctl.render.output import fail

SUFFIXES: Final = (".yaml", ".yml", ".json")
STANDARD_INPUT: Final = "-"
UNREADABLE: Final = 2
"""Exit status for a text that is not a manifest."""


def manifest_texts(name: str) -> list[tuple[str, bytes]]:
    """(label for messages, text) of a file, of the manifests in a folder, or of `-`, standard input.

    Subfolders are not read. If a file cannot be read, or a folder has no manifests, end the command with exit status 2.
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


def documents_of(file: Path, *, wanted: str = "") -> list[object]:
    """The decoded documents of a YAML or JSON file. If it cannot be read or is not valid, end with exit status 2.

    Args:
        wanted: What the file must contain, for the error. If set, a file without documents ends the command as well.
    """
    return _read(file, wanted)[1]


def text_of(file: Path, *, wanted: str) -> bytes:
    """Return the text of a file as `documents_of` accepts it."""
    return _read(file, wanted)[0]


def _read(file: Path, wanted: str) -> tuple[bytes, list[object]]:
    from koordcore.protocol.manifests import read_documents  # only now: commands without files do not need it

    try:
        text = file.read_bytes()
        documents = read_documents(text)
    except OSError as error:
        fail(f"{file}: {error.strerror}", status=UNREADABLE)
    except InvalidInput as error:
        fail(f"{file}: {error.sentence()}", status=UNREADABLE)
    if wanted and not documents:
        fail(f"{file}: must contain {wanted}, but is empty", status=UNREADABLE)
    return text, documents
