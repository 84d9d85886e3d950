"""Find the last error in the log of a child process, which explains why the process ended.

Our services log JSON lines. Servers, and an interpreter that fails to start, log plain text. `process` calls this after
a child has ended.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec

_READ_BYTES: Final = 262_144
_SHOWN: Final = 400


def last_words(log_file: Path | None, *, since: int = 0) -> str:
    """Return the last error in a log file as one line; "" if the log has no error or does not exist.

    A JSON line is an error if its level is `error`. The first field that it has of `error`, `message` and `event` is
    returned. A plain line is an error if it is not indented, such as the last line of a Python traceback.

    Args:
        log_file: The log file; None gives "".
        since: Byte offset at which the search begins, for example the start of the last run.
    """
    if log_file is None or not log_file.exists():
        return ""
    with log_file.open("rb") as log:
        log.seek(max(since, log_file.stat().st_size - _READ_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    words = next((said for line in reversed(lines) if (said := _said(line))), "")
    return words if len(words) <= _SHOWN else words[:_SHOWN] + "..."


def _said(line: str) -> str:
    if not line.strip() or line[0].isspace():
        return ""
    try:
        decoded = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return line.strip()
    if not isinstance(decoded, Mapping):
        return line.strip()
    fields = cast("Mapping[str, Any]", decoded)
    if fields.get("level") != "error":
        return ""
    said = next((str(fields[name]) for name in ("error", "message", "event") if fields.get(name)), "")
    return " ".join(said.split())
