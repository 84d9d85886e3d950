"""Without an API server the manager binds claims, makes volumes, and frees those of deleted claims."""

from typing import Any

from koord_manager.domain.controllers.standalone.volume_claims import volume_drafts
from koordcore.events.envelope import AggregateRef, BasedOn
from koordcore.events.objects import CustomObjectDeleted, custom_ref
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.protocol.storage import BIND_COMPLETED
from koordcore.values.allocation import Allocation, ClaimBinding
from support.kubernetes.volumes import claim, local_volume, storage_class
from support.manager.world import ManagerWorld

NOW = "2026-01-01T00:00:00Z"
KEY = "default=data"


def world_with(*documents: dict[str, Any]) -> ManagerWorld:
    world = ManagerWorld()
    plurals = {
        "PersistentVolumeClaim": "persistentvolumeclaims",
        "PersistentVolume": "persistentvolumes",
        "StorageClass": "storageclasses",
    }
    for document in documents:
        document["metadata"].setdefault("uid", f"uid-of-{document['metadata']['name']}")
        world.custom(plurals[document["kind"]], document)
    return world


def place(world: ManagerWorld, *bindings: ClaimBinding, uid: str = "p") -> None:
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="test", based_on=BasedOn())
    placed = PodPlaced(
        namespace="default",
        name=uid,
        node="n",
        requests={},
        attempt=1,
        queued_at=NOW,
        allocation=Allocation(volume_claims=bindings),
        explanation=explanation,
    )
    world.fact(AggregateRef("pod", uid), placed)


def step(world: ManagerWorld, key: str) -> int:
    """Decide a key and take the facts; return their number."""
    return len(world.take(volume_drafts(world.view, key, NOW)))


def stored(world: ManagerWorld, plural: str, name: str) -> dict[str, Any]:
    found = world.view.custom(plural, "default" if plural == "persistentvolumeclaims" else "", name)
    return found.object or {} if found is not None else {}


def data(volume: str = "") -> ClaimBinding:
    return ClaimBinding(namespace="default", claim="data", volume=volume)


def test_claim_of_a_placed_pod_gets_the_chosen_volume() -> None:
    world = world_with(storage_class(), local_volume("disk", "n"), claim("data"))
    place(world, data("disk"))
    assert step(world, "p") == 2
    found = stored(world, "persistentvolumeclaims", "data")
    assert (found["spec"]["volumeName"], found["status"]["phase"]) == ("disk", "Bound")
    assert BIND_COMPLETED in found["metadata"]["annotations"]
    assert stored(world, "persistentvolumes", "disk")["spec"]["claimRef"]["name"] == "data"
    assert step(world, "p") == 0


def test_volume_is_made_for_the_node_and_deleted_with_its_claim() -> None:
    world = world_with(storage_class("disks", "disks.example.com"), claim("data", of="disks", size="3Gi"))
    place(world, data())
    assert step(world, "p") == 2
    made = stored(world, "persistentvolumes", "pvc-uid-of-data")
    assert made["spec"]["capacity"] == {"storage": "3Gi"}
    assert made["spec"]["csi"] == {"driver": "disks.example.com"}
    assert made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["n"]
    delete(world)
    assert step(world, KEY) == 1
    assert not stored(world, "persistentvolumes", "pvc-uid-of-data")


def delete(world: ManagerWorld) -> None:
    ref = custom_ref("persistentvolumeclaims", "default", "data")
    world.fact(ref, CustomObjectDeleted(kind="PersistentVolumeClaim", namespace="default", name="data"))


def test_volume_of_a_deleted_claim_is_released_and_given_to_no_other() -> None:
    world = world_with(storage_class(), local_volume("disk", "n"), claim("data"))
    place(world, data("disk"))
    step(world, "p")
    delete(world)
    assert step(world, KEY) == 1
    assert stored(world, "persistentvolumes", "disk")["status"] == {"phase": "Released"}
    assert step(world, KEY) == 0
    world.custom("persistentvolumeclaims", {**claim("data"), "metadata": {**claim("data")["metadata"], "uid": "new"}})
    place(world, data("disk"), uid="q")
    assert step(world, "q") == 0


def test_claim_that_names_its_volume_is_bound_without_a_pod() -> None:
    wanted = claim("data")
    wanted["spec"]["volumeName"] = "disk"
    world = world_with(wanted)
    assert step(world, KEY) == 0
    world = world_with(wanted, local_volume("disk", "n"))
    assert step(world, KEY) == 2
    assert stored(world, "persistentvolumeclaims", "data")["status"] == {"phase": "Bound"}


def test_claim_waits_until_a_pod_uses_it() -> None:
    world = world_with(storage_class(), local_volume("disk", "n"), claim("data"))
    assert step(world, KEY) == 0
