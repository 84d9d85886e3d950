"""Genesis and the sweep: a log begun from objects says what its predecessor said; what drifts is found and healed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from koord_manager.shell.gateway import epoch
from koord_manager.shell.gateway.api import connect_api
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, FactAppender
from koord_manager.shell.gateway.genesis import GenesisRefused, cluster_epoch, genesis
from koord_manager.shell.gateway.metrics import GatewayMetrics
from koord_manager.shell.gateway.sweep import Sweep
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import PodSpecDeleted
from koordcore.ports.eventlog import EventLog
from koordcore.ports.leadership import Term
from koordcore.protocol.objects import Pod
from koordcore.service.clock import SystemClock
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.tracing import make_tracer
from koordcore.state import ClusterState
from koordcore.state.aggregates import DriftState, NodeLedger, NodeSpecState, PodSpecState, PodState
from koordcore.values.allocation import Allocation
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from support.kubernetes.authorization import User
from support.kubernetes.gateway_world import Instance, Interrupted, World, gateway_settings, gateway_world, node, pod


async def fold(log: EventLog) -> ClusterState:
    state = ClusterState()
    head = await log.head()
    async for batch in log.history(0, head.last_seq):
        for stored in batch:
            state.apply(stored)
    return state


def without_times(pod: Pod) -> Pod:
    """A pod without the times of its conditions: log and API server may differ by a second about a binding."""
    conditions = [msgspec.structs.replace(each, last_transition_time=None) for each in pod.status.conditions]
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=conditions))


def decisive(state: ClusterState) -> dict[str, Any]:
    """What decisions depend on, without positions and times of the log itself."""
    return {
        "pods": {uid: without_times(item.object) for uid, item in state.of_kind(PodSpecState).items()},
        "nodes": {key: item.object for key, item in state.of_kind(NodeSpecState).items()},
        "placed": {
            uid: (item.node, item.requests, item.allocation, item.annotations)
            for uid, item in state.of_kind(PodState).items()
            if item.node
        },
        "held": {key: (item.pods, item.requested) for key, item in state.of_kind(NodeLedger).items() if item.pods},
    }


async def begun_anew(world: World, log: EventLog, directory: Path, said: list[str] | None = None) -> int:
    async def tell(sentence: str) -> None:
        if said is not None:
            said.append(sentence)

    api = await connect_api(world.server.kubeconfig(directory / "admin"), qps=0, burst=1)
    try:
        resources, namespace = world.settings.resources, "koordinator-system"
        return await genesis(api, log, resources, SystemClock(), namespace=namespace, actor="test", progress=tell)
    finally:
        await api.close()


async def living_cluster(world: World) -> None:
    for number in range(4):
        await world.server.apply(node(f"node-{number}.example"))
    for number in range(12):
        await world.server.apply(pod(f"p-{number}", cpu=str(1 + number % 3)))
    for number in range(12):
        uid = await world.mirrored(f"p-{number}")
        if number % 4 == 3:
            continue
        await world.place(uid, f"node-{number % 4}.example", Allocation(cpuset=str(number)))
        await world.until(lambda number=number: world.node_of(f"p-{number}") != "")
    await world.until(lambda: world.gateway.is_idle)


async def settled(world: World) -> dict[str, Any]:
    """Return what decides, once nothing is owed and the watches have brought back what the gateway wrote.

    The markers are created last: a watch keeps the order, so everything else of their kinds is folded before them.
    """
    await world.until(lambda: world.gateway.is_idle)
    await world.server.apply(node("marker"))
    await world.until(lambda: world.view.node("marker"))
    await world.server.apply(pod("marker"))
    await world.mirrored("marker")
    return decisive(world.view.state)


async def test_the_fold_from_genesis_decides_as_the_fold_of_the_history(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await living_cluster(world)
        history = await settled(world)
        await world.stop()
        fresh = MemoryEventLog(MemoryLog())

        await begun_anew(world, fresh, tmp_path)

        assert decisive(await fold(fresh)) == history


async def test_genesis_needs_a_fresh_stream_and_an_interrupted_one_goes_on(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await living_cluster(world)
        await world.stop()
        with pytest.raises(GenesisRefused, match="another origin"):
            await begun_anew(world, world.bus.events, tmp_path)
        whole, begun = MemoryLog(), MemoryLog()
        written = await begun_anew(world, MemoryEventLog(whole), tmp_path)
        await world.server.delete("configmaps", "koordinator-system", "koordstream-cluster")
        for stored in whole.between(0, 3, None, 3):
            begun.store(stored.ref, dict(stored.headers), stored.body)

        assert await begun_anew(world, MemoryEventLog(begun), tmp_path) == written
        assert decisive(await fold(MemoryEventLog(begun))) == decisive(await fold(MemoryEventLog(whole)))


async def test_a_genesis_that_stored_no_epoch_is_completed_by_a_second_call(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await living_cluster(world)
        await world.stop()
        log = MemoryEventLog(MemoryLog())
        written = await begun_anew(world, log, tmp_path)
        await world.server.delete("configmaps", "koordinator-system", "koordstream-cluster")

        assert await begun_anew(world, log, tmp_path) == written
        assert (await log.head()).last_seq == written
        stored = world.server.object("configmaps", "koordinator-system", "koordstream-cluster")
        assert stored is not None
        assert stored["data"] == {"epoch": "1"}
        with pytest.raises(GenesisRefused, match="with epoch 1 where 2 is next"):
            await begun_anew(world, log, tmp_path)


async def test_genesis_leaves_out_what_is_too_large_for_the_log_and_says_so(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await world.server.apply(pod("small"))
        await world.server.apply(pod("large", nodeSelector={f"label-{number}": "x" * 50 for number in range(20_000)}))
        said: list[str] = []

        fresh = MemoryLog()
        await begun_anew(world, MemoryEventLog(fresh), tmp_path, said)

        pods = (await fold(MemoryEventLog(fresh))).of_kind(PodSpecState).values()
        assert [each.object.metadata.name for each in pods] == ["small"]
    (left_out,) = [sentence for sentence in said if sentence.startswith("left out")]
    assert world.uid("large") in left_out


async def test_an_epoch_that_no_genesis_has_written_counts_as_none(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        metadata = {"namespace": "koordinator-system", "name": "koordstream-cluster"}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"epoch": "9" * 5_000}}
        await world.server.apply(document)
        api = await connect_api(world.server.kubeconfig(tmp_path / "admin"), qps=0, burst=1)
        assert await cluster_epoch(api, "koordinator-system") == 0
        await api.close()


async def test_a_log_of_an_older_epoch_no_longer_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch, "OUTDATED_SECONDS", 0.05)
    read = ("GET", "/api/v1/namespaces/koordinator-system/configmaps/koordstream-cluster")
    async with gateway_world(tmp_path) as world:
        await world.server.apply(pod("a"))
        await world.mirrored("a")
        await world.stop()
        await begun_anew(world, MemoryEventLog(MemoryLog()), tmp_path)
        await world.begin()
        await world.until(lambda: "epoch" in (world.gateway.outdated or ""))
        await world.server.apply(pod("b"))
        looks = world.server.requests.count(read)
        await world.until(lambda: world.server.requests.count(read) > looks + 1)

        assert world.spec(world.uid("b")) is None
        api = await connect_api(world.server.kubeconfig(tmp_path / "admin"), qps=0, burst=1)
        assert await cluster_epoch(api, "koordinator-system") == 1
        await api.close()


async def test_who_cannot_read_the_epoch_writes_nothing_and_once_it_leads_no_more_it_is_as_ready_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch, "OUTDATED_SECONDS", 0.05)
    async with gateway_world(tmp_path, begin=False) as world:
        nobody = User("manager", [])
        world.server.users["manager"] = nobody
        leadership = Interrupted()
        await world.begin(leadership=leadership, token="manager")
        await world.server.apply(pod("a"))
        await world.until(lambda: "the cluster's epoch is not known" in (world.gateway.outdated or ""))
        assert world.spec(world.uid("a")) is None

        leadership.term = None
        assert world.gateway.outdated is None
        leadership.term = Term("test", 2, 0.0)
        assert world.gateway.outdated is None, "what an earlier term found is not said of this one"
        await world.until(lambda: world.gateway.outdated)
        nobody.rules = None
        await world.mirrored("a")
        assert world.gateway.outdated is None


def sweep_of(world: World, instance: Instance, registry: CollectorRegistry) -> Sweep:
    tracer = make_tracer("t", instance="t", cluster="t", otlp_endpoint=None, trace_file=None, sample_ratio=0.0)

    async def folded(seq: int) -> None:
        await world.until(lambda: world.view.state.position >= seq)

    scribe = FactAppender(
        world.view, world.bus.events, SoleLeader("t"), SystemClock(), tracer, logger("t"), folded, "manager/t"
    )
    errors = ErrorBoundary("sweep", logger("t"))
    return Sweep(instance.api, scribe, gateway_settings().resources, logger("t"), GatewayMetrics(registry), errors)


async def test_a_drift_that_stands_for_three_sweeps_is_healed(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        instance = await world.begin()
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.append(AggregateRef("podspec", uid), PodSpecDeleted(namespace="default", name="a"))
        world.server.objects("pods")[0]["spec"]["priority"] = 7  # and the watch never heard of this
        registry = CollectorRegistry()

        def counted(kind: str) -> float | None:
            return registry.get_sample_value("koord_bus_drift_total", {"kind": kind})

        sweep = sweep_of(world, instance, registry)
        assert (counted("pods"), counted("nodes")) == (0, 0)
        assert [await sweep.once() for _ in range(2)] == [1, 1]
        assert world.spec(uid) is None
        assert await sweep.once() == 1
        assert world.spec(uid) is not None
        assert await sweep.once() == 0
        assert (counted("pods"), counted("nodes")) == (3, 0)
        assert not world.view.state.of_kind(DriftState), "what is healed is forgotten"


async def test_an_object_that_the_log_never_stores_does_not_end_a_sweep(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        instance = await world.begin()
        large = pod("a")
        large["spec"]["containers"][0]["image"] = "x" * 4096
        uids: dict[str, str] = {}
        for each in (large, pod("b")):
            name = each["metadata"]["name"]
            await world.server.apply(each)
            uids[name] = await world.mirrored(name)
            await world.append(AggregateRef("podspec", uids[name]), PodSpecDeleted(namespace="default", name=name))
        events = world.bus.events
        assert isinstance(events, MemoryEventLog)
        events.log.max_payload = 4096
        sweep = sweep_of(world, instance, CollectorRegistry())
        with capture_logs() as lines:
            assert [await sweep.once() for _ in range(3)] == [2, 2, 2]
            assert await sweep.once() == 1
        assert (world.spec(uids["a"]), world.spec(uids["b"]) is None) == (None, False)
        told = [line["object"] for line in lines if line["event"] == "gateway_object_failed"]
        assert told == [f"podspec.{uids['a']}"] * 2, "from the third sweep on"
