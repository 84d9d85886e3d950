"""Keep the registration file of the hook server in the folder that the CRI proxy watches.

Source: runtime spec, 2.7.
"""

import contextlib
import os
from pathlib import Path

from koord_agent.domain.hook_stages.registration import REGISTRATION_FILE


def write_registration(folder: Path, text: str) -> bool:
    """Write the registration file atomically, unless it is in place. It stays when the agent stops.

    Args:
        folder: Folder of the registration files.
        text: Content of the file.

    Returns:
        Whether the file was written.

    Raises:
        OSError: The folder does not exist, or it is not writable.
    """
    path = folder / REGISTRATION_FILE
    with contextlib.suppress(OSError):
        if path.read_bytes() == text.encode():  # bytes: what is there may be no text
            return False
    draft = folder / f".{REGISTRATION_FILE}.{os.getpid()}.tmp"  # the proxy reads only names that end in json
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return True
