"""The custom resource definitions that Koordstream installs, read from files of this package, and their schemas.

The source files are `schemas/<group>_<plural>.yaml` beside this module. `python -m koordcore.protocol.crd DIR` writes
the copy in `schemas/crds/` of the repository for kubectl; a test compares both. Schemas are structural: the subset of
OpenAPI v3 that the definitions use. An unknown keyword is an error at load time, so no rule of a definition is silently
ignored. Next module: admit.py, which prunes, defaults and validates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Final, Literal, TypeAlias, cast

from koordcore.values.yaml_text import load_yaml

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_KNOWN_KEYWORDS: Final = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "default", "nullable", "format"),
        *(
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "minProperties",
            "pattern",
            "anyOf",
            "description",
        ),
        *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-map-type"),
    }
)
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]


class UnsupportedSchema(ValueError):
    """A custom resource definition uses a keyword that admission would not enforce. The file has to be corrected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The schema of one JSON value in a custom resource (OpenAPI v3). Absent keywords are None, empty or False."""

    type: str | None = None  # object, array, string, integer, number or boolean; None: any type
    properties: Mapping[str, Schema] = field(default_factory=dict[str, "Schema"])
    required: tuple[str, ...] = ()
    additional: Schema | None = None
    items: Schema | None = None
    enum: tuple[Json, ...] = ()
    has_default: bool = False
    default: Json = None  # Default value. It only counts if `has_default`, because null is not a default.
    nullable: bool = False
    format: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    min_properties: int | None = None
    pattern: re.Pattern[str] | None = None
    int_or_string: bool = False
    preserve_unknown: bool = False
    description: str = ""


def build_schema(node: Mapping[str, Json], path: str = "") -> Schema:
    """Return the schema that a part of an `openAPIV3Schema` document describes. `path`: path of the part in the
    definition, for error messages.

    Raises:
        UnsupportedSchema: A keyword is unknown, or an anyOf is not int-or-string.
    """
    unknown = sorted(node.keys() - _KNOWN_KEYWORDS)
    if unknown:
        raise UnsupportedSchema(f"{path}: keywords {unknown} are not enforced")
    int_or_string = bool(node.get("x-kubernetes-int-or-string", False))
    if ("anyOf" in node) != int_or_string or node.get("anyOf", _INT_OR_STRING) != _INT_OR_STRING:
        raise UnsupportedSchema(f"{path}: anyOf means int-or-string and nothing else")
    properties = cast("Mapping[str, Mapping[str, Json]]", node.get("properties", {}))
    additional = node.get("additionalProperties")
    items = node.get("items")
    pattern = node.get("pattern")
    return Schema(
        type=cast("str | None", node.get("type")),
        properties={name: build_schema(child, f"{path}.{name}") for name, child in properties.items()},
        required=tuple(cast("Sequence[str]", node.get("required", ()))),
        additional=build_schema(additional, f"{path}.*") if isinstance(additional, dict) else None,
        items=build_schema(items, f"{path}[]") if isinstance(items, dict) else None,
        enum=tuple(cast("Sequence[Json]", node.get("enum", ()))),
        has_default="default" in node,
        default=node.get("default"),
        nullable=bool(node.get("nullable", False)),
        format=cast("str | None", node.get("format")),
        minimum=cast("float | None", node.get("minimum")),
        maximum=cast("float | None", node.get("maximum")),
        min_length=cast("int | None", node.get("minLength")),
        max_length=cast("int | None", node.get("maxLength")),
        min_items=cast("int | None", node.get("minItems")),
        min_properties=cast("int | None", node.get("minProperties")),
        pattern=_compile(pattern) if isinstance(pattern, str) else None,
        int_or_string=int_or_string,
        preserve_unknown=bool(node.get("x-kubernetes-preserve-unknown-fields", False)),
        description=str(node.get("description", "")),
    )


def _compile(pattern: str) -> re.Pattern[str]:
    # a final `$` of an OpenAPI pattern is the end of the text; in Python it also matches before a last newline
    return re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern, re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column of `kubectl get` for a custom resource: name, type, and path of its value (`.status.phase`)."""

    name: str
    type: str
    json_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceVersion:
    """One version of a custom resource: its names, its scope, its columns and its schema."""

    group: str
    version: str
    kind: str
    plural: str
    scope: Literal["Cluster", "Namespaced"]
    short_names: tuple[str, ...]
    served: bool  # Whether the API server accepts this version
    stored: bool
    has_status: bool  # Whether the status is a subresource, which only requests to `/status` may change
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
    """Return every version of every custom resource that Koordstream installs, in the order of the files. The files are
    read once (about 30 ms).
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
    document = cast("dict[str, Json]", load_yaml(text))
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
