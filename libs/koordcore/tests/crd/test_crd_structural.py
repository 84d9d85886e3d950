"""What a kube-apiserver asks of a definition before it serves it: names, versions, a structural schema.

source    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from collections.abc import Iterator
from typing import Any, cast

import pytest
import yaml
from koordcore.protocol.crd import definition_texts

Node = dict[str, Any]
DEFINITIONS = {
    name: cast("Node", yaml.load(text, Loader=yaml.CSafeLoader)) for name, text in definition_texts().items()
}
TYPES = {"object", "array", "string", "integer", "number", "boolean"}
COLUMN_TYPES = {"integer", "number", "string", "boolean", "date"}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_names_and_versions_are_complete(name: str) -> None:
    definition = DEFINITIONS[name]
    spec = definition["spec"]
    names = spec["names"]

    assert definition["apiVersion"] == "apiextensions.k8s.io/v1"
    assert definition["metadata"]["name"] == f"{names['plural']}.{spec['group']}"
    assert names["plural"] == names["plural"].lower()
    assert names["singular"] == names["kind"].lower()
    assert names["listKind"] == f"{names['kind']}List"
    assert spec["scope"] in ("Cluster", "Namespaced")
    assert [version["storage"] for version in spec["versions"]].count(True) == 1
    for version in spec["versions"]:
        for column in version.get("additionalPrinterColumns", []):
            assert column["type"] in COLUMN_TYPES
            assert column["jsonPath"].startswith(".")
            assert _has(version["schema"]["openAPIV3Schema"], column["jsonPath"]), column


def _has(schema: Node, path: str) -> bool:
    """Whether objects of a schema may have something at a path; metadata is the API server's business."""
    steps = path.removeprefix(".").split(".")
    if steps[0] == "metadata":
        return True
    node: Node = schema
    for step in steps:
        properties = cast("dict[str, Node]", node.get("properties") or {})
        found = properties.get(step) or cast("Node | None", node.get("additionalProperties"))
        if found is None:
            return bool(node.get("x-kubernetes-preserve-unknown-fields"))
        node = found
    return True


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if "topolog" not in name])
def test_every_kind_has_columns_for_kubectl_and_its_age_among_them(name: str) -> None:
    for version in DEFINITIONS[name]["spec"]["versions"]:
        names = [column["name"] for column in version["additionalPrinterColumns"]]
        assert "Age" in names
        assert len(set(names)) == len(names) > 1


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_schema_is_structural(name: str) -> None:
    for version in DEFINITIONS[name]["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        assert schema["type"] == "object"
        assert list(_faults(schema, "")) == []
        assert ("status" in version.get("subresources", {})) <= ("status" in schema["properties"])


def _faults(node: Node, path: str) -> Iterator[str]:
    """Nodes that an API server would refuse."""
    open_node = bool(node.get("x-kubernetes-preserve-unknown-fields"))
    either = bool(node.get("x-kubernetes-int-or-string"))
    kind = node.get("type")
    if kind is None and not (open_node or either):
        yield f"{path}: neither a type nor open"
    if kind is not None and kind not in TYPES:
        yield f"{path}: unknown type {kind}"
    if either and (kind is not None or "anyOf" not in node):
        yield f"{path}: int-or-string is written as anyOf without a type"
    if kind == "array" and not isinstance(node.get("items"), dict):
        yield f"{path}: an array needs the schema of its items"
    if "properties" in node and "additionalProperties" in node:
        yield f"{path}: properties and additionalProperties exclude each other"
    if node.get("nullable") is False:
        yield f"{path}: nullable false is said by leaving it out"
    if "default" in node and node["default"] is None:
        yield f"{path}: null is no default"
    for required in node.get("required", ()):
        if required not in node.get("properties", {}):
            yield f"{path}: requires {required}, which it does not describe"
    if path == ".metadata" and set(node) - {"type"}:
        yield f"{path}: metadata is described by the API server"
    for name, child in node.get("properties", {}).items():
        yield from _faults(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(node.get(name), dict):
            yield from _faults(node[name], f"{path}.{name}")
