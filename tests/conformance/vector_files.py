"""Where the vectors are, and what is in their files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OWN_VECTORS = Path(__file__).parent / "vectors"


def vector_files(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind ("protocol.quantity") and the document of each file.

    Args:
        folder: Holds one folder per area, or is the folder of one area.
    """
    nested = sorted(folder.glob("*/*.json"))
    for path in nested or sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        yield str(document.get("kind", f"{path.parent.name}.{path.stem}")), document
