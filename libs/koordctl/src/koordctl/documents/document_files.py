"""The one file that a user names by an option: its documents."""

from pathlib import Path

from koordcore.protocol.manifests import read_documents
from koordcore.values.invalid import InvalidInput

from koordctl.documents.manifest_files import UNREADABLE
from koordctl.render.output import fail


def documents_of(file: Path, *, wanted: str = "") -> list[object]:
    """The documents of a file. Ends the command with status 2 for a text that is no YAML or JSON.

    wanted    what has to be in it: then a file without documents ends the command, too
    """
    try:
        documents = read_documents(file.read_bytes())
    except InvalidInput as error:
        fail(f"{file}: {error.sentence()}", status=UNREADABLE)
    if wanted and not documents:
        fail(f"{file}: must hold {wanted}, and holds nothing", status=UNREADABLE)
    return documents
