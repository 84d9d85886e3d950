"""Reading of the documents in a file that an option names."""

from pathlib import Path

from koordcore.protocol.manifests import read_documents
from koordcore.values.invalid import InvalidInput

from koordctl.documents.manifest_files import UNREADABLE
from koordctl.render.output import fail


def documents_of(file: Path, *, wanted: str = "") -> list[object]:
    """Return the YAML or JSON documents of a file, decoded.

    If the file cannot be read or is not valid, end the command with exit status 2.

    Args:
        file: The file.
        wanted: What the file must contain, for the error. If set, a file without documents ends the command as well.
    """
    return _read(file, wanted)[1]


def text_of(file: Path, *, wanted: str) -> bytes:
    """Return the text of a file. If it is not YAML or JSON, or has no documents, end the command with exit status 2.

    Args:
        file: The file.
        wanted: What the file must contain, for the error.
    """
    return _read(file, wanted)[0]


def _read(file: Path, wanted: str) -> tuple[bytes, list[object]]:
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
