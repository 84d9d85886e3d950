"""kill -9 of the manager at every named step of its gateway: what was placed is bound, what was to be evicted goes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from koordcore.bus.factory import BusSettings, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.gateway import PodEvictionRequested
from koordcore.ports.eventlog import Appended
from koordcore.protocol.crd.catalogue import definition_texts
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from koordcore.state.aggregates import BindingOutcome, EvictionState, PodSpecState, PodState
from koordcore.values.timestamps import rfc3339
from support.depth import first_of
from support.kubernetes.cluster_day import CLUSTER, Day, cluster_day, fold_of
from support.kubernetes.gateway_world import node, pod

pytestmark = [pytest.mark.slow, pytest.mark.nats]

PODS = 6


async def begin(day: Day, failpoint: str) -> None:
    for text in definition_texts().values():
        await day.server.apply(yaml.safe_load(text))
    await day.server.apply(node("node-1"))
    for number in range(PODS):
        await day.server.apply(pod(f"p-{number}", cpu="100m"))
    await day.start("scheduler", "koord_scheduler")
    await day.start_manager("first", failpoint=failpoint)


async def ask_to_evict(day: Day, names: list[str]) -> list[str]:
    uids = [str((day.server.object("pods", "default", name) or {})["metadata"]["uid"]) for name in names]
    async with open_bus(BusSettings(urls=(day.nats.url,), cluster=CLUSTER)) as bus:
        for uid, name in zip(uids, names, strict=True):
            wanted = PodEvictionRequested(namespace="default", name=name, initiator="descheduler", reason="Evicted")
            origin = Origin(
                causation_id=f"test/{uid}", correlation_id=uid, actor="test", occurred_at=rfc3339(SystemClock().now())
            )
            draft = Draft(AggregateRef("eviction", uid), wanted, 0)
            assert isinstance(await bus.events.append(CATALOGUE.seal([draft], origin)), Appended)
    return uids


def first_has_died(day: Day) -> bool:
    return not day.processes["first"].is_running


def bound(state: ClusterState) -> list[BindingOutcome | None]:
    return [spec.binding for spec in state.of_kind(PodSpecState).values()]


async def folded_until(day: Day, holds: Callable[[ClusterState], bool], what: str) -> ClusterState:
    states: list[ClusterState] = []

    async def is_so() -> bool:
        states.append(await fold_of(day.nats))
        return holds(states[-1])

    await day.until(is_so, what)
    return states[-1]


@pytest.mark.deep
@pytest.mark.parametrize("failpoint", first_of(["binding_decided_before_request:1", "binding_answered_before_fact:3"]))
async def test_every_placed_pod_is_bound_after_a_kill(
    tmp_path: Path, fresh_nats_server: NatsServer, failpoint: str
) -> None:
    async with cluster_day(tmp_path, fresh_nats_server) as day:
        await begin(day, failpoint)
        await day.until(lambda: first_has_died(day), "the kill")
        await day.start_manager("second")
        await day.until(lambda: not day.unbound(), "all pods bound")

        state = await folded_until(day, lambda state: all(bound(state)), "every outcome recorded")
        assert all(binding is not None and binding.failure == "" for binding in bound(state))
        for found in day.server.objects("pods"):
            assert state.of_kind(PodState)[found["metadata"]["uid"]].node == found["spec"]["nodeName"]


@pytest.mark.deep
async def test_every_eviction_is_carried_out_after_a_kill(tmp_path: Path, fresh_nats_server: NatsServer) -> None:
    async with cluster_day(tmp_path, fresh_nats_server) as day:
        await begin(day, "eviction_decided_before_request:2")
        await day.until(lambda: not day.unbound(), "all pods bound")
        uids = await ask_to_evict(day, ["p-0", "p-1", "p-2"])
        await day.until(lambda: first_has_died(day), "the kill")
        await day.start_manager("second")

        def are_leaving() -> bool:
            found = [day.server.object("pods", "default", f"p-{number}") for number in range(3)]
            return all(item is None or item["metadata"].get("deletionTimestamp") for item in found)

        await day.until(are_leaving, "all three evictions")
        await folded_until(
            day, lambda state: not set(uids) & set(state.of_kind(EvictionState)), "every eviction recorded"
        )
