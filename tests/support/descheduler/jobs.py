"""Migration jobs for tests of the descheduler: configurations, jobs, and waiting for their facts."""

from typing import Any

from koord_descheduler.cycle import Rounds
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.gateway import PodEvicted
from koordcore.events.migration import MigrationAdvanced, MigrationEnded
from koordcore.events.objects import PodSpecDeleted
from koordcore.state import ClusterState
from koordcore.state.migrations import MigrationState
from koordcore.values import codec
from support.descheduler.world import LATE, World
from support.until import until

REPLICAS = 20
"""Replicas of the workload of the pods, where two of them may be unavailable."""


def configuration(
    mode: str = "ReservationFirst",
    *,
    plugins: bool = True,
    interval: str = "20ms",
    most: int | None = None,
    **arguments: Any,
) -> bytes:
    """Return a configuration whose rounds and arbitrations follow each other at once.

    Args:
        mode: Mode of the jobs.
        plugins: Whether RemovePodsViolatingNodeTaints makes jobs.
        interval: Time between two rounds.
        most: Largest number of pods that a round moves.
        arguments: Further arguments of the MigrationController.
    """
    args = {"defaultJobMode": mode, "arbitrationArgs": {"interval": "10ms"}, **arguments}
    working = {"deschedule": {"enabled": [{"name": "RemovePodsViolatingNodeTaints"}]}} if plugins else {}
    profile = {"name": "p", "plugins": working, "pluginConfig": [{"name": "MigrationController", "args": args}]}
    document = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": interval,
        "profiles": [profile],
        **({} if most is None else {"maxNoOfPodsToEvictTotal": most}),
    }
    return codec.encode(document)


def job(name: str, pod: str, **spec: Any) -> dict[str, Any]:
    """Return a PodMigrationJob as a user writes it."""
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": LATE},
        "spec": {"podRef": {"namespace": "d", "name": pod, "uid": f"u-{pod}"}, **spec},
    }


async def progress(world: World) -> tuple[str, list[str]]:
    """Return the phase of the last fact of the only job, and the types of its conditions."""
    found = [each for each in await world.facts("migration") if isinstance(each, MigrationAdvanced | MigrationEnded)]
    if not found:
        return "", []
    last = found[-1].progress
    return last.phase, [each.type for each in last.conditions]


async def reached(world: World, phase: str, *conditions: str) -> None:
    """Wait until the last fact of the only job has this phase and these conditions."""

    async def is_reached() -> bool:
        found, types = await progress(world)
        return found == phase and types == list(conditions)

    await until(is_reached)


async def is_told(world: World, kind: type[Event], count: int = 1) -> None:
    """Wait until there are so many facts of a kind about jobs."""

    async def found() -> bool:
        return sum(isinstance(each, kind) for each in await world.facts("migration")) == count

    await until(found)


async def leave(world: World, name: str) -> None:
    """Write that a pod was evicted and is gone, as the gateway and the mirror do."""
    await world.answer(name, PodEvicted())
    await world.write(AggregateRef("podspec", f"u-{name}"), PodSpecDeleted(namespace="d", name=name))


async def asked(world: World, times: int) -> None:
    """Wait until so many evictions are requested."""

    async def are_requested() -> bool:
        return len(await world.requests()) == times

    await until(are_requested)


async def states(world: World) -> dict[str, MigrationState]:
    """Return uid -> state of each migration, folded from the facts."""
    state = ClusterState()
    for stored in await world.stored("migration"):
        state.apply(stored)
    return dict(state.of_kind(MigrationState).items())


async def folded(world: World, rounds: Rounds) -> None:
    await rounds.runner.reached((await world.bus.events.head()).last_seq)
