"""What an agent costs: one node of 100 pods and 200 containers at the default intervals, and 300 simulated nodes.

The node is a fake cgroup v1 tree with the kernel's formats; its agent runs in a process of its own, so that resident
memory is the agent's. A day passes in steps of 300 s with pods coming and going; growth is what resident memory gained
in its second half.
"""

import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.results import Better, Result

PODS = 100
ROUNDS = 40
DAY_SECONDS = 86_400
STEP_SECONDS = 300
AGENTS = 300
ROUND_SECONDS = 2.0
SLO = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cfsQuota",
    }
}


def measure() -> Iterator[Result]:
    """One node in a process of its own, then many simulated ones in this one."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.measure_agent"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    found: dict[str, float] = json.loads(done.stdout)
    yield Result(
        name="agent: 100 pods, 200 containers, every second",
        value=found["percent"],
        unit="% of a core",
        target=3.0,
        better=Better.LOWER,
    )
    yield Result(
        name="agent: resident memory", value=found["resident_mib"], unit="MiB", target=100.0, better=Better.LOWER
    )
    yield Result(
        name="agent: growth over the second half of a day",
        value=found["growth_mib"],
        unit="MiB",
        target=4.0,
        better=Better.LOWER,
    )
    yield from _many_agents()


def _many_agents() -> Iterator[Result]:
    from koord_agent.domain.metrics.monitor import NodeMonitor
    from koord_agent.domain.metrics.series import SeriesStore
    from koord_agent.domain.node.desired import view_of
    from koord_agent.domain.prediction.predictor import PeakPredictor
    from koord_agent.shell.node.measure import Measurement
    from koord_agent.shell.node.node_agent import NodeAgent
    from koord_agent.shell.node.pods import PodControl
    from koord_agent.shell.node.predicting import Predicting
    from koord_agent.simulator.host import SimulatedFleet
    from koord_agent.simulator.nodes import SimulatedNode
    from koordcore.events.node_ledger import PodOnNode
    from koordcore.ports.desired import DesiredNode

    fleet = SimulatedFleet(SimulatedNode(name=f"n{i}", cpu_milli=32_000, memory_bytes=128 << 30) for i in range(AGENTS))
    agents: list[NodeAgent] = []
    for i in range(AGENTS):
        host = fleet.host(f"n{i}")
        monitor = NodeMonitor(collect_interval_ms=2_000, store=SeriesStore(retention_ms=330_000), with_page_cache=False)
        agent = NodeAgent(
            f"n{i}",
            host,
            Measurement(monitor=monitor, predicting=Predicting(PeakPredictor())),
            interval_ms=2_000,
            pods=PodControl(runner=host),
        )
        pods = [
            PodOnNode(
                uid=f"p{i}-{k}",
                namespace="default",
                name=f"p{k}",
                requests={"cpu" if k < 7 else "kubernetes.io/batch-cpu": 2_000},
                qos="LS" if k < 7 else "BE",
                kube_qos="Burstable" if k < 7 else "BestEffort",
                priority_class="koord-prod" if k < 7 else "koord-batch",
            )
            for k in range(10)
        ]
        amounts = {"cpu": 32_000, "memory": 128 << 30}
        agent.desired = view_of(
            DesiredNode(node=f"n{i}", pods=pods, slo=dict(SLO), capacity=amounts, allocatable=amounts)
        )
        agents.append(agent)
    spent: list[float] = []
    for tick in range(1, 41):
        before = time.process_time()
        fleet.advance(tick * ROUND_SECONDS)
        for agent in agents:
            agent.run_cycle(round(tick * ROUND_SECONDS * 1000))
        spent.append(time.process_time() - before)
    yield Result(
        name="agent: 300 simulated nodes of 10 pods, every 2 s",
        value=100 * sum(spent[5:]) / len(spent[5:]) / ROUND_SECONDS,
        unit="% of a core",
        target=25.0,
        better=Better.LOWER,
    )


def _one_node(folder: Path) -> dict[str, float]:
    """The figures of one node; run in a process that imports nothing but the agent."""
    from bench.fake_node import CPUS, MEMORY_KIB, FakeNode
    from koord_agent.domain.metrics.monitor import NodeMonitor
    from koord_agent.domain.metrics.series import SeriesStore
    from koord_agent.domain.node.desired import view_of
    from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
    from koord_agent.domain.prediction.predictor import PeakPredictor
    from koord_agent.shell.host.linux import LinuxHost
    from koord_agent.shell.host.probe import HostRoots
    from koord_agent.shell.node.measure import Measurement
    from koord_agent.shell.node.node_agent import NodeAgent
    from koord_agent.shell.node.predicting import CheckpointFolder, Predicting
    from koord_agent.shell.store.series_archive import SeriesArchive
    from koordcore.ports.desired import DesiredNode

    node, now = FakeNode(folder), [0]

    def pod(uid: str, best_effort: bool) -> AgentPod:
        return agent_pod_from_json(node.add(uid, best_effort=best_effort))

    def clock() -> int:
        return now[0] * 1_000_000

    store = SeriesStore(retention_ms=12 * 3600 * 1000, object_retention_ms=660_000)
    host = LinuxHost(
        monotonic_ns=clock,
        roots=HostRoots(cgroup=node.cgroup, proc=node.proc),
        version=1,
        layout=node.layout,
        jiffy=10_000_000,
    )
    archive = SeriesArchive(folder / "series")
    archive.restore(store, 0)
    agent = NodeAgent(
        "n",
        host,
        Measurement(
            monitor=NodeMonitor(collect_interval_ms=1_000, store=store),
            predicting=Predicting(PeakPredictor(), CheckpointFolder(folder / "predictions")),
            archive=archive,
        ),
        interval_ms=1_000,
    )
    amounts = {"cpu": CPUS * 1000, "memory": MEMORY_KIB * 1024}
    view = view_of(DesiredNode(node="n", slo=dict(SLO), capacity=amounts, allocatable=amounts))
    pods = {uid: pod(uid, index % 4 == 0) for index in range(PODS) for uid in (f"pod-{index}",)}
    agent.desired = replace(view, pods=pods)

    def tick(seconds: int) -> None:
        now[0] += seconds * 1000
        agent.run_cycle(now[0])

    # the memory of eleven minutes of pods' samples, and the cost of a round in the midst of it
    for _ in range(660 - ROUNDS):
        tick(1)
    before = time.process_time()
    for _ in range(ROUNDS):
        tick(1)
        if now[0] % 60_000 == 0:
            agent.report(now[0], str)
    percent = 100 * (time.process_time() - before) / ROUNDS
    resident = _resident_mib()

    half = 0.0
    for step in range(DAY_SECONDS // STEP_SECONDS):
        if step % 8 == 0:
            gone = f"pod-{step // 8}" if step < 8 * PODS else ""
            uid = f"new-{step}"
            pods = {name: one for name, one in pods.items() if name != gone} | {uid: pod(uid, best_effort=False)}
            agent.desired = replace(view, pods=pods)
        tick(STEP_SECONDS)
        if step % 5 == 0:
            agent.measuring.collect_garbage(now[0])
        if step == DAY_SECONDS // STEP_SECONDS // 2:
            half = _resident_mib()
    return {"percent": percent, "resident_mib": resident, "growth_mib": _resident_mib() - half}


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / (1 << 20)


if __name__ == "__main__":
    importlib.import_module("koord_agent.compose")  # what the service itself has loaded
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(_one_node(Path(name))))
