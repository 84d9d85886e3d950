"""Compare the custom resource definitions of an API server with those of this version. This module is pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from koordctl.explain.health import Finding, Verdict

REMEDY = "apply the definitions of this version: docs/guide/install-on-kubernetes.md"


def definition_findings(
    installed: Iterable[Mapping[str, Any]], wanted: Iterable[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Yield the findings about custom resource definitions: whether an API server has all that this version needs.

    One finding for each definition that is not installed (BROKEN), or that lacks versions, subresources or fields
    (WARNING). If there is none, a single finding OK. An API server drops fields that a definition does not name,
    without a word. What a newer definition has in addition is in order.

    Args:
        installed: Definitions at the API server, as JSON.
        wanted: Definitions of this version.
    """
    found = {each["metadata"]["name"]: each for each in installed}
    count = 0
    old = False
    for each in wanted:
        name, count = each["metadata"]["name"], count + 1
        if name not in found:
            old = True
            yield Finding(f"CRD {name}", Verdict.BROKEN, "is not installed", REMEDY)
        elif missing := list(_missing(found[name]["spec"], each["spec"])):
            old = True
            shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            yield Finding(f"CRD {name}", Verdict.WARNING, f"is of an older version: it lacks {shown}", REMEDY)
    if not old:
        yield Finding("CRDs", Verdict.OK, f"all {count} are of this version")


def _missing(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield the versions, subresources and fields that a definition lacks."""
    versions = {each["name"]: each for each in found["versions"] if each["served"]}
    for each in wanted["versions"]:
        name = each["name"]
        if not each["served"]:
            continue
        if name not in versions:
            yield name
            continue
        for subresource in each.get("subresources", {}):
            if subresource not in versions[name].get("subresources", {}):
                yield f"{name} /{subresource}"
        yield from _missing_fields(_schema(versions[name]), _schema(each), name)


def _schema(version: Mapping[str, Any]) -> Mapping[str, Any]:
    return version.get("schema", {}).get("openAPIV3Schema", {})


def _missing_fields(found: Mapping[str, Any], wanted: Mapping[str, Any], path: str) -> Iterator[str]:
    if found.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, schema in wanted.get("properties", {}).items():
        if name not in found.get("properties", {}):
            yield f"{path}.{name}"
        else:
            yield from _missing_fields(found["properties"][name], schema, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if isinstance(wanted.get(part), Mapping):
            inner: Any = found.get(part)
            yield from _missing_fields({} if isinstance(inner, bool) else inner or {}, wanted[part], f"{path}[]")
