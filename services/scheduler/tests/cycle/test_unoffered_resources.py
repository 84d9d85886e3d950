"""Resources that pods request and that no node offers: they cost no column, and nothing else about them differs."""

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.columns.node_columns import NodeColumns, UnofferedAmounts
from koord_scheduler.domain.loop.node_page import node_page
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events.explanations import PodUnschedulable
from koordcore.protocol.objects import Pod
from support.depth import examples
from support.scheduler.reservations import ReservingScheduler, reservation, reserve
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata

NAMES = ("example.com/a", "example.com/b", "hugepages-3Mi", "nvidia.com/gpu")


def bound(made: Pod, on: str = "n") -> Pod:
    """The pod as another scheduler bound it."""
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name=on))


def refusals(scheduler: Scheduler) -> dict[str, list[str]]:
    """Pod -> the sorted reasons of its last failed attempt."""
    found: dict[str, list[str]] = {}
    for each in scheduler.explanations:
        if isinstance(each.event, PodUnschedulable):
            found[each.event.name] = sorted(
                reason for one in each.event.explanation.exclusions for reason in one.reasons
            )
    return found


def test_a_name_that_no_node_offers_costs_no_column() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    scheduler = Scheduler(log)
    scheduler.run()
    before = list(scheduler.state.nodes.resources)
    for number in range(50):
        log.add_pod(pod(f"waits-{number}", {f"example.com/made-up-{number}": "1"}))
        log.add_pod(bound(pod(f"bound-{number}", {f"example.com/taken-{number}": "1"})))
    scheduler.run()
    assert scheduler.state.nodes.resources == before
    assert refusals(scheduler)["waits-7"] == ["Insufficient example.com/made-up-7"]


def test_two_names_that_no_node_offers_are_explained_apart() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    log.add_pod(pod("p", {"cpu": "1", "example.com/a": "1", "example.com/b": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert refusals(scheduler)["p"] == ["Insufficient example.com/a", "Insufficient example.com/b"]


class CountedRow(int):
    """The position of a node. It counts how often it is looked up."""

    looks = 0

    def __hash__(self) -> int:
        CountedRow.looks += 1
        return int(self)


def test_what_pods_on_a_node_take_is_found_without_a_look_at_the_names_of_other_nodes() -> None:
    amounts = UnofferedAmounts()
    for row in range(1000):
        amounts.add(f"example.com/{row}", row, 1)
    amounts.add("example.com/7", 8, 2)
    assert amounts.on(CountedRow(8)) == {"example.com/8": 1, "example.com/7": 2}
    assert CountedRow.looks <= 2
    assert amounts.removed("example.com/7") == {7: 1, 8: 2}
    assert (amounts.on(7), amounts.on(8)) == ({}, {"example.com/8": 1})


@pytest.mark.parametrize("waits", [False, True], ids=["folded together", "folded before"])
def test_a_waiting_pod_is_placed_when_the_first_node_offers_its_resource(*, waits: bool) -> None:
    log = SmallLog()
    log.add_node(node("n"))
    log.add_pod(pod("p", {"cpu": "1", "example.com/a": "2"}))
    scheduler = Scheduler(log)
    if waits:
        scheduler.run()
    log.add_node(node("m", more={"example.com/a": "2"}))
    scheduler.run()
    scheduler.run(now=600)
    assert scheduler.state.pods["p"].phase is Phase.PLACED
    assert scheduler.state.pods["p"].node == "m"


def test_what_a_pod_took_before_its_node_offers_it_counts_afterwards() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    log.add_pod(bound(pod("theirs", {"example.com/a": "3"})))
    scheduler = Scheduler(log)
    scheduler.run()
    before = node_page(scheduler.state, "n")
    assert before is not None
    assert (before["requested"]["example.com/a"], before["remaining"]["example.com/a"]) == (3, -3)
    log.add_node(node("n", more={"example.com/a": "4"}))
    log.add_pod(pod("p", {"example.com/a": "2"}))
    scheduler.run()
    assert refusals(scheduler)["p"] == ["Insufficient example.com/a"]
    log.remove_pod("theirs")
    scheduler.run()
    scheduler.run(now=600)
    assert scheduler.state.pods["p"].node == "n"
    page = node_page(scheduler.state, "n")
    assert page is not None
    assert (page["requested"]["example.com/a"], page["remaining"]["example.com/a"]) == (2, 2)


def test_a_victim_that_came_before_its_node_offers_its_resource_frees_it() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    log.add_pod(bound(pod("theirs", {"example.com/a": "3"})))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_node(node("n", more={"example.com/a": "4"}))
    log.add_pod(pod("p", {"example.com/a": "4"}, priority=1000))
    scheduler.run()
    scheduler.run(now=600)
    assert "theirs" not in scheduler.state.pods
    assert scheduler.state.pods["p"].node == "n"


def test_no_victim_leaves_for_a_resource_that_no_node_offers() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    log.add_pod(bound(pod("theirs", {"cpu": "4", "example.com/b": "9"})))
    log.add_pod(pod("p", {"cpu": "4", "example.com/a": "1"}, priority=1000))
    scheduler = Scheduler(log)
    scheduler.run()
    assert "theirs" in scheduler.state.pods
    assert not scheduler.state.pods["p"].node


class _EveryColumn(ReservingScheduler):
    """A scheduler whose columns exist from the beginning, so that no resource is special."""

    def __init__(self, log: SmallLog) -> None:
        super().__init__(log)
        for name in NAMES:
            self.state.nodes.column(name)


def _story(chance: random.Random) -> list[Callable[[SmallLog], None]]:
    """Steps in which nodes begin and cease to offer resources while pods and Reservations request them."""

    def amounts(most: int) -> dict[str, str]:
        return {name: str(chance.randint(1, most)) for name in chance.sample(NAMES, chance.randint(0, 2))}

    def step(number: int) -> Callable[[SmallLog], None]:
        kind, name = chance.choice(("node", "gone", "pod", "pod", "pod", "theirs", "leaves", "reserve")), "nm"
        where, more = chance.choice(name), amounts(4)
        requests = {"cpu": chance.choice(("500m", "2")), **amounts(3)}
        uid, priority = f"p{chance.randrange(12)}", chance.choice((0, 1000))
        labels = {"app": chance.choice(("web", "db"))}

        def apply(log: SmallLog) -> None:
            known = any(each.ref.id == uid and each.type != "PodSpecDeleted" for each in log.events[-1:])
            match kind:
                case "node":
                    log.add_node(node(where, more=more))
                case "gone" if log.knows_node(where):
                    log.remove_node(where)
                case "pod" | "theirs" if not known:
                    made = with_metadata(pod(f"{uid}-{number}", requests, priority=priority), labels=labels)
                    log.add_pod(bound(made, where) if kind == "theirs" else made)
                case "leaves":
                    for each in [each for each in log.events if each.ref.id.startswith(f"{uid}-")]:
                        if each.type == "PodSpecAdded" and log.events[log.last_seq(each.ref) - 1] is each:
                            log.remove_pod(each.ref.id)
                case "reserve":
                    document = reservation(f"r{number}", requests, allocateOnce=False)
                    status = {"phase": "Available", "nodeName": where, "allocatable": requests}
                    reserve(log, {**document, "status": status} if priority else document)
                case _:
                    pass

        return apply

    return [step(number) for number in range(chance.randint(4, 24))]


def _facts(log: SmallLog) -> list[tuple[str, str, bytes]]:
    return [(each.type, each.ref.id, each.body) for each in log.events]


def _amounts(state: SchedulerState) -> dict[str, object]:
    return {name: state.nodes.amounts_on(row) for name in "nm" if (row := state.nodes.row(name)) is not None}


@settings(max_examples=examples(60))
@given(st.integers(0, 1 << 32))
@pytest.mark.deep
def test_decisions_and_sums_do_not_depend_on_when_a_resource_gets_its_column(seed: int) -> None:
    steps = _story(random.Random(seed))
    sparse, full = ReservingScheduler(SmallLog()), _EveryColumn(SmallLog())
    for number, step in enumerate(steps):
        for each in (sparse, full):
            step(each.log)
            each.live(number * 1000)
            each.live(number * 1000 + 500)
        assert _facts(sparse.log) == _facts(full.log)
        assert _amounts(sparse.state) == _amounts(full.state)
        assert refusals(sparse) == refusals(full)
    restored = SchedulerState(frameworks())
    load_state(restored, b"".join(Picture(sparse.state).pieces()))
    assert _amounts(restored) == _amounts(sparse.state)
    event(f"columns: {len(sparse.state.nodes.resources) - len(NodeColumns().resources)}")
    event(f"placed: {any(each.type == 'PodPlaced' for each in sparse.log.events)}")
    event(f"evicted: {any(each.ref.kind == 'eviction' for each in sparse.log.events)}")
