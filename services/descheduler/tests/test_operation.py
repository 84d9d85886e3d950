"""The audit has changes of the configuration, dry runs, soft evictions and closed nodes: who, when, why."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from koord_descheduler.domain.config.effective import changed_fields, configuration_hash
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.shell import operation
from koord_descheduler.shell.facts import FactWriter
from koord_descheduler.shell.operation import OperationRecorder
from koordcore.events.descheduling import ROUNDS, DeschedulerConfigured, DryRunAnswered, Number, RoundDecided, RoundMove
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import PodEvicted
from koordcore.events.objects import NodeSpecChanged
from koordcore.ports.eventlog import Appended
from koordcore.ports.leadership import Term
from koordcore.protocol import keys
from koordcore.protocol.objects import node_from_json
from koordcore.stories.acts import signature
from koordcore.stories.modifications import KINDS, AuditReader, Modification
from koordcore.values import codec
from support.descheduler.jobs import configuration, job, reached
from support.descheduler.world import AT, World
from support.until import until

FIRST = configuration(plugins=False)
SECOND = configuration(plugins=False, evictQPS=3)


async def configured(world: World) -> list[DeschedulerConfigured]:
    return [each for each in await world.facts("descheduler") if isinstance(each, DeschedulerConfigured)]


async def audit(world: World) -> list[Modification]:
    reader = AuditReader()
    return [record for stored in await world.stored(*KINDS) for record in reader.read(stored)]


async def test_a_changed_configuration_is_recorded_once_with_its_changes_and_an_equal_one_is_not() -> None:
    world = World()
    await world.begin()

    async def started(text: bytes, records: int) -> None:
        async def is_recorded() -> bool:
            return len(await configured(world)) == records

        async with world.service(text) as (_, rounds):
            await until(lambda: rounds.begun > 0)
            await until(is_recorded)

    await started(FIRST, 1)
    await started(FIRST, 1)
    await started(SECOND, 2)
    first, second = await configured(world)
    assert first.changes == {}
    assert first.asked_by
    (path,) = second.changes
    assert path.endswith("evictQPS")
    assert second.changes[path].after == "3"
    assert second.configuration_hash == configuration_hash(load(SECOND, BUILT_IN)) != first.configuration_hash
    records = [record for record in await audit(world) if record.action == "config_change"]
    assert [record.configuration for record in records] == [first.configuration_hash, second.configuration_hash]
    assert [record.asked_by for record in records] == [first.asked_by, second.asked_by]
    assert path in records[1].reasons[0]


async def test_dry_runs_that_are_answered_at_the_same_time_are_all_recorded() -> None:
    world = World()
    await world.begin()
    notes = [
        DryRunAnswered(asked_by=f"user-{number}", configuration_hash="h", rounds=1, moves=0, without_place=0)
        for number in range(4)
    ]
    async with world.service(FIRST) as (_, rounds):
        await until(lambda: configured(world))
        recorder = OperationRecorder(rounds.builder, rounds.leading, rounds.facts.writer, load(FIRST, BUILT_IN), None)
        assert await asyncio.gather(*map(recorder.asked, notes)) == [True] * len(notes)
    recorded = [each.asked_by for each in await world.facts("descheduler") if isinstance(each, DryRunAnswered)]
    assert recorded == [note.asked_by for note in notes]


async def test_a_configuration_is_recorded_although_another_instance_was_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operation, "PAUSE_SECONDS", 0.01)
    world = World()
    await world.begin()
    other = DryRunAnswered(asked_by="other", configuration_hash="h", rounds=1, moves=0, without_place=0)
    append = FactWriter.append

    async def after_the_other(
        self: FactWriter, drafts: Sequence[Draft], causation: str, position: int, term: Term
    ) -> Appended | None:
        if isinstance(drafts[0].event, DeschedulerConfigured) and not await world.facts("descheduler"):
            await world.write(drafts[0].ref, other)
        return await append(self, drafts, causation, position, term)

    monkeypatch.setattr(FactWriter, "append", after_the_other)
    async with world.service(FIRST):
        (recorded,) = await until(lambda: configured(world))
    assert recorded.configuration_hash == configuration_hash(load(FIRST, BUILT_IN))
    assert (await world.facts("descheduler"))[0] == other


async def test_later_records_name_the_configuration_of_their_moment() -> None:
    world = World()
    await world.begin()
    await world.replicas(20)
    await world.pod("p", "a")

    async def is_asked() -> bool:
        return bool(await world.requests())

    text = configuration("EvictDirectly")
    async with world.service(text):
        await until(is_asked)
    hash_ = configuration_hash(load(text, BUILT_IN))
    asked = [record for record in await audit(world) if record.action == "evict_request"]
    assert {record.configuration for record in asked} == {hash_}
    (passed,) = [record for record in await audit(world) if record.action == "job_arbitrate"]
    assert passed.inputs["max_unavailable_per_workload"] == Number(value=0, limit=2)


def test_only_fields_that_differ_are_named_with_their_paths() -> None:
    before = {"a": 1, "profiles": [{"name": "p", "x": {"cpu": 45.0}}], "gone": True}
    after = {"a": 1, "profiles": [{"name": "p", "x": {"cpu": 50.0}}], "new": "text"}
    found = {path: msgspec.to_builtins(each) for path, each in changed_fields(before, after).items()}
    assert found == {
        "gone": {"before": "true"},
        "new": {"after": '"text"'},
        "profiles[0].x.cpu": {"before": "45.0", "after": "50.0"},
    }


async def test_nodes_that_are_closed_and_opened_are_recorded_with_the_one_who_did_it() -> None:
    world = World()
    drained = ("drain.descheduler.koordinator.sh/drain-node", "d1")
    move = RoundMove(namespace="d", name="p", uid="u-p", node="a", profile="x", plugin="CustomPriority", reason="r")

    async def node(closed: bool, *taints: tuple[str, str], by: str = "") -> None:
        meta = {"name": "a", "annotations": signature(by, AT) if by else {}}
        spec = {"unschedulable": closed, "taints": [{"key": k, "value": v, "effect": "NoSchedule"} for k, v in taints]}
        event = NodeSpecChanged(object=node_from_json({"metadata": meta, "spec": spec, "status": {}}))
        await world.write(AggregateRef("nodespec", "a"), event)

    await node(False)
    await node(True, by="alice@host")
    await node(False, ("other", "1"), by="alice@host")
    await world.write(ROUNDS, RoundDecided(started_at=AT, moves=[move], closed=["a"]))
    await node(True, ("other", "1"))
    await node(False, drained)
    await node(False)
    await node(False, drained)
    await node(False, by="bob@host")
    records = await audit(world)
    (intent,) = [each for each in records if each.decision == "allowed"]
    assert (intent.action, intent.plugin, intent.profile, intent.round) == ("cordon", "CustomPriority", "x", AT)
    done = [each for each in records if each.decision == "done"]
    assert [each.round for each in done if each.plugin == "CustomPriority"] == [AT]
    assert [each.asked_by for each in done[:2]] == ["alice@host", ""], "the signature of an earlier change stays"
    found = [(each.action, each.plugin, each.node, *each.after.values()) for each in done]
    assert found == [
        ("cordon", "", "a", "true"),
        ("uncordon", "", "a", "false"),
        ("cordon", "CustomPriority", "a", "true"),
        ("uncordon", "", "a", "false"),
        ("taint", "Drain", "a", "d1"),
        ("untaint", "Drain", "a", ""),
        ("taint", "Drain", "a", "d1"),
        ("untaint", "", "a", ""),
    ]
    assert done[-1].asked_by == "bob@host", "a user has opened the node"


async def test_a_soft_eviction_is_recorded_with_its_job_plugin_reason_and_annotation() -> None:
    world = World()
    await world.begin()
    await world.replicas(20)
    await world.pod("p", "b")
    asked = job("j", "p", mode="EvictDirectly")
    asked["metadata"]["annotations"] = {
        keys.EVICT_TRIGGER: "LowNodeLoad",
        keys.EVICT_REASON: "node is hot",
        keys.JOB_ROUND: AT,
        keys.JOB_PROFILE: "x",
    }
    await world.custom("PodMigrationJob", asked)
    async with world.service(configuration(plugins=False, evictionPolicy="SoftEviction")):
        await reached(world, "Running", "Eviction")
    (record,) = [each for each in await audit(world) if each.action == "soft_evict"]
    assert (record.decision, record.plugin, record.job) == ("done", "LowNodeLoad", "j")
    assert (record.round, record.profile, record.job_uid) == (AT, "x", asked["metadata"]["uid"])
    assert (record.namespace, record.pod, record.uid, record.node) == ("d", "p", "u-p", "b")
    assert record.reasons == ["node is hot"]
    assert record.actor != "t", "the descheduler asked, not the writer of the pod"
    assert record.before == {keys.SOFT_EVICTION: ""}
    annotation = codec.decode(record.after[keys.SOFT_EVICTION].encode(), dict[str, object])
    assert (annotation["initiator"], annotation["reason"]) == ("LowNodeLoad", "node is hot")


@pytest.mark.parametrize(("policy", "action"), [("Eviction", "evict_request"), ("Delete", "delete_pod")])
async def test_an_eviction_and_a_deletion_are_different_actions(policy: str, action: str) -> None:
    world = World()
    await world.begin()
    await world.replicas(20)
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False, evictionPolicy=policy)):
        await reached(world, "Running", "Eviction")
    await world.answer("p", PodEvicted())
    of_pod = [each for each in await audit(world) if each.uid == "u-p" and not each.action.startswith("job_")]
    found = [(each.action, each.decision) for each in of_pod]
    assert found == [(action, "allowed"), ("evict" if policy == "Eviction" else action, "done")]
