"""What the gateway writes about Reservations: their status, and the annotations of bound pods that use one."""

import json
from pathlib import Path
from typing import Any

from koordcore.events.envelope import AggregateRef, BasedOn
from koordcore.events.node_ledger import NodeResourcesTaken, PodOnNode
from koordcore.events.pod import PlacementExplanation, PodPlaced, PodReallocated
from koordcore.protocol import keys
from koordcore.values.allocation import NOTHING, Allocation, ReservationUse
from support.kubernetes.gateway_world import World, gateway_world, install_crds, node, pod

RESERVATION = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "web"},
    "spec": {
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
        "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}},
        "allocateOnce": False,
    },
}
EXPLANATION = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="test", based_on=BasedOn())


def annotation(world: World, name: str, key: str) -> Any:
    """The decoded annotation of a pod at the API server; None without it."""
    found = world.server.object("pods", "default", name) or {}
    text = found["metadata"].get("annotations", {}).get(key)
    return None if text is None else json.loads(text)


async def bound(world: World, name: str, labels: dict[str, str], allocation: Allocation = NOTHING) -> str:
    """A pod that the scheduler placed and the gateway bound; returns its uid."""
    manifest = pod(name)
    await world.server.apply({**manifest, "metadata": {**manifest["metadata"], "labels": labels}})
    uid = await world.mirrored(name)
    await world.place(uid, "node-1", allocation)
    await world.until(lambda: world.node_of(name) == "node-1")
    return uid


async def test_a_running_pod_learns_which_reservation_took_its_place(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        await world.server.apply(node("node-1"))
        await world.server.apply(RESERVATION)
        uid = str((world.server.object("reservations", "", "web") or {})["metadata"]["uid"])
        old = await bound(world, "old", {"app": "web"})

        own = Allocation(reservation=ReservationUse(name="web", uid=uid))
        used = Allocation(reservation=ReservationUse(name="web", uid=uid, amounts={"cpu": 1000}))
        parts: dict[str, Any] = {"namespace": "default", "qos": "LS", "kube_qos": "Burstable", "priority_class": "p"}
        held = PodOnNode(uid=uid, name="web", requests={"cpu": 2000}, allocation=own, **parts)
        owner = PodOnNode(uid=old, name="old", requests={"cpu": 1000}, allocation=used, **parts)
        await world.append(AggregateRef("node", "node-1"), NodeResourcesTaken(pods=[held, owner]))
        placed = PodPlaced(
            namespace="default",
            name="web",
            node="node-1",
            requests={"cpu": 2000},
            attempt=1,
            queued_at="2026-01-01T00:00:00Z",
            allocation=own,
            explanation=EXPLANATION,
        )
        await world.append(AggregateRef("pod", uid), placed)
        changed = PodReallocated(
            namespace="default",
            name="old",
            node="node-1",
            requests={"cpu": 1000},
            allocation=used,
            reason="pre-allocated",
        )
        await world.append(AggregateRef("pod", old), changed)

        await world.until(lambda: annotation(world, "old", keys.RESERVATION_ALLOCATED) == {"name": "web", "uid": uid})

        def status() -> dict[str, Any]:
            return (world.server.object("reservations", "", "web") or {}).get("status", {})

        await world.until(lambda: status().get("phase") == "Available")
        assert [each["name"] for each in status()["currentOwners"]] == ["old"]
        assert (status()["allocatable"], status()["allocated"]) == ({"cpu": "2"}, {"cpu": "1"})


async def test_a_pod_that_acts_as_a_reservation_names_its_owner(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        holder = await bound(world, "holder", {keys.OPERATING_MODE: "Reservation"})
        used = Allocation(reservation=ReservationUse(name="holder", uid=holder, amounts={"cpu": 1000}))
        user = await bound(world, "user", {}, used)

        expected = {"namespace": "default", "name": "user", "uid": user}
        await world.until(lambda: annotation(world, "holder", keys.RESERVATION_CURRENT_OWNER) == expected)
        assert annotation(world, "user", keys.RESERVATION_ALLOCATED) == {"name": "holder", "uid": holder}
