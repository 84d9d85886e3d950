"""The manifests, as a real API server takes them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from koordcore.protocol.crd.catalogue import definition_texts
from support.kubernetes.control_plane import ROOT, ControlPlane
from support.kubernetes.installation import Installation, reachable, rendered
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
DEFINITIONS: list[Json] = [yaml.load(text, yaml.CSafeLoader) for text in definition_texts().values()]


def is_for_the_server(file: Path) -> bool:
    """Whether every document of a file is an object of an API server; configurations of schedulers are not."""
    documents = [item for item in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader) if item]
    return all("metadata" in item and "apiVersion" in item for item in documents)


EXAMPLES = sorted(file for file in (ROOT / "examples").rglob("*.yaml") if is_for_the_server(file))


async def test_the_objects_that_we_ship_are_accepted(plane: ControlPlane, installed: Installation) -> None:
    """The manager serves the webhooks, so its admission accepts them, too."""
    add_nodes(plane, node_document("node-0"))
    await installed.start_manager("manager-a")
    await installed.until_ready("manager-a")

    shipped = yaml.safe_dump_all(reachable(rendered()))
    server_side = plane.ask("apply", "--server-side", "-f", "-", stdin=shipped)
    base = plane.ask("diff", "-f", "-", stdin=shipped)
    answers = {
        str(file.relative_to(ROOT)): plane.ask("apply", "--dry-run=server", "-f", str(file)) for file in EXAMPLES
    }

    assert (base.code, base.out, base.err) == (0, "", "")  # a second apply of the base changes nothing
    assert (server_side.code, server_side.err) == (0, "")  # what the manager has written is no conflict
    assert {file: answer.err for file, answer in answers.items() if answer.code or answer.err} == {}


async def test_kubectl_prints_the_warnings_of_our_webhooks(plane: ControlPlane, installed: Installation) -> None:
    await installed.start_manager("manager")
    await installed.until_ready("manager")
    labels = {"koordinator.sh/qosClas": "LS"}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "misspelt", "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    }

    answer = plane.ask("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(document))

    assert answer.code == 0
    assert answer.err.startswith("Warning: ")
    assert "koordinator.sh/qosClas" in answer.err


def undescribed(schema: Json, path: str) -> Iterator[str]:
    """Yield the paths of fields without a description in a schema that the API server publishes."""
    for name, child in schema.get("properties", {}).items():
        if "description" not in child:
            yield f"{path}.{name}"
        yield from undescribed(child, f"{path}.{name}")
    for child in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            yield from undescribed(cast("Json", child), path)


def test_kubectl_explains_every_field_of_the_definitions(plane: ControlPlane) -> None:
    """kubectl explain reads what the API server publishes."""
    places: list[str] = []
    for group in sorted({api_version(definition) for definition in DEFINITIONS}):
        published: Json = json.loads(plane.kubectl("get", "--raw", f"/openapi/v3/apis/{group}"))["components"][
            "schemas"
        ]
        ours = {name: schema for name, schema in published.items() if "x-kubernetes-group-version-kind" in schema}
        for name, schema in ours.items():
            if not name.endswith("List") and not name.startswith("io.k8s.apimachinery"):
                places += undescribed(schema, name)
    deep = plane.kubectl("explain", "nodeslos.spec.resourceQOSStrategy.beClass.cpuQOS.groupIdentity")

    assert places == []
    assert "Group identity (bvt)" in deep


def api_version(definition: Json) -> str:
    """Return the API version of a definition as `kubectl explain` takes it."""
    return f"{definition['spec']['group']}/{definition['spec']['versions'][0]['name']}"


def test_kubectl_shows_columns_of_the_definitions(plane: ControlPlane) -> None:
    """The name and the age alone tell a user nothing."""
    tables = {
        item["metadata"]["name"]: [
            column["name"]
            for version in item["spec"]["versions"]
            for column in version.get("additionalPrinterColumns", [])
        ]
        for item in plane.get("crd")["items"]
    }

    # There is one ClusterNetworkTopology in a cluster, and it has lists only.
    assert [name for name, columns in tables.items() if set(columns) <= {"Age", "AGE"}] == [
        "clusternetworktopologies.scheduling.koordinator.sh"
    ]
