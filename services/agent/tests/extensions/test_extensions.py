"""What installed packages add to an agent: found, switched, arbitrated like the rest, and never able to end a round."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.extending.extension_points import Point, StateKind, Target
from koord_agent.domain.extending.extensions import Extensions
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.strategies.strategy import CycleState, Needs, Proposal
from koord_agent.shell.extending.installed import ENTRY_POINTS, installed_extensions
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.pods import PodControl
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.node_ledger import PodOnNode
from koordcore.ports.desired import DesiredNode
from koordcore.service.telemetry.logging import logger
from koordcore.values.invalid import InvalidInput
from structlog.testing import capture_logs

OFFERED = """
from koord_agent.domain.strategies.strategy import Needs, Proposal

class Nothing:
    needs = Needs()

    def __init__(self, name):
        self.name = name

    def propose(self, look, policy, state):
        return Proposal()

def register(extensions):
    extensions.add_strategy(Nothing("Mine"))

def again(extensions):
    extensions.add_strategy(Nothing("Mine"))

def broken(extensions):
    extensions.add_strategy(Nothing("Half"))
    raise RuntimeError("no such device")

def twice(extensions):
    register(extensions)
    register(extensions)

def leaves(extensions):
    raise SystemExit(3)

nothing = 7
"""
LOG = logger("agent")
BE_ROOT = "kubepods.slice/kubepods-besteffort.slice"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    (folder / "offered_extensions.py").write_text(OFFERED)
    info = folder / "offered_extensions-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offered-extensions\nVersion: 1.0\n")
    lines = [f"{name} = offered_extensions:{name}" for name in names]
    (info / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINTS}]", *lines]))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, "offered_extensions", raising=False)


def test_packages_offer_them_and_a_flag_switches_their_strategies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed_extensions(LOG).strategies == {}
    install(tmp_path, monkeypatch, "register")
    assert installed_extensions(LOG).enabled == frozenset()
    assert installed_extensions(LOG, ("Mine=true",)).enabled == {"Mine"}
    for wrong in ("Other=true", "Mine", "Mine=yes"):
        with pytest.raises(InvalidInput):
            installed_extensions(LOG, (wrong,))


def test_a_name_that_another_package_has_taken_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "register", "again")
    with pytest.raises(InvalidInput):
        installed_extensions(LOG)


@pytest.mark.parametrize("name", ["nothing", "twice", "leaves"])
def test_what_a_package_does_wrong_by_itself_leaves_it_out_and_ends_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, name, "register")
    extensions = installed_extensions(LOG, ("Mine=true",))
    assert extensions.enabled == {"Mine"}
    assert extensions.failures == {(Point.PACKAGE, name): 1}


def test_a_package_that_leaves_while_it_is_imported_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "register")
    (tmp_path / "offered_extensions.py").write_text("import sys\nsys.exit('no device')\n")
    assert installed_extensions(LOG).failures == {(Point.PACKAGE, "register"): 1}


def test_a_package_that_cannot_be_loaded_is_told_and_left_out_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "broken", "missing", "register")
    with capture_logs() as lines:
        extensions = installed_extensions(LOG, ("Mine=true", "Half=true"))
    assert set(extensions.strategies) == extensions.enabled == {"Mine"}
    assert extensions.failures == {(Point.PACKAGE, "broken"): 1, (Point.PACKAGE, "missing"): 1}
    told = str(lines)
    assert "package broken: RuntimeError: no such device" in told
    assert "package missing: AttributeError" in told
    assert "strategy_missing" in told
    assert "Half" in told


class Shares:
    """Gives the best-effort class few shares, and asks for something outside of the pods' trees."""

    name = "Shares"
    needs = Needs()

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        return Proposal(
            Plan(
                plugin=self.name,
                band=Band.TUNING,
                file=CgroupFile(directory, "cpu.shares"),
                value="2",
                created_ms=look.now_ms,
                ttl_ms=state.ttl_ms,
            )
            for directory in (BE_ROOT, "system.slice")
        )


class Broken:
    name = "Broken"
    needs = Needs()

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        raise RuntimeError("not today")


class Burst:
    """Lets pods burst whose name says so."""

    def __init__(self, percent: int) -> None:
        self.percent = percent
        self.asked = 0

    def cpu_burst(self, pod: AgentPod) -> str | None:
        self.asked += 1
        return f'{{"policy": "cpuBurstOnly", "cpuBurstPercent": {self.percent}}}' if pod.name == "web" else None

    def memory_qos(self, pod: AgentPod) -> str | None:
        return None


class Node:
    def __init__(self, extensions: Extensions) -> None:
        self.fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=8_000, memory_bytes=1 << 34)])
        self.host = self.fleet.host("n")
        monitor = NodeMonitor(collect_interval_ms=1_000)
        self.agent = NodeAgent(
            "n",
            self.host,
            Measurement(monitor=monitor),
            interval_ms=1_000,
            extensions=extensions,
            pods=PodControl(runner=self.host),
        )
        self.now_ms = 0

    def round(self, *names: str, **desired: Any) -> tuple[str, ...]:
        pods = [
            PodOnNode(
                uid=name,
                namespace="default",
                name=name,
                requests={"cpu": 1_000},
                limits={"cpu": 2_000},
                qos="LS",
                kube_qos="Burstable",
                priority_class="koord-prod",
            )
            for name in names
        ]
        amounts = {"cpu": 8_000, "memory": 1 << 34}
        wanted = DesiredNode(
            node="n", pods=pods, slo={}, capacity=amounts, allocatable=amounts, labels=desired.get("labels", {})
        )
        self.agent.desired = view_of(wanted, self.agent.desired)
        self.now_ms += 1_000
        self.fleet.advance(self.now_ms / 1000)
        return self.agent.run_cycle(self.now_ms).problems


def test_a_strategy_writes_where_it_may_and_a_broken_one_is_only_a_problem() -> None:
    extensions = Extensions()
    extensions.add_strategy(Shares())
    extensions.add_strategy(Broken())
    extensions.switch({"Shares": True, "Broken": True})
    node = Node(extensions)
    problems = node.round("web")
    assert any(problem.startswith("strategy Broken: RuntimeError: not today (") for problem in problems)
    assert any("system.slice" in problem and "must be inside" in problem for problem in problems)
    assert node.host.read(CgroupFile(BE_ROOT, "cpu.shares")) == "2\n"
    extensions.switch({"Shares": False})
    assert Node(extensions).round("web") == ()


def test_the_first_policy_by_name_holds_for_a_pod_without_an_annotation() -> None:
    extensions = Extensions()
    first, second = Burst(50), Burst(700)
    extensions.add_policies("b", second)
    extensions.add_policies("a", first)
    node = Node(extensions)
    node.round("web", "db")
    pods = node.agent.pods
    directory = node.host.layout.pod_directory(pods.all["web"].kube_qos, "web")
    assert node.host.read(CgroupFile(directory, "cpu.cfs_burst_us")) == "100000\n"
    node.agent.run_cycle(2_000)
    assert (first.asked, second.asked) == (2, 1), "asked once for each pod"


def test_callbacks_hear_the_newest_state_once() -> None:
    heard: list[tuple[StateKind, int]] = []

    def told(kind: StateKind, _state: object, target: Target) -> None:
        heard.append((kind, len(target.pods)))

    def fails(_kind: StateKind, _state: object, _target: Target) -> None:
        raise ValueError("deaf")

    extensions = Extensions()
    for kind in StateKind:
        extensions.add_callback(kind, "told", told)
    extensions.add_callback(StateKind.ALL_PODS, "fails", fails)
    with pytest.raises(InvalidInput):
        extensions.add_callback(StateKind.ALL_PODS, "told", told)
    node = Node(extensions)
    assert any(problem.startswith("callback fails on AllPods: ValueError: deaf (") for problem in node.round("web"))
    assert heard == [(StateKind.NODE_SLO, 1), (StateKind.ALL_PODS, 1), (StateKind.NODE_METADATA, 1)]
    heard.clear()
    node.round("web")
    assert heard == []
    node.round("web", "db", labels={"zone": "a"})
    assert heard == [(StateKind.ALL_PODS, 2), (StateKind.NODE_METADATA, 2)]
