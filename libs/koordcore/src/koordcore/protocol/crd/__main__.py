"""`python -m koordcore.protocol.crd DIR`: write all custom resource definitions to DIR, one YAML file each.

Other files `*.yaml` in DIR are deleted: a definition that no longer exists must not be applied with `kubectl apply`.
So DIR should hold nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from koordcore.protocol.crd.catalogue import definition_texts


def main(arguments: list[str]) -> int:
    """Write all custom resource definitions into the folder that the command line names. Delete obsolete ones there.

    Returns:
        Exit status.
    """
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m koordcore.protocol.crd DIR\n")
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    texts = definition_texts()
    for stale in folder.glob("*.yaml"):
        if stale.name not in texts:
            stale.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
