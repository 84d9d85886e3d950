"""What packages register beside strategies works in a node's rounds; what of it is broken is told and does nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from koord_agent.domain.extending.extension_points import (
    Found,
    HttpReply,
    HttpRequest,
    PodCollector,
    Point,
    Surroundings,
    TopologyAdditions,
)
from koord_agent.domain.extending.extensions import Extensions
from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.metrics.series import Metrics
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.strategy import CycleState, Needs, Proposal
from koord_agent.shell.extending.extension_threads import ThreadGuard
from koord_agent.shell.extending.installed import extension_routes
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.pods import PodControl
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.node_ledger import PodOnNode
from koordcore.events.nodestate import NodeTopologyReported, TopologyZone
from koordcore.ports.desired import DesiredNode
from koordcore.protocol import keys
from koordcore.service.telemetry.logging import logger
from koordcore.values.invalid import InvalidInput
from starlette.applications import Starlette
from support.until import DEADLINE_SECONDS

AMOUNTS = {"cpu": 8_000, "memory": 1 << 34}
REPORT = NodeTopologyReported(
    policies=["None"], zones=[TopologyZone(name="node-0", capacity={"cpu": 8_000}, allocatable={"cpu": 8_000})]
)


@dataclass
class Counts:
    """A collector of one value per look."""

    values: tuple[Found, ...] = (Found("looks", 1.0),)
    every_seconds: float = 2.0
    seen: list[Surroundings] = field(default_factory=list[Surroundings])

    def collect(self, seen: Surroundings) -> Iterable[Found]:
        self.seen.append(seen)
        return self.values


class Broken:
    """Whatever it is asked, it cannot."""

    name = "s"
    needs = Needs()
    every_seconds = 1.0

    def __call__(self, *_given: object) -> None:
        raise RuntimeError("broken")

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        raise RuntimeError("broken")

    def collect(self, seen: Surroundings) -> Iterable[Found]:
        raise RuntimeError("broken")

    def read(self, seen: Surroundings) -> object:
        raise RuntimeError("broken")

    def cpu_burst(self, pod: AgentPod) -> str | None:
        raise RuntimeError("broken")

    memory_qos = cpu_burst


class Sees:
    """A strategy that keeps what it was shown."""

    name = "Sees"
    needs = Needs()

    def __init__(self) -> None:
        self.looks: list[NodeLook] = []

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        self.looks.append(look)
        return Proposal()


@dataclass
class Season:
    """A state that can be read once in a while."""

    answers: list[str]
    every_seconds: float = 1.0

    def read(self, seen: Surroundings) -> object:
        return self.answers.pop(0)


class Node:
    """A simulated node of 8 cores with its agent; a second per round."""

    def __init__(self, extensions: Extensions, slo: Mapping[str, object] | None = None) -> None:
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
        pods = [
            PodOnNode(
                uid=name,
                namespace="default",
                name=name,
                requests={"cpu": 1_000},
                qos="LS",
                kube_qos="Burstable",
                priority_class="koord-prod",
            )
            for name in ("web", "db")
        ]
        self.agent.desired = view_of(
            DesiredNode(node="n", pods=pods, slo=dict(slo or {}), capacity=AMOUNTS, allocatable=AMOUNTS)
        )
        self.now_ms = 0

    def rounds(self, number: int = 1) -> tuple[str, ...]:
        """Problems of the last of so many rounds."""
        problems: tuple[str, ...] = ()
        for _ in range(number):
            self.now_ms += 1_000
            self.fleet.advance(self.now_ms / 1000)
            problems = self.agent.run_cycle(self.now_ms).problems
        return problems


def test_values_of_a_collector_are_series_that_strategies_ask_for() -> None:
    extensions, counts, strategy = Extensions(), Counts((Found("looks", 3.0), Found("of", 4.0, "web"))), Sees()
    extensions.add_collector("c", counts)
    extensions.add_strategy(strategy)
    extensions.switch({"Sees": True})
    node = Node(extensions)
    assert node.rounds(4) == ()
    assert len(counts.seen) == 2, "every second second"
    assert {pod.uid for pod in counts.seen[-1].pods} == {"web", "db"}
    metrics = strategy.looks[-1].metrics
    assert metrics.last(Kind.EXTENSION, ("c", "looks", "")) == 3.0
    assert metrics.last(Kind.EXTENSION, ("c", "of", "web")) == 4.0


@pytest.mark.parametrize(
    ("values", "kept", "told"),
    [
        ((Found("", 1.0), Found("a", float("nan")), Found("b", 2.0)), 1, "left out"),
        (tuple(Found(f"m{number}", 1.0) for number in range(1_500)), 1_000, "1500 values, the first 1000 are kept"),
        (("no value",), 0, "collector c: ValueError"),
    ],
)
def test_values_that_are_none_or_too_many_are_left_out_and_told(
    values: tuple[Found, ...], kept: int, told: str
) -> None:
    extensions = Extensions()
    extensions.add_collector("c", Counts(values))
    node = Node(extensions)
    assert any(told in problem for problem in node.rounds())
    assert len(node.agent.measuring.store.held(Kind.EXTENSION)) == kept


@dataclass
class Fails:
    """A collector that fails as long as `fails` is set, and gives one value otherwise."""

    fails: bool = True
    every_seconds: float = 5.0

    def collect(self, seen: Surroundings) -> tuple[Found, ...]:
        if self.fails:
            raise OSError("no sensor")
        return (Found("watts", 1.0),)


def test_a_problem_of_a_collector_lasts_until_a_later_reading_has_none() -> None:
    extensions, collector = Extensions(), Fails()
    extensions.add_collector("power", collector)
    node = Node(extensions)
    told = [problem for _ in range(11) for problem in node.rounds() if "no sensor" in problem]
    assert len(told) == 11
    collector.fails = False
    last = [node.rounds() for _ in range(5)][-1]
    assert last == ()


def test_a_state_is_in_the_look_and_the_last_one_stays_when_it_cannot_be_read() -> None:
    extensions = Extensions()
    extensions.add_state("season", Season(["spring", "summer"]))
    node = Node(extensions)
    node.rounds(2)
    assert any("state season: IndexError" in problem for problem in node.rounds())
    assert node.agent.last_look is not None
    assert node.agent.last_look.states == {"season": "summer"}


def test_a_filter_keeps_pods_from_a_collector_and_a_broken_one_keeps_none_away() -> None:
    extensions = Extensions()
    extensions.add_pod_filter([PodCollector.USAGE], "not db", lambda pod: pod.name != "db")
    extensions.add_pod_filter([PodCollector.USAGE], "broken", Broken())  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput):
        extensions.add_pod_filter([PodCollector.PRESSURE, PodCollector.USAGE], "not db", lambda pod: True)
    node = Node(extensions)
    told = [problem for problem in node.rounds() if problem.startswith("pod filter broken: RuntimeError: broken (")]
    assert len(told) == 1
    assert list(node.rounds(3)) == told, "asked again, told once a round"
    assert node.agent.measuring.store.objects(Kind.POD_CPU) == ["web"]


def test_a_filter_that_failed_is_asked_again_and_one_that_answered_is_not() -> None:
    class Fails:
        def __init__(self, times: int) -> None:
            self.left = times
            self.asked = 0

        def __call__(self, pod: AgentPod) -> bool:
            self.asked += 1
            if pod.name == "db" and self.left > 0:
                self.left -= 1
                raise TimeoutError("busy")
            return pod.name != "db"

    extensions, fails, answers = Extensions(), Fails(2), Fails(0)
    extensions.add_pod_filter([PodCollector.USAGE], "fails", fails)
    extensions.add_pod_filter([PodCollector.USAGE], "keeps all", lambda pod: answers(pod) or True)
    extended = NodeExtensions(extensions)
    node = Node(Extensions())
    node.rounds()
    pods = tuple(node.agent.pods.all.values())
    kept = [[pod.name for pod in extended.measured(PodCollector.USAGE, pods)] for _ in range(4)]
    assert [sorted(names) for names in kept] == [["db", "web"], ["db", "web"], ["web"], ["web"]]
    assert (fails.asked, answers.asked) == (4, 2)


def test_a_policy_that_failed_is_asked_again_until_it_answers() -> None:
    class Fails:
        def __init__(self) -> None:
            self.asked = 0

        def cpu_burst(self, pod: AgentPod) -> str | None:
            self.asked += 1
            if self.asked < 3:
                raise TimeoutError("busy")
            return '{"policy": "auto"}'

        def memory_qos(self, pod: AgentPod) -> str | None:
            return '{"policy": "none"}'

    extensions, fails = Extensions(), Fails()
    extensions.add_policies("p", fails)
    extended = NodeExtensions(extensions)
    node = Node(Extensions())
    node.rounds()
    assert node.agent.last_look is not None
    look = replace(node.agent.last_look, pods=node.agent.last_look.pods[:1])
    found = [extended.with_policies(look).pods[0] for _ in range(4)]
    burst = [pod.annotations.get(keys.CPU_BURST) for pod in found]
    assert burst == [None, None, '{"policy": "auto"}', '{"policy": "auto"}']
    assert all(keys.MEMORY_QOS in pod.annotations for pod in found)
    assert found[0] is found[1], "the same answers are the same object"
    assert found[2] is found[3]
    assert fails.asked == 3


def test_a_slow_extension_costs_a_round_and_a_report_its_time_once_and_gets_on_with_the_rest() -> None:
    seconds = 10 * DEADLINE_SECONDS  # what is left after the last call that must be answered is a deadline at least

    class Slow:
        """Each answer takes 0.8 of `seconds`, by a clock that nothing else moves."""

        def __init__(self) -> None:
            self.now = 0.0
            self.asked = 0

        def cpu_burst(self, pod: AgentPod) -> str | None:
            self.now += 0.8 * seconds
            self.asked += 1
            return None

        memory_qos = cpu_burst

        def __call__(self, pod: AgentPod, metrics: Metrics) -> object:
            return self.cpu_burst(pod) or 1

    policies, metric = Slow(), Slow()
    extensions = Extensions(guard=ThreadGuard(call_seconds=seconds, clock=lambda: policies.now + metric.now))
    extensions.add_policies("p", policies)
    extensions.add_pod_metric("m", metric)
    node, asked = Node(extensions), list[int]()
    first = node.rounds()
    asked.append(policies.asked)
    assert first == (f"policies p: the {seconds:g} s of a cycle are spent, further calls are skipped",)
    for _ in range(2):
        assert node.rounds() == ()
        asked.append(policies.asked)
    assert asked == [2, 4, 4], "two policies of two pods"
    for reports in (1, 2):
        report = node.agent.report(node.now_ms, str)
        assert report is not None
        assert [pod.extensions for pod in report.pods] == [{"m": 1}, {"m": 1}]
        assert metric.asked == 2 * reports


def test_defaults_of_the_nodeslo_give_way_field_by_field() -> None:
    extensions = Extensions()
    extensions.add_slo_defaults("mine", {"a": {"b": 1, "c": 2}, "d": 3})
    extended = NodeExtensions(extensions)
    assert extended.slo(None) is None
    written = {"extensions": {"mine": {"a": {"c": 5}, "d": None}, "theirs": 1}}
    found = extended.slo(written)
    assert found == {"extensions": {"mine": {"a": {"b": 1, "c": 5}, "d": 3}, "theirs": 1}}
    assert extended.slo(written) is found
    node = Node(extensions)
    node.rounds()
    assert node.agent.last_look is not None
    assert (node.agent.last_look.slo or {})["extensions"] == {"mine": {"a": {"b": 1, "c": 2}, "d": 3}}


def test_a_report_says_of_pods_what_was_filled_in() -> None:
    def of_web(pod: AgentPod, metrics: Metrics) -> object:
        return {"cores": metrics.last(Kind.POD_CPU, pod.uid)} if pod.name == "web" else None

    def no_json(_pod: AgentPod, _metrics: Metrics) -> object:
        return object()

    extensions = Extensions()
    extensions.add_pod_metric("mine", of_web)
    extensions.add_pod_metric("odd", no_json)
    node = Node(extensions)
    node.rounds(3)
    report = node.agent.report(node.now_ms, str)
    assert report is not None
    extended = {pod.uid: pod.extensions for pod in report.pods}
    assert extended["db"] == {}
    assert extended["web"]["mine"]["cores"] > 0
    assert any("pod metric odd: TypeError" in problem for problem in node.rounds())


def test_hooks_add_to_the_topology_what_the_agent_does_not_say() -> None:
    extensions = Extensions()
    extensions.add_topology_hook(
        "b", lambda report: TopologyAdditions(annotations={"seen": "".join(report.annotations)})
    )
    extensions.add_topology_hook(
        "a",
        lambda _report: TopologyAdditions(annotations={"mine": "1"}, zone_resources={"node-0": {"example.com/x": 2}}),
    )
    extensions.add_topology_hook("c", lambda _report: TopologyAdditions(annotations={"mine": "2"}))
    extensions.add_topology_hook("d", lambda _report: TopologyAdditions(zone_resources={"node-0": {"cpu": 1}}))
    extensions.add_topology_hook("e", lambda _report: TopologyAdditions(zone_resources={"node-7": {"x": 1}}))
    extended = NodeExtensions(extensions)
    report = extended.topology(REPORT)
    assert report.annotations == {"mine": "1", "seen": "mine"}
    assert report.zones == [
        TopologyZone(
            name="node-0",
            capacity={"cpu": 8_000, "example.com/x": 2},
            allocatable={"cpu": 8_000, "example.com/x": 2},
        )
    ]
    problems = extended.take_problems()
    assert [problem.split(":")[0] for problem in problems] == [f"topology hook {name}" for name in "cde"]


def test_of_a_hook_that_fails_stays_what_it_added_last_as_far_as_it_fits() -> None:
    answers = [2, None, 3, None]

    def sometimes(_report: NodeTopologyReported) -> TopologyAdditions:
        amount = answers.pop(0)
        if amount is None:
            raise TimeoutError("busy")
        return TopologyAdditions(annotations={"mine": "1"}, zone_resources={"node-0": {"example.com/x": amount}})

    extensions = Extensions()
    extensions.add_topology_hook("a", sometimes)
    extended = NodeExtensions(extensions)
    said = [extended.topology(REPORT) for _ in range(3)]
    assert said[0] == said[1]
    assert [report.zones[0].capacity["example.com/x"] for report in said] == [2, 2, 3]
    (problem,) = extended.take_problems()
    assert problem.startswith("topology hook a: TimeoutError: busy (test_extension_points.py:")
    without_the_zone = NodeTopologyReported(policies=["None"], zones=[])
    assert extended.topology(without_the_zone) == without_the_zone


def test_everything_broken_at_once_is_told_by_name_and_the_round_goes_on() -> None:
    extensions, broken = Extensions(), Broken()
    extensions.add_strategy(broken)
    extensions.add_policies("p", broken)
    extensions.add_collector("c", broken)
    extensions.add_state("t", broken)
    extensions.add_pod_metric("m", broken)  # pyright: ignore[reportArgumentType]
    extensions.switch({"s": True})
    node, plain = Node(extensions), Node(Extensions())
    problems = node.rounds(2)
    plain.rounds(2)
    assert {problem.split(":")[0] for problem in problems} == {
        "strategy s",
        "collector c",
        "state t",
        "policies p",
    }
    assert len(problems) == 4
    report, undisturbed = node.agent.report(2_000, str), plain.agent.report(2_000, str)
    assert report == undisturbed
    assert extensions.failures[Point.POD_METRIC, "m"] == 2
    assert extensions.failures[Point.STRATEGY, "s"] == 2
    assert extensions.failures[Point.POLICIES, "p"] == 8, "both policies of both pods, in each round"


def test_plans_that_are_none_never_reach_the_arbiter() -> None:
    class Odd:
        name = "Odd"
        needs = Needs()

        def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
            return Proposal([object()])  # pyright: ignore[reportArgumentType]

    extensions = Extensions()
    extensions.add_strategy(Odd())
    extensions.switch({"Odd": True})
    assert any("strategy Odd" in problem for problem in Node(extensions).rounds())


async def test_pages_are_served_and_a_broken_one_is_an_error_of_its_own() -> None:
    def echo(request: HttpRequest) -> HttpReply:
        return HttpReply(body=request.query.get("say", "").encode() + request.body, status=201)

    extensions = Extensions()
    extensions.add_http("/echo", echo)
    extensions.add_http("/broken", Broken())  # pyright: ignore[reportArgumentType]
    extensions.add_http("/odd", lambda _request: None)  # pyright: ignore[reportArgumentType]
    for taken in ("/echo", "/metrics", "/events/", "metrics", "/"):
        with pytest.raises(InvalidInput):
            extensions.add_http(taken, echo)
    transport = httpx.ASGITransport(app=Starlette(routes=extension_routes(extensions, logger("agent"))))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        answer = await client.post("/echo?say=hello%20", content=b"you")
        assert (answer.status_code, answer.text) == (201, "hello you")
        answer = await client.get("/broken")
        assert answer.status_code == 500
        assert answer.text.startswith("http handler /broken: RuntimeError: broken (test_extension_points.py:")
        assert (await client.get("/odd")).status_code == 500
        assert (await client.get("/echo")).status_code == 201
    assert extensions.failures[Point.HTTP, "/broken"] == 1


def test_an_eviction_that_fails_leaves_the_request_alone_standing() -> None:
    extensions = Extensions()
    extensions.replace_eviction(Broken())  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput):
        extensions.replace_eviction(lambda _pod: True)
    node = Node(extensions)
    node.rounds()
    extended = NodeExtensions(extensions)
    assert extended.replaces_eviction
    assert not extended.evict(node.agent.pods.all["web"])
    (problem,) = extended.take_problems()
    assert problem.startswith("eviction replaced: RuntimeError: broken (test_extension_points.py:")


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.5, float("nan")])
def test_a_collector_without_a_pace_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="a collector c"):
        Extensions().add_collector("c", Counts(every_seconds=seconds))
