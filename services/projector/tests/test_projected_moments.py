"""What the queries answer about a moment and about the life of a pod, from the rows of a real Postgres."""

import json
from datetime import UTC, datetime

import pytest
from koord_projector.read.moments import resolve, state_at
from koord_projector.read.nodes import list_nodes
from koord_projector.read.objects import ObjectsQuery, list_objects
from koord_projector.read.pod import pod_life
from koord_projector.read.pods import PodsQuery, list_pods
from koordcore.events.criproxy import HookServerFailed
from koordcore.events.envelope import BasedOn, name_token
from koordcore.events.nodestate import ContainerHookApplied, HookedValue
from koordcore.events.objects import PodSpecAdded
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.state.aggregates import NodeLedger, NodeSpecState
from koordcore.values import codec
from koordcore.values.allocation import is_reservation
from support.histories.recording import Recorder
from support.projector.reading import reading_of
from support.projector.rows import folded
from support.projector.synthetic_cluster import small
from support.projector.world import pods_by_fold, projector

pytestmark = pytest.mark.postgres


async def test_any_past_moment_is_answered_as_a_fold_to_it_would(postgres_dsn: str) -> None:
    events = small()
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
        ends = [event.seq for event in events if event.type in ("PodReleased", "PodSpecDeleted")]
        for position in sorted({*range(1, len(events) + 1, 41), *ends[:6], *(seq - 1 for seq in ends[:6])}):
            state = folded(events, position)
            async with it.database.reading() as connection:
                moment = await resolve(connection, str(position))
                nodes = {node.name: node for node in await list_nodes(connection, moment, datetime.now(UTC))}
                pods = await list_pods(reading_of(connection, moment), PodsQuery(limit=500))
                for kind in ("podspec", "node"):
                    page = await list_objects(reading_of(connection, moment), ObjectsQuery(kind=kind, limit=500))
                    found = {each.id: each.state for each in page.objects}
                    expected = {ref.id: json.loads(codec.encode_canonical(s)) for ref, s in state if ref.kind == kind}
                    assert found == expected
            specs, ledgers = state.of_kind(NodeSpecState), state.of_kind(NodeLedger)
            assert set(nodes) == set(specs)
            for name, node in nodes.items():
                ledger = ledgers.get(name_token(name))
                assert node.cpu_requested == (ledger.requested.get("cpu", 0) if ledger else 0)
            assert len({pod.uid for pod in pods.pods}) == len(pods.pods)
            assert {pod.uid: (pod.phase, pod.node) for pod in pods.pods} == pods_by_fold(state)
            placed = {pod.uid: pod.node for pod in pods.pods if pod.node}
            held = {
                uid: token
                for token, ledger in ledgers.items()
                for uid, entry in ledger.pods.items()
                if not is_reservation(uid, entry.allocation)
            }
            between = {events[position - 1].ref.id}  # placed, its node's ledger is the next event
            assert {uid for uid in placed if uid not in between} == {uid for uid in held if uid not in between}


async def test_a_time_means_everything_that_had_happened_by_then(postgres_dsn: str) -> None:
    events = small()
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            for event in events[::53]:
                at = await resolve(connection, event.occurred_at)
                last = (
                    next((other.seq for other in events if other.occurred_at > event.occurred_at), len(events) + 1) - 1
                )
                assert (at.position, at.live) == (last, False)
            assert (await resolve(connection, "2001-01-01T00:00:00Z")).position == 0
            assert (await resolve(connection, "2101-01-01T00:00:00+02:00")).position == len(events)
            assert await state_at(connection, await resolve(connection, "0"), "nodespec", "node-a-000") is None


async def test_the_life_of_a_pod_has_what_hooks_did_to_it_and_to_no_other(postgres_dsn: str) -> None:
    log = Recorder()
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="t", based_on=BasedOn())
    for name in ("a", "b"):
        spec = Pod(metadata=ObjectMeta(namespace="d", name=name, uid=name))
        log.write("podspec", name, PodSpecAdded(object=spec))
        placed = PodPlaced(
            namespace="d", name=name, node="n.1", requests={}, attempt=1, queued_at="", explanation=explanation
        )
        log.write("pod", name, placed)
        value = HookedValue(name="cpuset", plugin="CPUSetAllocator", new="0-3", old="0-7")
        hooked = ContainerHookApplied(
            uid=name, namespace="d", pod=name, container="main", stage="PreCreateContainer", mode="NRI", values=[value]
        )
        log.write("nodestate", name_token("n.1"), hooked)
    failed = HookServerFailed(
        uid="a", namespace="d", pod="a", hook="PreStartContainer", server="s", policy="Ignore", error="away"
    )
    log.write("criproxy", name_token("n.1"), failed)
    async with projector(postgres_dsn) as it:
        it.write(log.events)
        async with it.running():
            await it.caught_up()
        async with it.database.reading() as connection:
            life = await pod_life(connection, await resolve(connection, ""), "a")
    assert [entry.step for entry in life] == ["submitted", "placed", "hooked", "hook-failed"]
    assert life[2].sentence == "container main at PreCreateContainer (NRI): cpuset 0-3"
    assert life[2].body["values"] == [{"name": "cpuset", "plugin": "CPUSetAllocator", "new": "0-3", "old": "0-7"}]
