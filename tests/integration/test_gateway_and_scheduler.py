"""Manager, scheduler and API server together: what the API server refuses is decided anew, what others bind counts."""

from pathlib import Path
from typing import Any

import pytest
from koordcore.embedded.nats import NatsServer
from koordcore.state.aggregates import PodState
from support.kubernetes.cluster_day import Day, cluster_day, fold_of
from support.kubernetes.gateway_world import node, pod

pytestmark = [pytest.mark.slow, pytest.mark.nats]


async def begin(day: Day, *names: str) -> None:
    for name in names:
        await day.server.apply(node(name, cpu=4))
    await day.start("scheduler", "koord_scheduler")
    await day.start_manager("manager")


def where(day: Day, name: str) -> str:
    found: dict[str, Any] | None = day.server.object("pods", "default", name)
    return str(found["spec"].get("nodeName", "")) if found is not None else ""


async def test_a_refused_binding_is_released_and_decided_anew(tmp_path: Path, fresh_nats_server: NatsServer) -> None:
    async with cluster_day(tmp_path, fresh_nats_server) as day:
        await begin(day, "node-1")
        refused = day.server.faults.answer("POST", "/pods/a/binding", 403)
        await day.server.apply(pod("a"))
        await day.until(lambda: where(day, "a"), "the second binding")

        assert refused.times == 0
        uid = str((day.server.object("pods", "default", "a") or {})["metadata"]["uid"])
        state = (await fold_of(day.nats)).of_kind(PodState)[uid]
        assert (state.node, state.placements) == ("node-1", 2)


async def test_pods_that_others_bound_leave_no_room(tmp_path: Path, fresh_nats_server: NatsServer) -> None:
    async with cluster_day(tmp_path, fresh_nats_server) as day:
        binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "node-1"}}
        await day.server.apply(node("node-1", cpu=4))
        await day.server.apply(pod("daemon", cpu="3", schedulerName="another"))
        await day.server.verbs.bind(("default", "daemon"), binding, "another", dry_run=False)
        await begin(day, "node-2")
        await day.server.apply(pod("big", cpu="3"))
        await day.server.apply(pod("too-big", cpu="3"))
        await day.until(lambda: len(day.unbound()) == 1, "one of two placed")

        assert {where(day, "big"), where(day, "too-big")} == {"node-2", ""}

        def says_why() -> bool:
            waiting = day.server.object("pods", "default", day.unbound()[0])
            conditions: list[dict[str, str]] = (waiting or {})["status"].get("conditions") or []
            return any("Insufficient cpu" in item.get("message", "") for item in conditions)

        await day.until(says_why, "the condition of the pod that waits")
        await day.server.delete("pods", "default", "daemon")
        await day.until(lambda: not day.unbound(), "room after the other's pod has gone")
