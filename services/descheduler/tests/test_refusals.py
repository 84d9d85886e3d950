"""Why pods were not moved: one record per pod, plugin and set of reasons, until a round no longer refuses it so."""

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from koord_descheduler.cycle import Rounds
from koord_descheduler.domain.framework.eviction import (
    EVICTED,
    Attempt,
    EvictionLimiter,
    EvictionLimits,
    EvictionPath,
    Result,
)
from koord_descheduler.domain.framework.plugin import EvictPlugin, FilterPlugin, MovePlan
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.object_limiter import OBJECT_LIMITER, EvictionBuckets, ObjectLimiter
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.memory import MOVES_AT_ONCE, refusal_changes, refusals_of
from koord_descheduler.domain.rounds.reporting import MOST_FILTERED, Refused
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView
from koord_descheduler.shell.rounds.reporting import RoundExplanations
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import REFUSALS, EvictionRefused, Inputs, Number, RefusalsChanged, RoundEnded
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.objects import PodSpecDeleted
from koordcore.ports.leadership import Term
from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import NEVER_EVICT
from koordcore.state.descheduling import RoundsState
from koordcore.stories.modifications import KINDS, AuditReader, Modification
from koordcore.stories.moment import Step
from koordcore.stories.pod import pod_story
from koordcore.stories.sentences import round_sentence
from koordcore.values import codec
from support.descheduler import jobs
from support.descheduler.kill import Kill
from support.descheduler.views import pod_view_from_json
from support.descheduler.world import World
from support.histories.recording import Recorder
from support.manual_clock import ManualClock
from support.until import until

LIMITS = EvictionLimits(per_node=2)


def a_pod(number: int) -> PodView:
    meta = {"name": f"{number}", "namespace": "d", "uid": f"u-{number}"}
    return pod_view_from_json({"metadata": meta, "spec": {"nodeName": "n", "containers": []}})


def attempted(number: int, result: Result, evictor: str = "MigrationController") -> Attempt:
    return Attempt(pod=a_pod(number), profile="p", plugin="x", reason="hot", evictor=evictor, result=result)


def no_numbers(pod: PodView, codes: Collection[str]) -> Inputs:
    return {}


def changes(attempts: Sequence[Attempt], refused: Refused, state: RoundsState | None = None) -> list[RefusalsChanged]:
    limiter = EvictionLimiter(LIMITS)
    limiter.by_node["n"] = 2
    return list(refusal_changes(refusals_of(0.0, attempts, refused, limiter), state))


def folded(*rounds: Sequence[RefusalsChanged]) -> RoundsState:
    """Return the state after the facts of some rounds."""
    log = Recorder()
    for facts in rounds:
        for fact in facts:
            log.write(REFUSALS.kind, REFUSALS.id, fact)
    found = log.state.get(REFUSALS)
    assert isinstance(found, RoundsState)
    return found


def filtered(*numbers: int, codes: Sequence[str] = ("pvc",), plugin: str = "x") -> Refused:
    refused = Refused()
    for number in numbers:
        refused.note_filtered("p", plugin, a_pod(number), codes, no_numbers)
    return refused


def test_the_first_pods_of_each_plugin_are_recorded_in_the_order_asked_and_the_others_are_counted() -> None:
    order = [*range(MOST_FILTERED + 30, 0, -1)]
    refused = filtered(*order, *order)
    refused.note_filtered("p", "y", a_pod(1), ("pvc",), no_numbers)
    (fact,) = changes([], refused)
    assert [each.move.name for each in fact.refused] == [*map(str, order[:MOST_FILTERED]), "1"]
    assert [each.move.plugin for each in fact.refused].count("y") == 1
    assert fact.dropped == 30
    assert len(refused.by_code["pvc"]) == len(order), "the explanation of the round counts all"


def test_refused_attempts_are_recorded_up_to_a_bound_in_parts() -> None:
    facts = changes([attempted(number, Result.NODE_LIMIT) for number in range(1007)], Refused())
    assert [len(fact.refused) for fact in facts] == [MOVES_AT_ONCE] * 5
    assert {fact.dropped for fact in facts} == {7}
    ended = changes([], Refused(), folded(facts))
    assert [len(fact.ended) for fact in ended] == [MOVES_AT_ONCE] * 5
    assert folded(facts, ended).refusals == {}


@pytest.mark.parametrize(
    ("result", "evictor", "code", "text"),
    [
        (Result.NODE_LIMIT, "MigrationController", "maxNoOfPodsToEvictPerNode", ""),
        (Result.ERROR, "MigrationController", OBJECT_LIMITER, ""),
        (Result.ERROR, "other", "evict_plugin", "refused by other"),
        (Result.NO_PLACE, "MigrationController", "no_place", "no node for the pod"),
        (Result.NOT_BETTER, "MigrationController", "not_better", "no better cluster after the move"),
        (Result.UNPROVED, "MigrationController", "unproved", "no answer of the scheduler"),
    ],
)
def test_an_attempt_is_refused_by_a_limit_by_the_evictor_or_by_the_proof(
    result: Result, evictor: str, code: str, text: str
) -> None:
    (fact,) = changes([attempted(1, Result.SUCCESS), attempted(2, result, evictor)], Refused())
    (found,) = fact.refused
    assert (found.move.name, found.move.reason, found.codes, found.text) == ("2", "hot", [code], text)
    sentence = round_sentence(found, "u-2")
    assert sentence is not None
    assert sentence.partition("; refused: ")[2].partition(" (2 of 2)")[0] == (f"{code} ({text})" if text else code)
    assert found.move.inputs == ({code: Number(value=2, limit=2)} if result is Result.NODE_LIMIT else {})


def test_nothing_is_written_until_a_reason_changes_or_ends() -> None:
    first = changes([attempted(3, Result.NODE_LIMIT)], filtered(1, 2))
    state = folded(first)
    assert changes([attempted(3, Result.NODE_LIMIT)], filtered(2, 1), state) == []
    (fact,) = changes([attempted(3, Result.TOTAL_LIMIT)], filtered(1, codes=("pvc", "daemonset", "pvc")), state)
    assert {each.move.name: each.codes for each in fact.refused} == {
        "1": ["daemonset", "pvc"],
        "3": ["maxNoOfPodsToEvictTotal"],
    }
    assert fact.ended == ["u-2/p/x"]


def test_a_pod_that_is_being_evicted_is_no_refused_one() -> None:
    refused = filtered(1, codes=(EVICTED,))
    assert changes([], refused) == []
    assert refused.by_code == {}


def configuration(**args: Any) -> bytes:
    """Two plugins: one whose evictions the limit per node refuses, and filters that refuse as the arguments say."""
    evictor = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
    taints = {"enabled": [{"name": "RemovePodsViolatingNodeTaints"}]}
    profile = {
        "name": "p",
        "plugins": {
            "balance": {"disabled": [{"name": "*"}]},
            "deschedule": taints,
            "evict": evictor,
            "filter": evictor,
        },
        "pluginConfig": [{"name": "DefaultEvictor", "args": args}],
    }
    return codec.encode(
        {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "deschedulingInterval": "1h",
            "maxNoOfPodsToEvictPerNode": 1,
            "profiles": [profile],
        }
    )


@pytest.fixture
async def world() -> World:
    world = World()
    await world.begin()
    for name in ("p", "q"):
        await world.pod(name, "a")
    return world


async def play(world: World, settings: bytes, rounds_more: int = 2) -> None:
    """Run the service until it has ended a round, and some more."""
    async with world.service(settings) as (_, rounds):
        for _ in range(rounds_more):
            await next_round(world, rounds)


async def next_round(world: World, rounds: Rounds) -> None:
    await rounds.runner.reached((await world.bus.events.head()).last_seq)
    await rounds.run_now()


async def refused_records(world: World) -> list[Modification]:
    reader = AuditReader()
    found = [record for stored in await world.stored(*KINDS) for record in reader.read(stored)]
    return [each for each in found if each.decision == "refused"]


async def story(world: World, uid: str) -> list[str]:
    told = [each for each in await explanations(world) if each.ref == AggregateRef("refusal", uid)]
    return [each.sentence for each in pod_story(uid, [], told) if each.step is Step.EVICTION_REFUSED]


async def explanations(world: World) -> list[StoredEvent]:
    head = await world.bus.explanations.head()
    if not head.last_seq:
        return []
    follower = world.bus.explanations.follow(0)
    found: list[StoredEvent] = []
    while not found or found[-1].seq < head.last_seq:
        found += await anext(follower)
    return found


def pod_ref(uid: str) -> AggregateRef:
    return AggregateRef("podspec", uid)


async def test_audit_and_story_say_once_why_a_pod_stays_also_after_a_restart(world: World) -> None:
    for _ in range(2):
        await play(world, configuration())
    (record,) = await refused_records(world)
    assert (record.action, record.pod, record.uid, record.node) == ("evict_request", "q", "u-q", "a")
    assert (record.profile, record.plugin) == ("p", "RemovePodsViolatingNodeTaints")
    assert record.reasons[0] == "maxNoOfPodsToEvictPerNode"
    assert record.inputs["maxNoOfPodsToEvictPerNode"] == Number(value=1, limit=1)
    asked = "plugin RemovePodsViolatingNodeTaints (profile p) asked for it"
    assert await story(world, "u-q") == [
        f"not evicted in round {record.round}: {asked}; refused: maxNoOfPodsToEvictPerNode (1 of 1)"
    ]
    assert await story(world, "u-p") == []


async def test_a_refusal_is_published_once_a_day_and_for_each_plugin_that_asked(world: World) -> None:
    refused = filtered(1)
    refused.note_filtered("p", "y", a_pod(1), ("pvc",), no_numbers)
    clock = ManualClock()
    publisher = RoundExplanations(world.bus.explanations, clock, "descheduler/0")
    story = RoundEnded(seconds=0.0, nodes=1)
    for hours in (0, 1, 22, 2):
        await clock.advance(hours * 3600.0)
        found = refusals_of(0.0, [], refused, EvictionLimiter(LIMITS)).found
        await publisher.publish(story, found.values(), 1, Term("d", 1, 0.0))
    told = [each for each in await explanations(world) if each.ref.kind == "refusal"]
    plugins = [event.move.plugin for each in told if isinstance(event := CATALOGUE.read(each), EvictionRefused)]
    assert plugins == ["x", "y"] * 2
    assert len({each.event_id for each in told}) == 4, "the log would take equal ids for one event"


async def test_other_reasons_are_a_new_record_and_a_deleted_pod_ends_its_refusal(world: World) -> None:
    await play(world, configuration(minReplicas=9, labelSelector={"matchLabels": {"none": "such"}}))
    await play(world, configuration(labelSelector={"matchLabels": {"none": "such"}}))
    records = await refused_records(world)
    assert [each.pod for each in records] == ["p", "q", "p", "q"]
    first, last = records[0].reasons, records[-1].reasons
    assert set(last) < set(first)
    await world.write(pod_ref("u-q"), PodSpecDeleted(namespace="d", name="q"))
    await play(world, configuration(labelSelector={"matchLabels": {"none": "such"}}))
    ended = [each.ended for each in await world.facts("descheduling") if isinstance(each, RefusalsChanged)][-1]
    assert ended == ["u-q/p/RemovePodsViolatingNodeTaints"]
    assert len(await refused_records(world)) == len(records)


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_leader_after_a_kill_repeats_no_record(world: World, is_done: bool) -> None:
    settings = configuration(labelSelector={"matchLabels": {"none": "such"}})
    kill = Kill(1, is_done)  # the first effect is the record of the configuration, the second that of the refusals
    async with world.service(settings, kill):
        await until(lambda: kill.is_reached)
    assert kill.effects[-1] == str(REFUSALS)
    await play(world, settings)
    assert [each.pod for each in await refused_records(world)] == ["p", "q"]


@pytest.mark.parametrize(
    ("replicas", "args", "code", "number"),
    [
        (1, {}, "expected_replicas", Number(value=1, limit=1)),
        (20, {"maxMigratingPerNode": 1}, "max_migrating_per_node", Number(value=1, limit=1)),
        (20, {"maxMigratingPerNamespace": 1}, "max_migrating_per_namespace", Number(value=1, limit=1)),
        (20, {"maxMigratingGlobally": 1}, "max_migrating_globally", Number(value=1, limit=1)),
        (20, {"maxMigratingPerWorkload": 1}, "max_migrating_per_workload", Number(value=1, limit=1)),
        (20, {"maxUnavailablePerWorkload": 3}, "max_unavailable_per_workload", Number(value=18, limit=3)),
    ],
)
async def test_a_pod_that_the_migration_controller_refuses_has_the_numbers_that_decided(
    world: World, replicas: int, args: dict[str, Any], code: str, number: Number
) -> None:
    await world.workload(replicas)
    gates = [] if "maxUnavailablePerWorkload" in args else ["MaxUnavailablePerWorkload"]
    limits: dict[str, Any] = {"maxMigratingPerNode": 0, "skipEvictionGates": gates, "objectLimiters": {}, **args}
    await play(world, jobs.configuration("EvictDirectly", interval="1h", **limits))
    record = (await refused_records(world))[-1]
    assert (record.pod, record.reasons, record.inputs) == ("q", [code], {code: number})
    assert (await story(world, "u-q"))[0].endswith(f"; refused: {code} ({number.value} of {number.limit})")


@pytest.mark.parametrize(
    ("evictor", "args", "numbers"),
    [
        (
            "DefaultEvictor",
            {"minReplicas": 3, "minPodAge": "1h", "priorityThreshold": {"value": 100}},
            {
                "priority_threshold": Number(value=200, limit=100),
                "min_replicas": Number(value=2, limit=3),
                "min_pod_age": Number(value=60, limit=3600),
            },
        ),
        (
            "MigrationController",
            {"priorityThreshold": {"value": 100}},
            {
                "priority_threshold": Number(value=200, limit=100),
                "max_eviction_cost": Number(value=NEVER_EVICT, limit=NEVER_EVICT),
                "expected_replicas": Number(value=0, limit=0),
            },
        ),
    ],
)
def test_each_limit_that_refuses_a_pod_has_its_numbers(
    evictor: str, args: dict[str, Any], numbers: dict[str, Number]
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": True}
    pods = [
        pod_view_from_json(
            {
                "metadata": {
                    "name": name,
                    "namespace": "d",
                    "uid": name,
                    "ownerReferences": [owner],
                    "annotations": {keys.EVICTION_COST: str(NEVER_EVICT)},
                },
                "spec": {"nodeName": "n", "containers": [], "priority": 200, "schedulerName": "koord-scheduler"},
                "status": {"startTime": "1970-01-01T00:01:00Z"},
            }
        )
        for name in "pq"
    ]
    cluster = ClusterView(now=120.0, nodes=(), pods=tuple(pods))
    kind = BUILT_IN[evictor]
    plugin = kind.make(kind.decode(args), SharedState())
    assert isinstance(plugin, FilterPlugin)
    assert isinstance(plugin, EvictPlugin)
    path = EvictionPath(
        profile="p", cluster=cluster, filters=(plugin,), evict_plugin=plugin, limiter=EvictionLimiter(LIMITS)
    )
    codes = path.refusals(pods[0])
    assert set(codes) == numbers.keys()
    assert path.numbers(pods[0], codes) == numbers


@pytest.mark.parametrize("is_plan", [False, True])
def test_a_pod_that_the_object_limiter_refuses_has_the_tokens_that_are_left(*, is_plan: bool) -> None:
    pod = a_pod(1)
    cluster = ClusterView(now=60.0, nodes=(), pods=(pod,))
    kind, shared = BUILT_IN["MigrationController"], SharedState()
    args = kind.decode({"objectLimiters": {"namespace": {"duration": "2m", "maxMigrating": 1}}})
    plugin = kind.make(args, shared)
    assert isinstance(args, MigrationControllerArgs)
    assert isinstance(plugin, EvictPlugin)
    ObjectLimiter(args, shared.of(EvictionBuckets)).evicted(pod, 0.0, 9)
    path = EvictionPath(
        profile="p", cluster=cluster, filters=(), evict_plugin=plugin, limiter=EvictionLimiter(EvictionLimits())
    )
    if is_plan:
        nothing = MovePlan(
            id="x", gang="d/g", members=(), pods=(pod,), nodes=frozenset(), gpus=8, fragment_before=0, fragment_after=0
        )
        assert path.evict_together(nothing, "x") is pod
    else:
        assert not path.evict(pod, "hot", "x", {})
    (fact,) = changes(path.attempts, Refused())
    (found,) = fact.refused
    assert found.codes == [OBJECT_LIMITER]
    assert found.move.inputs[OBJECT_LIMITER] == Number(value=0.5, limit=1)
    sentence = round_sentence(found, "u-1")
    assert sentence is not None
    assert sentence.endswith("object_limiter (0.5 of 1)")


KARPENTER, AUTOSCALER = "karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/safe-to-evict"


@pytest.mark.parametrize(
    ("annotations", "is_protected"),
    [
        ({KARPENTER: "true"}, True),
        ({KARPENTER: "4h"}, True),
        ({KARPENTER: "false"}, False),
        ({AUTOSCALER: "false"}, True),
        ({AUTOSCALER: "true"}, False),
        ({KARPENTER: "true", "descheduler.alpha.kubernetes.io/evict": "true"}, False),
    ],
)
@pytest.mark.parametrize("evictor", ["MigrationController", "DefaultEvictor"])
def test_annotations_of_autoscalers_protect_a_pod(
    evictor: str, annotations: dict[str, str], *, is_protected: bool
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    metadata = {"name": "p", "namespace": "d", "uid": "u", "annotations": annotations, "ownerReferences": [owner]}
    pod = pod_view_from_json({"metadata": metadata, "spec": {"schedulerName": "koord-scheduler", "nodeName": "n"}})
    for switch in (False, True):
        args = BUILT_IN[evictor].decode({"evictDoNotDisruptPods": switch})
        plugin = BUILT_IN[evictor].make(args, SharedState())
        assert isinstance(plugin, FilterPlugin)
        found = plugin.refusals(pod, ClusterView(now=0.0, nodes=(), pods=(pod,)))
        assert ("do_not_disrupt" in found) is (is_protected and not switch)
