"""What fails at one node, or in one cycle: it is told once, and the others go on."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from koord_agent.shell.node.node_agent import CycleResult, nothing_done
from koordcore.bus.factory import memory_bus
from koordcore.events.nodestate import EvictedPod, PodsEvictedByAgent
from structlog.testing import capture_logs
from support.agent.agent_world import NODE, World, desired, pod
from support.manual_clock import ManualClock
from support.until import let_run, until


async def test_an_error_of_one_node_ends_neither_the_agent_nor_the_farewell_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what nobody thought of")

    nodes = ("a", "b")
    async with World(memory_bus(), ManualClock(), tmp_path, nodes=nodes).running() as world:
        for node in nodes:
            await world.bus.desired.put(desired(pod("web", "LS", 4_000), node=node))
        await world.until(lambda: set(nodes) == set(world.cycle.states.views))
        monkeypatch.setattr(world.cycle.agents["a"].host, "start_pod", broken)
        monkeypatch.setattr(world.cycle.agents["a"], "report", broken)
        monkeypatch.setattr(world.cycle.agents["a"], "farewell", broken)
        closed: list[str] = []
        for node in nodes:

            def close(_: int, node: str = node) -> None:
                closed.append(node)

            monkeypatch.setattr(world.cycle.agents[node].measuring, "close", close)
        with capture_logs() as lines:
            await world.round(3)
            world.cycle.end()
        assert closed == ["a", "b"]
        assert world.cycle.agents["b"].pods.running == {"web"}
        told = [line["problem"].split(":")[0] for line in lines if line["event"] == "node_problem"]
        assert sorted(told) == ["no usage report", "pods were not started and ended", "the last facts are missing"]


async def test_a_pushed_pod_does_not_repeat_the_problems_that_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what nobody thought of")

    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(desired(pod("web", "LS", 4_000), pod("../odd", "LS", 1_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        monkeypatch.setattr(world.cycle.agents[NODE].host, "tree", broken)
        monkeypatch.setattr(world.cycle.agents[NODE], "report", broken)
        with capture_logs() as lines:
            for _ in range(3):
                await world.round()
                world.cycle.changed.add(NODE)
                world.cycle.take_changes()
        told = [(line["source"], line["problem"].split(":")[0]) for line in lines if line["event"] == "node_problem"]
        assert told == [
            ("pods", "pod default/../odd"),
            ("cycle", "the cycle failed, what is set stays"),
            ("report", "no usage report"),
        ]
        monkeypatch.undo()
        with capture_logs() as lines:
            await world.round()
            monkeypatch.setattr(world.cycle.agents[NODE].host, "tree", broken)
            await world.round()
        told = [(line["source"], line["problem"].split(":")[0]) for line in lines if line["event"] == "node_problem"]
        assert told == [("cycle", "the cycle failed, what is set stays")]


async def test_what_the_last_cycle_did_is_told_although_the_process_ends_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()
    victim = EvictedPod(uid="job", namespace="d", name="job", releases={}, ended=True)
    evicted = PodsEvictedByAgent(feature="BEMemoryEvict", pods=[victim], reason="memory", to_release={})

    def run_cycle(_: int) -> CycleResult:
        began.set()
        go_on.wait(60)
        return nothing_done("evicted", (evicted,))

    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        monkeypatch.setattr(
            world.cycle.nodes, "is_simulated", False
        )  # as on a real machine, whose cycles run in a thread
        monkeypatch.setattr(world.cycle.agents[NODE], "run_cycle", run_cycle)
        cycle = asyncio.create_task(world.cycle.run_cycle())
        await until(began.is_set)
        cycle.cancel()
        await let_run()
        assert not cycle.done()
        go_on.set()
        await asyncio.wait((cycle,))
        assert cycle.cancelled()
        assert (await world.facts())[1:] == [evicted]


async def test_a_cycle_without_a_thread_is_a_problem_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(desired(pod("web", "LS", 4_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        monkeypatch.setattr(world.cycle.nodes, "is_simulated", False)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # without a thread yet
        with monkeypatch.context() as patched, capture_logs() as lines:
            patched.setattr(threading.Thread, "start", no_room)
            await world.round()
        told = {(line["source"], line["problem"]) for line in lines if line["event"] == "node_problem"}
        assert ("cycle", "the cycle failed, what is set stays: RuntimeError: can't start new thread") in {
            (source, problem.partition(" (")[0]) for source, problem in told
        }
        with capture_logs() as lines:
            await world.round()
        assert [line for line in lines if line["event"] == "node_problem"] == []


async def test_what_fails_when_a_node_is_closed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError("no space left")

    def full(_: int) -> str:
        return "time series are not stored: disk full"

    async with World(memory_bus(), ManualClock(), tmp_path, nodes=("a", "b")).running() as world:
        monkeypatch.setattr(world.cycle.agents["a"].measuring, "close", broken)
        monkeypatch.setattr(world.cycle.agents["b"].measuring, "close", full)
        with capture_logs() as lines:
            world.cycle.end()
        told = [(line["node"], line["problem"].split(" (")[0]) for line in lines if line["event"] == "node_problem"]
        assert told == [
            ("a", "it is not closed: OSError: no space left"),
            ("b", "time series are not stored: disk full"),
        ]
