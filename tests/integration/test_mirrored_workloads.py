"""Workloads that control pods come from the API server into the descheduler's limits, whatever their kind."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_descheduler.domain.view.replicas import WITH_REPLICAS, workload_index
from koord_manager.domain.gateway.resources import mirrored_resources
from koordcore.protocol.crd.catalogue import definition_texts
from support.kubernetes.authorization import BASE, manager_user
from support.kubernetes.gateway_world import gateway_world

MIRRORED = mirrored_resources(slo_config=("koordinator-system", "slo-controller-config"), take_node_metrics=False)
KINDS = {
    "ReplicationController": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "CloneSet": "apps.kruise.io/v1alpha1",
    "StatefulSet of Kruise": "apps.kruise.io/v1beta1",
}


def definition(plural: str, kind: str, version: str) -> dict[str, Any]:
    """Return a CustomResourceDefinition of OpenKruise that keeps every field."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.apps.kruise.io"},
        "spec": {
            "group": "apps.kruise.io",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


async def test_workloads_of_all_kinds_are_counted_and_those_of_one_name_stay_apart(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        server = world.server
        for text in definition_texts().values():
            await server.apply(yaml.safe_load(text))
        await server.apply(definition("clonesets", "CloneSet", "v1alpha1"))
        await server.apply(definition("statefulsets", "StatefulSet", "v1beta1"))
        server.users["manager"] = manager_user()
        wanted: dict[str, int] = {}
        for replicas, (kind, version) in enumerate(KINDS.items(), 2):
            document = {
                "apiVersion": version,
                "kind": kind.partition(" ")[0],
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"replicas": replicas},
            }
            stored = await server.apply(document)
            wanted[stored["metadata"]["uid"]] = replicas
        await world.begin(token="manager")

        def counted() -> dict[str, int]:
            return {uid: each.replicas for uid, each in workload_index(world.view.state).views.items()}

        await world.until(lambda: counted() == wanted)
        assert server.refused == []


def test_every_kind_with_replicas_is_mirrored_once() -> None:
    plurals = [each.plural for each in MIRRORED if not each.field_selector]
    assert set(plurals) >= WITH_REPLICAS
    assert len(plurals) == len(set(plurals))


@pytest.mark.parametrize("role", ["manager-role.yaml", "genesis-role.yaml"])
def test_what_is_mirrored_may_be_listed(role: str) -> None:
    documents = yaml.safe_load_all((BASE / role).read_text(encoding="utf-8"))
    rules = [rule for each in documents if each["kind"] == "ClusterRole" for rule in each["rules"]]
    for resource in MIRRORED:
        named = resource.served_as or resource.plural
        assert any(
            "list" in rule["verbs"] and resource.group in rule["apiGroups"] and named in rule["resources"]
            for rule in rules
        ), resource
