"""Write the names of Kubernetes' fields to a file, from the models of its Python client.

Run `python -m koord_manager.shell.export_fields FILE`. Loading the models takes longer than most commands, so the names
are kept in a file.
"""

import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from koordcore.protocol.crd.kubernetes_kinds import kubernetes_kinds
from koordcore.protocol.manifests import KINDS
from koordcore.values import codec

_MODELS: Final = "kubernetes_asyncio.client.models"
_NAME: Final = re.compile(r"[A-Z]\w*")
_VERSION: Final = re.compile(r"V1(?=[A-Z])")


def exported() -> str:
    """Return the text of `kubernetes_fields.json`: each accepted kind and type with its fields and their types."""
    models: Any = import_module(_MODELS)
    found: dict[str, Mapping[str, str]] = {}
    waiting = [f"V1{kind}" for kind in (*(kind for _, kind in KINDS), *(each.kind for each in kubernetes_kinds()))]
    waiting.append("V1PodTemplateSpec")
    while waiting:
        model = waiting.pop()
        if _written(model) in found:
            continue
        fields: dict[str, str] = {}
        for attribute, kind in getattr(models, model).openapi_types.items():
            name = _NAME.search(kind)
            nested = name[0] if name and hasattr(models, name[0]) else ""
            fields[getattr(models, model).attribute_map[attribute]] = _written(nested)
            waiting += [nested] if nested else []
        found[_written(model)] = dict(sorted(fields.items()))
    lines = [f"{codec.encode(name).decode()}: {codec.encode(found[name]).decode()}" for name in sorted(found)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _written(model: str) -> str:
    """Return the short name of a model: `PodSpec` for `V1PodSpec`, `CoreResourceClaim` for `CoreV1ResourceClaim`."""
    return _VERSION.sub("", model, count=1)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(exported(), encoding="utf-8")
