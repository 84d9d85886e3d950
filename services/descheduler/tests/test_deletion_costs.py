"""Ranks of ScaleDownBinPack become deletion costs of pods. The audit has each change, before and after its effect."""

from collections.abc import Sequence
from typing import Any

import pytest
from koord_descheduler.shell.object_writer import NotWritten
from koordcore.events.descheduling import MOST_COSTS, DeletionCostsCarriedOut, DeletionCostsDecided
from koordcore.protocol import keys
from koordcore.requests.objects import ChangeOutcome, ChangeResult, ObjectChange, PatchObject
from koordcore.stories.modifications import KINDS, AuditReader, Modification
from koordcore.stories.pod import pod_story
from koordcore.values import codec
from support.descheduler.kill import Kill
from support.descheduler.world import World
from support.until import until

EVICTOR = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
SELECTED: dict[str, Any] = {"podSelectors": [{"name": "all", "selector": {}}]}
PROFILE: dict[str, Any] = {
    "name": "ranks",
    "plugins": {"balance": {"enabled": [{"name": "ScaleDownBinPack"}]}, "evict": EVICTOR, "filter": EVICTOR},
    "pluginConfig": [{"name": "ScaleDownBinPack", "args": SELECTED}],
}
RANKING = codec.encode(
    {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "1h",
        "profiles": [PROFILE],
    }
)
REPLICAS = 8


class Refusing(World):
    """A cluster whose API server refuses to patch the pod "p"."""

    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        """Change objects, except for "p"."""
        outcomes: list[ChangeOutcome] = []
        for each in changes:
            is_refused = isinstance(each, PatchObject) and each.name == "p"
            refusal = [ChangeOutcome(result=ChangeResult.REFUSED, message="forbidden")]
            outcomes += refusal if is_refused else await super().change([each])
        return outcomes


class Silent(World):
    """A cluster whose manager does not answer at first."""

    is_silent = True
    asked = 0

    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        """Change objects, unless the manager is silent."""
        self.asked += 1
        if self.is_silent:
            raise NotWritten("no answer")
        return await super().change(changes)


async def begun(world: World) -> World:
    await world.begin()
    await world.replicas(REPLICAS)
    for name in ("p", "q"):
        await world.pod(name, "a")
    return world


async def audit(world: World) -> list[Modification]:
    reader = AuditReader()
    found = [record for stored in await world.stored(*KINDS) for record in reader.read(stored)]
    return [each for each in found if each.action == "patch_deletion_cost"]


async def is_ranked(world: World) -> bool:
    """Return whether the outcome of each decision about deletion costs is recorded, and there is one."""
    facts = await world.facts("descheduling")
    ends = [isinstance(each, DeletionCostsCarriedOut) for each in facts]
    return any(ends) and sum(ends) == sum(isinstance(each, DeletionCostsDecided) for each in facts)


async def rounds_later(world: World) -> None:
    """Run the service until two further rounds have ended after the first deletion costs were written."""
    async with world.service(RANKING) as (_, rounds):
        await until(lambda: is_ranked(world))
        await rounds.runner.reached((await world.bus.events.head()).last_seq)
        await rounds.run_now()
        await rounds.run_now()


async def test_each_rank_is_recorded_before_and_after_it_is_written_and_a_second_round_changes_nothing() -> None:
    world = await begun(World())
    await rounds_later(world)
    records = await audit(world)
    allowed = [each for each in records if each.decision == "allowed"]
    done = [each for each in records if each.decision == "done"]
    assert len(records) == len(allowed) + len(done) == 2 * (REPLICAS + 2), "each pod was ranked once"
    assert len({each.id for each in records}) == len(records) > len({each.position for each in records})
    assert records == await audit(world), "a second reader gets the same ids"
    assert {(each.pod, each.after[keys.POD_DELETION_COST]) for each in allowed} == {
        (change.name, change.patch["metadata"]["annotations"][keys.POD_DELETION_COST])
        for change in world.changes
        if isinstance(change, PatchObject)
    }
    assert sorted(int(each.after[keys.POD_DELETION_COST]) for each in done) == list(range(REPLICAS + 2))
    first, last = (next(each for each in found if each.pod == "p") for found in (allowed, done))
    assert (first.profile, first.plugin, first.node, first.uid) == ("ranks", "ScaleDownBinPack", "a", "u-p")
    assert first.round
    assert (last.round, last.before, last.after) == (first.round, first.before, first.after)
    assert first.before == {keys.POD_DELETION_COST: ""}
    patched = next(each for each in await world.stored("podspec") if each.type == "PodSpecChanged")
    assert allowed[0].position < patched.seq < done[0].position
    assert await world.requests() == []


async def test_a_refused_change_is_recorded_once_with_its_reason() -> None:
    world = await begun(Refusing())
    await rounds_later(world)
    refused = [each for each in await audit(world) if each.decision == "failed"]
    assert [(each.pod, each.reasons) for each in refused] == [("p", ["forbidden"])]


async def test_a_large_ranking_is_recorded_in_parts_of_200() -> None:
    world = World()
    await world.begin()
    await world.replicas(MOST_COSTS + 1)
    await rounds_later(world)
    decided = [each for each in await world.facts("descheduling") if isinstance(each, DeletionCostsDecided)]
    assert [len(each.costs) for each in decided] == [MOST_COSTS, 1]


async def test_a_round_stops_at_the_first_request_without_answer_and_a_later_round_writes_all_costs() -> None:
    world = Silent()
    await world.begin()
    await world.replicas(MOST_COSTS + 1)
    async with world.service(RANKING) as (_, rounds):
        await until(lambda: rounds.done == 1)
        assert world.asked == 1
        await rounds.runner.reached((await world.bus.events.head()).last_seq)
        world.is_silent = False
        await rounds.run_now()
    records = await audit(world)
    failed = [each for each in records if each.decision == "failed"]
    assert [each.reasons for each in failed] == [["no answer"]] * MOST_COSTS
    assert sum(each.decision == "done" for each in records) == MOST_COSTS + 1


async def test_the_story_of_a_pod_has_its_own_ranks_only() -> None:
    world = await begun(Refusing())
    await rounds_later(world)
    stored = await world.stored("podspec", "descheduling")
    mine = [each for each in stored if each.ref.id in ("u-p", "costs")]
    story = [each.sentence for each in pod_story("u-p", mine, []) if each.step == "deletion-cost"]
    rank = next(each.after[keys.POD_DELETION_COST] for each in await audit(world) if each.uid == "u-p")
    assert story == [f"none -> {rank}, ranked by ScaleDownBinPack (profile ranks)", "not changed: forbidden"]
    assert pod_story("u-stranger", [each for each in stored if each.ref.id == "costs"], []) == []


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(3))
async def test_ranks_that_a_killed_leader_decided_are_written_by_the_next_one(number: int, is_done: bool) -> None:
    world = await begun(World())
    kill = Kill(number, is_done)
    async with world.service(RANKING, kill):
        await until(lambda: kill.is_reached)
    await rounds_later(world)
    records = await audit(world)
    ranks = [int(each.after[keys.POD_DELETION_COST]) for each in records if each.decision == "done"]
    assert sorted(ranks) == list(range(REPLICAS + 2))
    assert {each.decision for each in records} == {"allowed", "done"}
