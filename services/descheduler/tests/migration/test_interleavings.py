"""The whole service under random interleavings of jobs, drains, preemption, kills, late answers and manual deletes.

At each position of the log the limit of the workload holds, every job goes through legal steps only, and at the end
every job has ended.
"""

import contextlib
import random
import time
from typing import Any

import pytest
from koord_descheduler.cycle import Rounds
from koordcore.events import CATALOGUE
from koordcore.events.migration import MigrationEnded
from koordcore.protocol.drains import ConfirmState
from koordcore.state import ClusterState
from koordcore.state.migrations import MigrationState
from support.depth import seeds
from support.descheduler.jobs import configuration
from support.descheduler.kill import Kill
from support.descheduler.play import LIMIT, REPLICAS, Checker, Play
from support.descheduler.world import World
from support.until import until

STEPS = 40
MOST_EFFECTS = 12
LIMITS: dict[str, Any] = {
    "maxUnavailablePerWorkload": LIMIT,
    "maxMigratingPerWorkload": REPLICAS - 1,
    "maxMigratingPerNode": 0,
    "objectLimiters": {},
    "evictQPS": 1000,
    "evictBurst": 10,
}
JOBS = {
    "job": 8, "place": 8, "leave": 6, "answer late": 2, "give up": 2, "preempt": 1, "delete job": 1,
    "delete reservation": 1, "abort": 1, "kill": 3,
}  # fmt: skip
DRAINS = {"job": 2, "place": 12, "drain": 4, "drain group": 2, "confirm": 5, "abort drain": 1, "delete drain": 1}
SPEED = 100
"""The service looks at drains every 3 seconds, so its clock runs faster."""


async def further_rounds(rounds: Rounds, kill: Kill, number: int) -> None:
    """Wait until the service has begun so many further rounds, or is dead."""
    begun = rounds.begun
    await until(lambda: kill.is_reached or rounds.begun >= begun + number)


async def ends(play: Play, weights: dict[str, int], text: bytes, *flags: str, rounds_per_step: int = 1) -> None:
    """Let things happen while the service runs and is killed. Then all jobs must end, and each step must be legal."""
    rng, world = play.rng, play.world
    async with contextlib.AsyncExitStack() as stack:

        async def started(kill: Kill | None) -> Rounds:
            return (await stack.enter_async_context(world.service(text, kill, flags)))[1]

        kill = Kill(rng.randrange(MOST_EFFECTS), rng.random() < 0.5)
        rounds = await started(kill)
        for _ in range(STEPS):
            what = rng.choices(list(weights), list(weights.values()))[0]
            if what == "kill":
                await stack.aclose()
                kill = Kill(rng.randrange(MOST_EFFECTS), rng.random() < 0.5)
                rounds = await started(kill)
            else:
                await play.step(what)
            await further_rounds(rounds, kill, rounds_per_step)
        await stack.aclose()
        await started(None)

        going_on: dict[str, object] = {}

        async def all_ended() -> bool:
            await play.finish()
            state = ClusterState()
            for stored in await world.stored("migration"):
                state.apply(stored)
            known = state.of_kind(MigrationState)
            going_on.clear()
            for name, document in world.objects("PodMigrationJob").items():
                each = known.get(document["metadata"]["uid"])
                # one without a fact was aborted by a user before it had any
                if not (each.ended_at if each is not None else "status" in document):
                    going_on[name] = (each, document)
            return not going_on

        try:
            await until(all_ended, every=0.05)
        except AssertionError as error:
            raise AssertionError(f"these jobs have not ended: {going_on}") from error
    kinds = ("podspec", "eviction", "migration")
    events = [(stored, event) for stored in await world.stored(*kinds) if (event := CATALOGUE.read(stored)) is not None]
    Checker().check(events)


@pytest.mark.parametrize("seed", seeds(6))
async def test_every_interleaving_keeps_the_limit_and_ends_every_job(seed: int) -> None:
    play = Play(World(), random.Random(seed))
    await play.begin()
    await ends(play, JOBS, configuration(plugins=False, **LIMITS))
    ended = [each for each in await play.world.facts("migration") if isinstance(each, MigrationEnded)]
    assert any(each.progress.phase == "Succeeded" for each in ended)


@pytest.mark.parametrize("seed", seeds(4))
async def test_drains_beside_other_jobs_keep_the_limit_and_end(seed: int) -> None:
    play = Play(World(), random.Random(seed))
    await play.begin()
    often: dict[str, Any] = {"interval": "2s", "arbitrationArgs": {"interval": "1s"}, "defaultJobTTL": "0s"}
    text = configuration(plugins=False, **often, **LIMITS)
    now = time.time()
    clock = f"--clock={SPEED}@{now}@{now}"

    async def is_draining() -> bool:
        await play.step("place")
        return any(each.trigger == "Drain" for each in await play.world.requests())

    await play.drain(ConfirmState.CONFIRMED)
    async with play.world.service(text, flags=[clock]):
        await until(is_draining)
    await ends(play, JOBS | DRAINS, text, clock, rounds_per_step=2)
