# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# API objects are plain JSON here, as they are on the wire.
"""Field and label selectors of lists and watches, as far as components use them."""

from typing import Any

Json = dict[str, Any]


def matches(document: Json, labels: str, fields: str) -> bool:
    """Whether an object is selected by `labelSelector` and `fieldSelector` texts."""
    return all(_label(document, term) for term in labels.split(",") if term) and all(
        _field(document, term) for term in fields.split(",") if term
    )


def name_selected(fields: str) -> str:
    """The only name that a `fieldSelector` allows, which is what rules with `resourceNames` go by; "" for others."""
    [name, *others] = [term.partition("=")[2] for term in fields.split(",") if term.startswith("metadata.name=")] or [
        ""
    ]
    return "" if others else name


def _label(document: Json, term: str) -> bool:
    found: Json = document["metadata"].get("labels") or {}
    if "!=" in term:
        key, _, value = term.partition("!=")
        return found.get(key) != value
    if "=" in term:
        key, _, value = term.replace("==", "=").partition("=")
        return found.get(key) == value
    return term.removeprefix("!") not in found if term.startswith("!") else term in found


def _field(document: Json, term: str) -> bool:
    is_not = "!=" in term
    path, _, wanted = term.replace("!=", "=").replace("==", "=").partition("=")
    value: Any = document
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return ((value or "") == wanted) != is_not
