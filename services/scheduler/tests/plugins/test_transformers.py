"""Transformers of one cycle: what they show is seen in that cycle, by everybody who looks, and by nobody after it."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.engine.decision import UNRESTRICTED, Placed, ScoredAs, Unschedulable
from koord_scheduler.domain.framework.cycle_points import NodeView, Scored, Views
from koord_scheduler.domain.framework.extension_points import (
    AFTER_PRE_FILTER,
    BEFORE_FILTER,
    BEFORE_PRE_FILTER,
    BEFORE_SCORE,
)
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koord_scheduler.domain.loop.folding.log import fold, fold_report
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.recompute import Recomputed, recompute
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.envelope import BasedOn
from koordcore.events.node_ledger import NodeResourcesTaken
from koordcore.events.pod import PluginExclusion, PodNominated, PodPlaced
from koordcore.protocol.objects import Pod, Taint
from support.depth import examples
from support.scheduler.plugins import (
    MadeUp,
    asking,
    cluster,
    frameworks_with,
    load_of,
    node_of,
    refusal,
    scheduler_with,
)
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata
from support.scheduler.stories import adds_up, play


def on(pod: Pod, name: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_selector={"name": name}))


# --- preFilter -------------------------------------------------------------------------------------------------------


class Pinned(MadeUp):
    """A label says which node the pod is to select."""

    name = "Pinned"

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        wanted = pod.metadata.labels.get("to")
        if wanted == "nowhere":
            return Rejection(plugin=self.name, message="there is no nowhere")
        return None if wanted is None else on(asking(pod, {"cpu": "1"}), wanted)


class Elsewhere(Pinned):
    """Sees what those before it made of the pod."""

    name = "Elsewhere"

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        return on(pod, "c") if pod.spec.node_selector == {"name": "a"} else None


def test_a_copy_stands_for_the_pod_until_a_node_is_chosen_and_counts_nowhere() -> None:
    scheduler = scheduler_with(cluster("a", "b", "c"), Pinned)
    assert node_of(scheduler, with_metadata(pod("p", {"cpu": "64"}), labels={"to": "b"})) == "b"
    record = scheduler.state.pods["p"]
    assert record.pod is not None
    assert record.pod.spec.node_selector == {}
    assert scheduler.state.nodes.free[1].tolist()[:3] == [4000, 4000 - 64000, 4000]
    assert node_of(scheduler, pod("q", {"cpu": "1"})) in ("a", "c")


@pytest.mark.parametrize(("plugins", "node"), [((Pinned, Elsewhere), "c"), ((Elsewhere, Pinned), "a")])
def test_transformers_go_in_the_order_of_the_point(plugins: Sequence[type[MadeUp]], node: str) -> None:
    scheduler = scheduler_with(cluster("a", "b", "c"), *plugins)
    assert node_of(scheduler, with_metadata(pod("p"), labels={"to": "a"})) == node


def test_a_refusal_before_pre_filter_ends_the_cycle_with_its_words() -> None:
    scheduler = scheduler_with(cluster("a"), Pinned)
    assert node_of(scheduler, with_metadata(pod("p"), labels={"to": "nowhere"})) == ""
    assert refusal(scheduler).message == "0/1 nodes are available: there is no nowhere."


class Strict(MadeUp):
    """Refuses pods that a PreFilter has restricted."""

    name = "Strict"

    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        restricted = [plugin for plugin, candidates in found if candidates.names is not None]
        return Rejection(plugin=self.name, message=f"restricted by {restricted}") if restricted else None


class Restricting(MadeUp):
    """A PreFilter that leaves one node."""

    name = "Strict"

    def pre_filter(self, pod: object, now: float) -> Candidates:
        return Candidates(names=frozenset({"a"}))

    after_pre_filter = Strict.after_pre_filter


def test_after_pre_filter_hears_what_the_pre_filters_have_said() -> None:
    assert node_of(scheduler_with(cluster("a", "b"), Strict), pod("p")) != ""
    scheduler = scheduler_with(cluster("a", "b"), Restricting)
    assert node_of(scheduler, pod("p")) == ""
    assert refusal(scheduler).message == "0/2 nodes are available: restricted by ['Strict']."


# --- filter ----------------------------------------------------------------------------------------------------------

TAINT = {"key": "kept", "value": "", "effect": "NoSchedule"}


class Making(MadeUp):
    """What is said of the pod by its label `see`."""

    name = "Making"

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        what, _, name = pod.metadata.labels.get("see", "").partition(".")
        match what:
            case "untainted":
                plain = self.nodes[self.row(name)]
                spec = msgspec.structs.replace(plain.spec, taints=[])
                return Views(nodes={self.row(name): NodeView(node=msgspec.structs.replace(plain, spec=spec))})
            case "without":
                return Views(nodes={row: NodeView(without=frozenset({name})) for row in self.nodes})
            case "beside":
                return Views(nodes={self.row(name): NodeView(further_pods=(globals()["pod"]("guest", {"cpu": "4"}),))})
            case "tolerating":
                spec = msgspec.structs.replace(pod.spec, tolerations=[_tolerating()])
                own = np.array([self.row(name)], np.intp)
                return Views(pods=[(own, msgspec.structs.replace(pod, spec=spec))])
            case "refused":
                return Rejection(plugin=self.name, message="not today")
            case _:
                return None


def _tolerating() -> Any:
    [toleration] = pod("t", tolerations=[{"key": "kept", "operator": "Exists"}]).spec.tolerations
    return toleration


def seeing(uid: str, what: str, requests: dict[str, str] | None = None, priority: int = 0) -> Pod:
    return with_metadata(pod(uid, requests, priority=priority), labels={"see": what})


def test_a_node_is_seen_with_other_taints_by_one_pod_only() -> None:
    scheduler = scheduler_with(cluster("a", "b", taints=[TAINT]), Making)
    assert node_of(scheduler, seeing("p", "untainted.b")) == "b"
    assert node_of(scheduler, pod("q")) == ""
    assert scheduler.state.nodes.shape_of(1).taints == (Taint(**TAINT),)


def test_a_node_is_seen_without_a_pod_that_holds_its_room() -> None:
    scheduler = scheduler_with(cluster("a"), Making)
    assert node_of(scheduler, pod("holder", {"cpu": "4"})) == "a"
    assert node_of(scheduler, pod("q", {"cpu": "4"})) == ""
    assert node_of(scheduler, seeing("p", "without.holder", {"cpu": "4"})) == "a"
    assert scheduler.state.nodes.free[1, 0] == -4000


def test_a_node_is_seen_with_a_pod_beside_that_is_not_there() -> None:
    scheduler = scheduler_with(cluster("a", "b"), Making)
    assert node_of(scheduler, seeing("p", "beside.a", {"cpu": "1"})) == "b"
    assert scheduler.state.nodes.free[1].tolist()[:2] == [4000, 3000]


def test_nodes_may_judge_the_pod_as_different_ones() -> None:
    scheduler = scheduler_with(cluster("a", "b", taints=[TAINT]), Making)
    assert node_of(scheduler, seeing("p", "tolerating.b", {"cpu": "1"})) == "b"
    [placed] = [found for each in scheduler.log.events if isinstance(found := CATALOGUE.read(each), PodPlaced)]
    assert placed.explanation.exclusions == [
        PluginExclusion(plugin="TaintToleration", excluded=1, reasons={"node(s) had untolerated taint {kept: }": 1})
    ]


def test_preemption_looks_at_nodes_as_the_cycle_sees_them() -> None:
    log = cluster("a", "b", taints=[TAINT])
    scheduler = scheduler_with(log, Making)
    for name in "ab":
        assert node_of(scheduler, seeing(f"low-{name}", f"tolerating.{name}", {"cpu": "4"})) == name
    log.add_pod(seeing("high", "tolerating.b", {"cpu": "4"}, priority=9))
    scheduler.follow()
    scheduler.decide()
    scheduler.send()
    [nominated] = [found for each in log.events if isinstance(found := CATALOGUE.read(each), PodNominated)]
    assert (nominated.node, [victim.uid for victim in nominated.victims]) == ("b", ["low-b"])


def test_a_pod_that_is_not_seen_is_nobodys_victim() -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Making)
    assert node_of(scheduler, pod("unseen", {"cpu": "2"})) == "a"
    assert node_of(scheduler, pod("low", {"cpu": "2"})) == "a"
    log.add_pod(seeing("high", "without.unseen", {"cpu": "4"}, priority=9))
    scheduler.follow()
    scheduler.decide()
    scheduler.send()
    [nominated] = [found for each in log.events if isinstance(found := CATALOGUE.read(each), PodNominated)]
    assert [victim.uid for victim in nominated.victims] == ["low"]
    assert scheduler.state.nodes.free[1, 0] == 0


def test_a_refusal_before_filter_ends_the_cycle_with_its_words() -> None:
    scheduler = scheduler_with(cluster("a"), Making)
    assert node_of(scheduler, seeing("p", "refused")) == ""
    assert refusal(scheduler).message == "0/1 nodes are available: not today."


def test_pods_that_only_a_view_makes_room_for_are_woken_by_what_happens_on_nodes() -> None:
    log = cluster("a", cpu="1", taints=[TAINT])
    scheduler = scheduler_with(log, Making)
    wanted = seeing("p", "tolerating.a", {"cpu": "4"})
    assert node_of(scheduler, wanted) == ""
    log.add_node(node("a", labels={"name": "a"}, cpu="4", taints=[TAINT]))
    scheduler.run(now=60.0)
    assert scheduler.state.pods["p"].node == "a"


# --- score -----------------------------------------------------------------------------------------------------------


class Choosy(MadeUp):
    """The label `score` names the nodes that are scored, or as what the pod is."""

    name = "Choosy"

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        wanted = pod.metadata.labels.get("score", "")
        if wanted == "refused":
            return Rejection(plugin=self.name, message="I cannot choose")
        if wanted == "big":
            return Scored(pod=asking(pod, {"cpu": "4"}))
        named = [row for row, node in self.nodes.items() if node.metadata.name in wanted.split(".")]
        return Scored(rows=np.array(named, np.intp)) if wanted else None


def choosing(uid: str, wanted: str, requests: dict[str, str] | None = None) -> Pod:
    return with_metadata(pod(uid, requests), labels={"score": wanted})


def test_nodes_that_are_left_out_before_scoring_are_told() -> None:
    log = cluster("a", "b", "c")
    scheduler = scheduler_with(log, Choosy)
    assert node_of(scheduler, choosing("p", "b", {"cpu": "1"})) == "b"
    [placed] = [found for each in log.events if isinstance(found := CATALOGUE.read(each), PodPlaced)]
    told = placed.explanation
    assert (told.nodes_considered, told.nodes_feasible) == (3, 1)
    reasons = {"node(s) were left out before scoring": 2}
    assert told.exclusions == [PluginExclusion(plugin="Choosy", excluded=2, reasons=reasons)]


def test_a_pod_is_scored_as_another() -> None:
    log = cluster("small", cpu="4")
    log.add_node(node("wide", cpu="16"))
    scheduler = scheduler_with(log, Choosy)
    assert node_of(scheduler, choosing("p", "big", {"cpu": "1", "memory": "1Gi"})) == "wide"
    [placed] = [found for each in log.events if isinstance(found := CATALOGUE.read(each), PodPlaced)]
    fit = {top.node: top.parts["NodeResourcesFit"] for top in placed.explanation.top}
    assert fit["small"] == (0 + 97) // 2  # four of its four cores, and the default 200 of its 8192 MiB


def test_scoring_can_be_refused_or_left_without_a_node() -> None:
    scheduler = scheduler_with(cluster("a", "b"), Choosy)
    assert node_of(scheduler, choosing("p", "refused")) == ""
    assert refusal(scheduler).message == "0/2 nodes are available: I cannot choose."
    assert node_of(scheduler, choosing("q", "nobody")) == ""
    assert refusal(scheduler).message == "0/2 nodes are available: no feasible node is left to be scored."


def test_nothing_is_scored_where_one_node_is_feasible() -> None:
    scheduler = scheduler_with(cluster("a"), Choosy)
    assert node_of(scheduler, choosing("p", "refused")) == "a"


# --- ResizePod -------------------------------------------------------------------------------------------------------


class Fitted(MadeUp):
    """A label says what the pod is to ask for on its node."""

    name = "Fitted"

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        cores = pod.metadata.labels.get("cores")
        if cores == "none":
            return Rejection(plugin=self.name, message="nothing to give")
        return None if cores is None else asking(pod, {"cpu": cores})

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | None:
        return asking(pod, {"cpu": "1"}) if "small" in pod.metadata.labels else None


GATES = SchedulerGates(resize_pod=True)


def sized(uid: str, cores: str) -> Pod:
    return with_metadata(pod(uid, {"cpu": "1"}), labels={"cores": cores})


@pytest.mark.parametrize(("gates", "cores"), [(None, 1000), (GATES, 3000)])
def test_a_pod_counts_as_resized_from_its_assumption_on(gates: SchedulerGates | None, cores: int) -> None:
    log = cluster("a")
    scheduler = scheduler_with(log, Fitted, gates=gates)
    assert node_of(scheduler, sized("p", "3")) == "a"
    assert scheduler.state.nodes.free[1, 0] == 4000 - cores
    [taken] = [found for each in log.events if isinstance(found := CATALOGUE.read(each), NodeResourcesTaken)]
    assert [each.requests for each in taken.pods] == [{"cpu": cores}]

    followed, restored = (SchedulerState(frameworks_with(Fitted, gates=gates)) for _ in range(2))
    for stored in log.events:
        fold(followed, stored)
    load_state(restored, b"".join(Picture(scheduler.state).pieces()))
    log.add_pod(with_metadata(sized("p", "3"), labels={"changed": "yes"}))
    for state in (followed, restored):
        fold(state, log.events[-1])
        assert state.nodes.free.tolist() == scheduler.state.nodes.free.tolist()
        assert state.nodes.non_zero.tolist() == scheduler.state.nodes.non_zero.tolist()
    log.remove_pod("p")
    scheduler.run()
    assert scheduler.state.nodes.free[1, 0] == 4000


@pytest.mark.parametrize(
    ("cores", "message"),
    [("none", "node a: nothing to give"), ("5", "node a: the pod does not fit with what it is to ask for")],
)
def test_a_pod_that_cannot_be_resized_is_not_placed(cores: str, message: str) -> None:
    scheduler = scheduler_with(cluster("a"), Fitted, gates=GATES)
    assert node_of(scheduler, sized("p", cores)) == ""
    assert refusal(scheduler).message == message
    assert scheduler.state.nodes.free[1, 0] == 4000


def test_what_is_resized_is_the_pod_and_not_the_copy_of_its_cycle() -> None:
    scheduler = scheduler_with(cluster("a"), Fitted, gates=GATES)
    wanted = with_metadata(sized("p", "3"), labels={"small": ""})
    assert node_of(scheduler, wanted) == "a"
    assert scheduler.state.nodes.free[1, 0] == 1000


def test_decisions_on_top_of_resized_pods_are_recomputed() -> None:
    log = cluster("a", "b")
    scheduler = scheduler_with(log, Fitted, gates=GATES)
    for number in range(6):
        log.add_pod(sized(f"p{number}", "2" if number % 2 else "1"))
    scheduler.follow()
    while scheduler.decide(1.0):
        pass
    scheduler.run(1.0)
    placed = [stored.seq for stored in log.events if stored.type == "PodPlaced"]
    answers = [
        recompute(SchedulerState(frameworks_with(Fitted, gates=GATES)), log.events, (), position) for position in placed
    ]
    assert answers
    assert all(isinstance(answer, Recomputed) and answer.agrees for answer in answers)


# --- laws ------------------------------------------------------------------------------------------------------------


class Wild(MadeUp):
    """Shows anything: other copies, fewer pods, more pods, other taints, fewer nodes; drawn from the pod's name."""

    name = "Wild"

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        random = self._random(pod, "pre")
        return random.choice((None, None, asking(pod, {"cpu": str(random.randrange(4))})))

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        random = self._random(pod, "filter")
        if random.random() < 0.1:
            return Rejection(plugin=self.name, message="no", resolvable=random.random() < 0.5)
        some = np.array([row for row in rows.tolist() if random.random() < 0.5], np.intp)
        views: dict[int, NodeView] = {}
        for row, plain in list(self.nodes.items()):
            spec = msgspec.structs.replace(plain.spec, taints=random.choice(([], [Taint(**TAINT)])))
            views[row] = NodeView(
                node=random.choice((None, msgspec.structs.replace(plain, spec=spec))),
                without=frozenset(f"p{random.randrange(9)}" for _ in range(2)),
                further_pods=random.choice(((), (globals()["pod"](f"p{random.randrange(9)}", {"cpu": "1"}),))),
            )
        return Views(pods=[(some, asking(pod, {"cpu": "1"}))], nodes=views)

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        random = self._random(pod, "score")
        return random.choice((None, Scored(pod=asking(pod, {"cpu": "2"}), rows=rows[: random.randint(1, len(rows))])))

    @staticmethod
    def _random(pod: Pod, what: str) -> Random:
        return Random(f"{pod.metadata.uid} {what}")


class WithWild(Scheduler):
    """A scheduler with that plugin."""

    def __init__(self, log: SmallLog, *_: object, **__: object) -> None:
        super().__init__(log)
        self.state = SchedulerState(frameworks_with(Wild, built_in=["LoadAwareScheduling"]))


def columns_of(state: SchedulerState) -> Mapping[str, object]:
    """Everything that is counted, by node."""
    nodes = state.nodes
    rows = {name: row for name in nodes.node_names() if (row := nodes.row(name)) is not None}
    free = {name: dict(zip(nodes.resources, nodes.free[:, row].tolist(), strict=False)) for name, row in rows.items()}
    return {
        "free": {name: {key: amount for key, amount in held.items() if amount} for name, held in free.items()},
        "non_zero": {name: nodes.non_zero[:, row].tolist() for name, row in rows.items()},
        "loaded by": {name: sorted(pods) for name, pods in load_of(state).items()},
        "shape": {name: nodes.shape_of(row) for name, row in rows.items()},
    }


@settings(max_examples=examples(40))
@given(st.integers(0, 1 << 32))
@pytest.mark.deep
def test_whatever_transformers_show_nothing_of_it_stays(seed: int) -> None:
    world = play(seed, kind=WithWild)
    again = SchedulerState(frameworks_with(Wild, built_in=["LoadAwareScheduling"]))
    for stored in world.log.events:
        fold(again, stored)
    for report in world.observed:
        fold_report(again, report)
    for state in (world.scheduler.state, again):
        state.frameworks.advance(world.now)
    assert columns_of(world.scheduler.state) == columns_of(again)
    for uid, record in again.pods.items():
        if record.subject is None:
            continue
        used = world.scheduler.state.pods[uid].subject
        assert used is not None
        assert feasible(world.scheduler.state, used) == feasible(again, record.subject), uid
    placed = sum(stored.type == "PodPlaced" for stored in world.log.events)
    event(f"placements: {min(20, placed) // 5 * 5}+")
    for stored in world.log.events:
        if isinstance(found := CATALOGUE.read(stored), PodPlaced):
            assert adds_up(found.explanation)


def feasible(state: SchedulerState, subject: Subject) -> set[str]:
    rows: list[int] = state.frameworks.first.engine.feasible(subject).tolist()
    return {state.nodes.names[row] for row in rows}


@settings(max_examples=examples(60))
@given(st.integers(0, 1 << 32))
def test_to_judge_in_parts_is_to_judge_at_once(seed: int) -> None:
    world = play(seed, steps=40)
    engine, random = world.scheduler.state.frameworks.first.engine, Random(seed)
    alive = np.flatnonzero(engine.nodes.alive)
    for record in list(world.scheduler.state.pods.values()):
        subject = record.subject
        if subject is None:
            continue
        cut = random.randint(0, len(alive))
        parts = [(subject, part) for part in (alive[:cut], alive[cut:]) if len(part)]
        based_on = BasedOn(random.randrange(99), 0)

        def as_it_is(rows: Rows, subject: Any = subject) -> ScoredAs:
            return ScoredAs(subject, rows, {})

        whole = engine.decide(subject, record.uid, based_on)
        apart = engine.decide_in_parts(subject, parts, record.uid, based_on, UNRESTRICTED, as_it_is)
        assert isinstance(apart, Placed | Unschedulable)
        assert by_name(whole) == by_name(apart)


def by_name(decision: Placed | Unschedulable) -> object:
    """The decision without the order in which refusals are told."""
    told = decision.explanation
    exclusions = {each.plugin: each for each in told.exclusions}
    return (type(decision), getattr(decision, "node", ""), msgspec.structs.replace(told, exclusions=[]), exclusions)


def test_profiles_without_transformers_are_asked_nothing() -> None:
    plugins = frameworks().first.profile.plugins
    assert not plugins.at(BEFORE_PRE_FILTER)
    assert not plugins.at(AFTER_PRE_FILTER)
    assert not plugins.at(BEFORE_FILTER)
    assert not plugins.at(BEFORE_SCORE)
    assert not plugins.sees_otherwise
