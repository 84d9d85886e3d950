"""The Kubernetes events about migrations and drains, as an API server gets them.

Source:
    descheduler spec, 13
"""

from pathlib import Path
from typing import Any, Final

import support.descheduler.world as on_log
from koordcore.events import CATALOGUE
from koordcore.events.drain import (
    DrainAborted,
    DrainCompleted,
    DrainGroupChanged,
    DrainGroupStarted,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.envelope import AggregateRef, Event, StoredEvent, name_token
from koordcore.events.gateway import PodEvicted, PodEvictionRequested
from koordcore.events.migration import MigrationEnded
from koordcore.events.objects import PodSpecDeleted
from koordcore.events.reservation import ReservationUnschedulable
from msgspec.structs import replace
from support.descheduler.jobs import configuration, job
from support.kubernetes.gateway_world import World, gateway_world, install_crds, node, pod
from support.until import until

Row = tuple[str, str, str, str, str]
"""Name of the object, type, reason, action and text of a Kubernetes event."""
WIDE: Final[dict[str, Any]] = {
    "maxMigratingPerNode": 0,
    "maxMigratingPerWorkload": 10,
    "maxUnavailablePerWorkload": 10,
    "objectLimiters": {},
    "evictBurst": 20,
}
CAUSE: Final = {"koordinator.sh/evict-reason": "node is hot", "koordinator.sh/evict-trigger": "LowNodeLoad"}
MIGRATING: Final[list[Row]] = [
    (job, type_, reason, "Migrating", text)
    for job, type_, reason, text in (
        *(
            (name, "Normal", "ReservationCreated", f'Successfully create Reservation "uid-{name}"')
            for name in ("done", "same", "full")
        ),
        ("done", "Normal", "ReservationScheduled", 'Assigned Reservation "uid-done" to node "b"'),
        ("done", "Normal", "Evicting", 'Pod "d/p" evicted from node "a" by the reason "node is hot"'),
        ("done", "Normal", "EvictComplete", 'Pod "d/p" has been evicted'),
        ("done", "Normal", "WaitForPodBindReservation", 'Waiting for a Pod that binds Reservation "uid-done"'),
        ("done", "Normal", "PodBoundReservation", 'Bind Pod "d/q" in Reservation "uid-done"'),
        ("done", "Normal", "WaitForBoundPodReady", 'Waiting for Pod "d/q" to become ready'),
        ("done", "Normal", "BoundPodReady", 'Pod "d/q" is ready'),
        ("done", "Normal", "Complete", 'Bind Pod "d/q" in Reservation "uid-done"'),
        ("late", "Warning", "Timeout", "Abort job caused by timeout"),
        ("nameless", "Warning", "InvalidPodRef", "Abort job caused by invalid PodRef"),
        ("podless", "Warning", "MissingPod", 'Abort job caused by missing Pod "d/nobody"'),
        ("unreserved", "Warning", "MissingReservation", 'Abort job caused by missing Reservation "none"'),
        (
            "same",
            "Warning",
            "ForbiddenMigratePod",
            'Scheduler assignes the Reservation "uid-same" on the same node as the Pod',
        ),
        ("full", "Warning", "Unschedulable", "0/2 nodes are available"),
        ("refused", "Warning", "FailedCreateReservation", "Failed to create Reservation caused by not allowed"),
        ("by-job", "Normal", "Descheduled", 'Pod evicted from node "node-1" by the reason "node is hot"'),
    )
]
DIRECTLY: Final[Row] = ("directly", "Normal", "Descheduled", "Evicting", "pod evicted by it is too old")
DRAINS: Final[list[Row]] = [
    ("d", "Normal", "Pending", "", "another drain works on the node"),
    ("d", "Normal", "Running", "", "the phase is Running"),
    *(
        ("d", "Warning", each, "", f"the condition {each} became true")
        for each in (
            "FailedMigrationJobExists",
            "UnavailableReservationExists",
            "UnexpectedPodAfterCompleteExists",
            "UnexpectedReservationExists",
            "UnmigratablePodExists",
        )
    ),
    ("d", "Normal", "Complete", "", "the phase is Complete"),
    ("e", "Normal", "Running", "", "the phase is Running"),
    ("e", "Normal", "Aborted", "", "a user has aborted it"),
    *(
        ("g", "Normal", phase, "", f"the phase is {phase}")
        for phase in ("Planning", "Waiting", "Running", "Succeeded", "Failed", "Aborted")
    ),
]


async def test_each_row_of_the_table_reaches_the_api_server(tmp_path: Path) -> None:
    recorded = await _facts_of_jobs()
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        for stored in recorded:
            event = CATALOGUE.read(stored)
            assert event is not None
            await world.append(stored.ref, event)
        for ref, event in _facts_of_drains():
            await world.append(ref, event)
        await _evict_pods(world)
        rows = {*MIGRATING, DIRECTLY, *DRAINS, _failed_call(world)}
        await world.until(lambda: rows <= _rows(world))
        assert {row for row in _rows(world) - rows if row[0] not in ("by-job", "directly")} == set(), "no other events"
        events = world.server.objects("events", "")
        assert {each["reportingComponent"] for each in events if each["reason"] == "Descheduled"} == {
            "koord-descheduler"
        }


async def _facts_of_jobs() -> list[StoredEvent]:
    """Run the service on jobs that reach every step and every failure, and return its facts about them."""
    world = on_log.World()
    await world.begin()
    await world.replicas(20)
    for name, of_node in (("p", "a"), ("s", "b"), ("u", "b"), ("f", "b"), ("r", "b"), ("l", "b")):
        await world.pod(name, of_node)
    old = job("late", "l", ttl="1s")
    old["metadata"]["creationTimestamp"] = on_log.AT
    nameless = job("nameless", "p")
    nameless["spec"]["podRef"] = {}
    done = job("done", "p")
    done["metadata"]["annotations"] = CAUSE
    unreserved = job("unreserved", "u", reservationOptions={"reservationRef": {"name": "none"}})
    documents = [done, old, nameless, job("podless", "nobody"), unreserved, job("same", "s"), job("full", "f")]
    for document in [*documents, job("refused", "r")]:
        await world.custom("PodMigrationJob", document)
    world.refuses = frozenset({"uid-refused"})
    async with world.service(configuration(plugins=False, **WIDE)):
        await until(lambda: {"uid-done", "uid-same", "uid-full"} <= world.objects("Reservation").keys())
        unschedulable = ReservationUnschedulable(name="uid-full", message="0/2 nodes are available")
        await world.write(AggregateRef("reservation", "uid-uid-full"), unschedulable)
        await world.placed_reservation("uid-same", "b")
        await world.placed_reservation("uid-done", "b")
        await _is_noticed(world, "Evicting")
        await world.answer("p", PodEvicted())
        await world.write(AggregateRef("podspec", "u-p"), PodSpecDeleted(namespace="d", name="p"))
        await _is_noticed(world, "WaitForPodBindReservation")
        await world.owner("uid-done", "q", "b", ready=False)
        await _is_noticed(world, "WaitForBoundPodReady")
        await world.pod("q", "b")
        for reason in ("Complete", "Unschedulable", "FailedCreateReservation"):
            await _is_noticed(world, reason)
        await until(lambda: _have_ended(world, 6))
    return await world.stored("migration")


async def _is_noticed(world: on_log.World, reason: str) -> None:
    async def found() -> bool:
        facts = await world.facts("migration")
        return any(each.reason == reason for fact in facts for each in getattr(fact, "notices", ()))

    await until(found, reason)


async def _have_ended(world: on_log.World, number: int) -> bool:
    return sum(isinstance(each, MigrationEnded) for each in await world.facts("migration")) == number


def _facts_of_drains() -> list[tuple[AggregateRef, Event]]:
    d, e = (AggregateRef("drain", name_token(name)) for name in "de")
    group = AggregateRef("draingroup", name_token("g"))
    bad = [row[2] for row in DRAINS if row[0] == "d" and row[1] == "Warning"]
    phases = [row[2] for row in DRAINS if row[0] == "g"]
    return [
        (d, DrainWaiting(object_uid="u-d", node="n", message="another drain works on the node")),
        (d, DrainStarted(object_uid="u-d", node="n")),
        (d, DrainPodsChanged(conditions=["OnceAvailable", *bad])),
        (d, DrainCompleted()),
        (e, DrainStarted(object_uid="u-e", node="n")),
        (e, DrainAborted(reason="a user has aborted it")),
        (group, DrainGroupStarted(object_uid="u-g", nodes=["n"])),
        *((group, DrainGroupChanged(object_uid="u-g", phase=phase)) for phase in phases),
    ]


async def _evict_pods(world: World) -> None:
    """Evict one pod by a job, which a disruption budget delays, and one pod without a job."""
    await world.server.apply(node("node-1"))
    uids: dict[str, str] = {}
    for name in ("by-job", "directly"):
        await world.server.apply({**pod(name), "metadata": {"name": name, "labels": {"app": name}}})
        uids[name] = await world.mirrored(name)
        await world.place(uids[name], "node-1")
        await world.until(lambda name=name: world.node_of(name) == "node-1")
        await world.server.patch_status("pods", "default", name, {"phase": "Running"})
    await world.server.apply(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "by-job"}}, "minAvailable": 1},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }
    )
    directly = PodEvictionRequested(
        namespace="default",
        name="directly",
        node="node-1",
        initiator="descheduler",
        reason="Descheduled",
        message="it is too old (PodLifeTime)",
        trigger="PodLifeTime",
    )
    spec = {"podRef": {"namespace": "default", "name": "by-job"}}
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob"}
    made = await world.server.apply({**kind, "metadata": {"name": "done"}, "spec": spec})
    await world.until(lambda: world.view.custom("podmigrationjobs", "", "done"))
    uid = made["metadata"]["uid"]
    by_job = replace(directly, name="by-job", message="node is hot (migration job done)", job="done", job_uid=uid)
    for request in (by_job, directly):
        await world.append(AggregateRef("eviction", uids[request.name]), request)
    await world.until(lambda: any(row[1:3] == ("Warning", "Evicting") for row in _rows(world)))
    await world.server.patch_status("poddisruptionbudgets", "default", "keep", {"disruptionsAllowed": 1})


def _failed_call(world: World) -> Row:
    """Return the row of the eviction that the disruption budget refused. The text of the API server is part of it."""
    (row,) = (row for row in _rows(world) if row[1:3] == ("Warning", "Evicting"))
    assert row[0] == "done"
    assert row[4].startswith('Failed evict Pod "default/by-job" caused by ')
    assert "disruption budget" in row[4]
    assert row[3] == "Migrating"
    return row


def _rows(world: World) -> set[Row]:
    return {
        (each["involvedObject"]["name"], each["type"], each["reason"], each.get("action", ""), each["message"])
        for each in world.server.objects("events", "")
    }
