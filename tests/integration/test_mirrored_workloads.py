"""Workloads that control pods come from the API server into the descheduler's limits, whatever their kind.

The replicas of kinds that are not mirrored come from their scale.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_descheduler.domain.view.workloads import WITH_REPLICAS, workload_index
from koord_manager.domain.gateway.resources import mirrored_resources
from koordcore.events.objects import SCALES
from koordcore.protocol.crd.catalogue import definition_texts
from support.kubernetes.apiserver import ApiServer
from support.kubernetes.authorization import BASE, User, manager_user
from support.kubernetes.definitions import DATABASES, SCALES_RIGHT, database, databases, definition, reference_to
from support.kubernetes.gateway_world import World, gateway_world, pod

MIRRORED = mirrored_resources(slo_config=("koordinator-system", "slo-controller-config"), take_node_metrics=False)
KINDS = {
    "ReplicationController": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "CloneSet": "apps.kruise.io/v1alpha1",
    "StatefulSet of Kruise": "apps.kruise.io/v1beta1",
}


async def owner(server: ApiServer, name: str, instances: int, kind: str = "Database") -> dict[str, Any]:
    """Create or change a controller of pods, and return a reference to it."""
    return reference_to(await server.apply(database(name, instances, kind)))


async def owned_pod(server: ApiServer, name: str, owner: dict[str, Any]) -> None:
    """Create a pod with a controller."""
    document = pod(name)
    document["metadata"]["ownerReferences"] = [owner]
    await server.apply(document)


async def serve_databases(server: ApiServer) -> User:
    """Install CRDs: `Database` has a scale, which the returned manager may read, and `Queue` has none."""
    for text in definition_texts().values():
        await server.apply(yaml.safe_load(text))
    await server.apply(databases())
    await server.apply(definition("queues", "Queue", "v1", group=DATABASES))
    user = server.users["manager"] = manager_user()
    user.rules = [*(user.rules or ()), SCALES_RIGHT]
    return user


def counted(world: World) -> dict[str, int]:
    """Return controller -> its replicas, as the descheduler folds them."""
    return {uid: each.replicas for uid, each in workload_index(world.view.state).views.items()}


def asked_scales(server: ApiServer) -> list[str]:
    """Return the path of each request for a scale, from the plural on."""
    return [path.split("/default/")[1] for _, path in server.requests if path.endswith("/scale")]


@pytest.mark.deep
async def test_replicas_of_other_kinds_come_from_their_scale(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        server = world.server
        await serve_databases(server)
        main, other = await owner(server, "main", 3), await owner(server, "other", 1)
        stale, queue = {**other, "uid": "of-an-earlier-one"}, await owner(server, "jobs", 2, "Queue")
        for name, each in {"a": main, "b": other, "c": stale, "d": queue}.items():
            await owned_pod(server, name, each)
        await world.begin(token="manager")
        await world.until(lambda: len(asked_scales(server)) >= 3)
        await world.until(lambda: counted(world) == {main["uid"]: 3, other["uid"]: 1})

        # The next leader asks for all at once.
        gone = world.uid("b")
        await server.delete("pods", "default", "b")
        await world.until(lambda: world.spec(gone) is None)
        await world.stop()
        await owner(server, "main", 5)
        await world.begin(token="manager")

        await world.until(lambda: counted(world) == {main["uid"]: 5})
        assert server.refused == []
        assert sorted(set(asked_scales(server))) == ["databases/main/scale", "databases/other/scale"]


@pytest.mark.deep
async def test_an_outage_changes_nothing_and_a_refusal_counts_for_the_whole_kind(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        server = world.server
        user = await serve_databases(server)
        owners = [await owner(server, name, number) for number, name in enumerate(("main", "other"), 2)]
        for each in owners:
            await owned_pod(server, f"of-{each['name']}", each)
        known = {each["uid"]: number for number, each in enumerate(owners, 2)}
        await world.begin(token="manager")
        await world.until(lambda: counted(world) == known)
        await world.stop()

        asked = len(asked_scales(server))
        server.faults.answer("GET", "/scale", 503)
        await world.begin(token="manager")
        await world.until(lambda: len(asked_scales(server)) >= asked + 2)
        assert counted(world) == known
        position = world.view.state.position
        await world.stop()

        asked = len(asked_scales(server))
        user.rules = [rule for rule in user.rules or () if rule != SCALES_RIGHT]
        await world.begin(token="manager")
        await world.until(lambda: world.view.state.position > position and not counted(world))
        assert len(asked_scales(server)) == asked + 1
        assert [each[2] for each in server.refused] == [f"databases/scale.{DATABASES}"]


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
        await world.until(lambda: counted(world) == wanted)
        assert server.refused == []


def test_every_kind_with_replicas_is_mirrored_once() -> None:
    plurals = [each.plural for each in MIRRORED if not each.field_selector]
    assert set(plurals) >= WITH_REPLICAS - {SCALES}
    assert len(plurals) == len(set(plurals))


@pytest.mark.parametrize("role", ["manager-role.yaml", "genesis-role.yaml"])
def test_what_is_mirrored_may_be_listed(role: str) -> None:
    documents = yaml.safe_load_all((BASE / role).read_text(encoding="utf-8"))
    rules = [rule for each in documents if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert all("configmaps" not in rule["resources"] for rule in rules), "only those that it needs, by name"
    for resource in (each for each in MIRRORED if not each.field_selector):
        named = resource.served_as or resource.plural
        assert any(
            "list" in rule["verbs"] and resource.group in rule["apiGroups"] and named in rule["resources"]
            for rule in rules
        ), resource
