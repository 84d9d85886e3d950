"""The custom resource definitions that Koordstream installs, read from files of this package.

The source files are `schemas/<group>_<plural>.yaml` beside this module. `python -m koordcore.protocol.crd DIR` writes
the copy in `schemas/crds/` of the repository for kubectl; a test compares both. Next module: admit.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal, cast

import yaml

from koordcore.protocol.crd.schema import Json, Schema, build_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column of `kubectl get` for a custom resource: name, type, and path of its value (`.status.phase`)."""

    name: str
    type: str
    json_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceVersion:
    """One version of a custom resource: its names, its scope, its columns and its schema.

    Attributes:
        served: Whether the API server accepts this version.
        stored: Whether objects are stored in this version.
        has_status: Whether the status is a subresource, which only requests to `/status` may change.
    """

    group: str
    version: str
    kind: str
    plural: str
    scope: Literal["Cluster", "Namespaced"]
    short_names: tuple[str, ...]
    served: bool
    stored: bool
    has_status: bool
    columns: tuple[PrinterColumn, ...]
    schema: Schema

    @property
    def api_version(self) -> str:
        """`group/version` as in objects; only `version` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


def definition_texts() -> dict[str, str]:
    """Return file name -> YAML text of every definition, sorted by name."""
    folder = files("koordcore.protocol.crd") / "schemas"
    found = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


@lru_cache(maxsize=1)
def resource_versions() -> tuple[ResourceVersion, ...]:
    """Return every version of every custom resource that Koordstream installs, in the order of the files.

    The files are read once (about 30 ms).
    """
    return tuple(version for text in definition_texts().values() for version in _versions(text))


@lru_cache(maxsize=1)
def _by_api_version_and_kind() -> Mapping[tuple[str, str], ResourceVersion]:
    return {(version.api_version, version.kind): version for version in resource_versions()}


def find_resource(api_version: str, kind: str) -> ResourceVersion | None:
    """Return the served version of a custom resource with this API version and kind; None for other kinds."""
    found = _by_api_version_and_kind().get((api_version, kind))
    return found if found is not None and found.served else None


def _versions(text: str) -> list[ResourceVersion]:
    document = cast("dict[str, Json]", yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # noqa: S506 - both are safe loaders
    spec = cast("dict[str, Json]", document["spec"])
    names = cast("dict[str, Json]", spec["names"])
    kind = cast("str", names["kind"])
    result: list[ResourceVersion] = []
    for entry in cast("list[dict[str, Json]]", spec["versions"]):
        schema = cast("dict[str, dict[str, Json]]", entry["schema"])["openAPIV3Schema"]
        columns = cast("list[dict[str, str]]", entry.get("additionalPrinterColumns", []))
        result.append(
            ResourceVersion(
                group=cast("str", spec["group"]),
                version=cast("str", entry["name"]),
                kind=kind,
                plural=cast("str", names["plural"]),
                scope=cast("Literal['Cluster', 'Namespaced']", spec["scope"]),
                short_names=tuple(cast("list[str]", names.get("shortNames", []))),
                served=bool(entry["served"]),
                stored=bool(entry["storage"]),
                has_status="status" in cast("dict[str, Json]", entry.get("subresources", {})),
                columns=tuple(
                    PrinterColumn(name=column["name"], type=column["type"], json_path=column["jsonPath"])
                    for column in columns
                ),
                schema=build_schema(schema, kind),
            )
        )
    return result
