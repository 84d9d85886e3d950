"""The spans in a file that a service wrote."""

from pathlib import Path

import msgspec
from koordcore.service.telemetry.tracing import FinishedSpan


def read_span_file(path: str) -> list[FinishedSpan]:
    """Return the spans in the order in which they ended; a line that is cut off at the end is ignored."""
    lines = Path(path).read_bytes().splitlines(keepends=True)
    return [msgspec.json.decode(line, type=FinishedSpan) for line in lines if line.endswith(b"\n")]
