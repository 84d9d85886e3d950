"""A placed pod is bound whatever the API server answers, or gives its place back."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from koordcore.events.envelope import AggregateRef
from koordcore.events.pod import PodDeviceUnhealthy, UnhealthyDevice
from koordcore.service.clock import SystemClock
from support.kubernetes.faults import Fault
from support.kubernetes.gateway_world import facts_of, gateway_world, node, pod, words

MANY = 1_000_000


@pytest.mark.parametrize("code", [429, 500, 503, 504])
async def test_a_binding_that_the_server_could_not_take_is_repeated(tmp_path: Path, code: int) -> None:
    async with gateway_world(tmp_path) as world:
        world.server.faults.answer("POST", "/binding", code, times=2)
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.place(uid, "node-1")
        await world.until(lambda: world.node_of("a") == "node-1")
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)

        assert (await facts_of(world, uid)).count("PodBound") == 1


class AnHourAhead(SystemClock):
    """A clock that differs from that of the API server."""

    def now(self) -> datetime:
        """Return a time in an hour."""
        return super().now() + timedelta(hours=1)


async def test_a_binding_is_one_request_and_one_fact_whatever_the_clock_of_the_manager_says(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, clock=AnHourAhead()) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.place(uid, "node-1")
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)
        await world.server.apply(pod("b"))
        await world.mirrored("b")  # the watch has brought the bound pod before

        writes = [asked for asked in world.server.requests if asked[0] not in ("GET", "WATCH") and "/pods/" in asked[1]]
        assert writes == [("POST", "/api/v1/namespaces/default/pods/a/binding")]
        assert await facts_of(world, uid) == ["PodSpecAdded", "PodBound"]


@pytest.mark.parametrize("first", ["the watch or the second attempt", "the second attempt"])
async def test_a_binding_whose_answer_was_lost_is_found_to_be_done(tmp_path: Path, first: str) -> None:
    async with gateway_world(tmp_path) as world:
        world.server.faults.add(Fault("POST", "/binding", lose_answer=True))
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        refused = world.server.faults.add(Fault("GET", "/api/v1/pods", 503, times=0, watch=True))
        if first == "the second attempt":
            await world.drop_watches("pods")
            refused.times = MANY  # before the gateway can open it again
            await world.until(lambda: refused.times < MANY)
        await world.place(uid, "node-1")
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)
        refused.times = 0
        await world.server.apply(pod("b"))
        await world.mirrored("b")  # the watch has brought the bound pod before

        spec = world.spec(uid)
        assert spec is not None
        assert spec.binding is not None
        assert spec.binding.failure == ""
        assert world.node_of("a") == "node-1"
        assert await facts_of(world, uid) == ["PodSpecAdded", "PodBound"]


async def test_a_pod_that_somebody_else_bound_is_released(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        world.server.faults.add(Fault("POST", "/binding", 503, times=1))
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "node-2"}}
        await world.place(uid, "node-1")
        await world.server.verbs.bind(("default", "a"), binding, "another-scheduler", dry_run=False)
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)

        spec = world.spec(uid)
        assert spec is not None
        assert spec.binding is not None
        assert spec.binding.failure == "AssignedElsewhere"
        assert world.node_of("a") == "node-2"


async def test_a_pod_that_is_refused_or_leaving_gives_its_place_back(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("refused"))
        await world.server.apply({**pod("leaving"), "metadata": {"name": "leaving", "finalizers": ["a/b"]}})
        refused, leaving = await world.mirrored("refused"), await world.mirrored("leaving")
        world.server.faults.answer("POST", "pods/refused/binding", 403)
        await world.server.delete("pods", "default", "leaving")
        await world.place(refused, "node-1")
        await world.place(leaving, "node-1")

        def failure(uid: str) -> str:
            spec = world.spec(uid)
            return spec.binding.failure if spec is not None and spec.binding is not None else ""

        await world.until(lambda: failure(refused) and failure(leaving))
        assert (failure(refused), failure(leaving)) == ("Forbidden", "Terminating")
        await world.until(lambda: words(world, "FailedScheduling"))


async def test_a_recreated_pod_is_never_bound_to_the_place_of_its_predecessor(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        first = await world.mirrored("a")
        fault = world.server.faults.add(Fault("POST", "/binding", 503, times=1))
        watch = world.server.faults.add(Fault("GET", "/api/v1/pods", 503, times=2, watch=True))
        await world.drop_watches("pods")
        await world.until(lambda: watch.times < 2)
        await world.place(first, "node-1")
        await world.until(lambda: fault.times == 0)
        await world.server.delete("pods", "default", "a")
        await world.server.apply(pod("a"))
        second = await world.mirrored("a")
        await world.until(lambda: world.spec(first) is None)
        await world.until(lambda: world.gateway.is_idle)  # neither owed nor waiting for another attempt

        assert second != first
        assert world.node_of("a") == ""


@pytest.mark.parametrize("moment", ["before the request", "after the request"])
async def test_a_placed_pod_is_bound_by_the_next_leader_wherever_the_first_was_killed(
    tmp_path: Path, moment: str
) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        lost = moment == "after the request"
        fault = world.server.faults.add(Fault("POST", "/binding", 0 if lost else 503, times=1, lose_answer=lost))
        await world.place(uid, "node-1")
        await world.until(lambda: fault.times == 0)
        await world.stop()
        await world.begin()
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)

        assert world.node_of("a") == "node-1"
        assert (await facts_of(world, uid)).count("PodBound") == 1


async def test_the_failure_and_the_recovery_of_a_device_are_events_of_its_pod(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.place(uid, "node-1")
        broken = UnhealthyDevice(type="gpu", minor=0, id="GPU-00")
        failed = PodDeviceUnhealthy(namespace="default", name="a", node="node-1", devices=[broken])
        ref = AggregateRef("pod", uid)
        await world.append(ref, failed)
        await world.until(lambda: words(world, "DeviceUnhealthy"))
        (told,) = words(world, "DeviceUnhealthy")
        assert told["type"] == "Warning"
        assert told["involvedObject"]["uid"] == uid
        assert told["message"].startswith("gpu 0 (GPU-00) of node-1;")

        await world.append(ref, PodDeviceUnhealthy(namespace="default", name="a", node="node-1"))
        await world.until(lambda: words(world, "DevicesHealthy"))
        placed = world.placed(uid)
        assert placed is not None
        assert (placed.node, placed.unhealthy_devices) == ("node-1", [])
