"""What all allocations of one node have to obey."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from koordcore.events.node_ledger import NodeResourcesTaken, pod_on_node
from koordcore.events.objects import PodSpecAdded
from koordcore.protocol import keys
from koordcore.state.allocation_rules import Violation, broken_rules, objections, violations
from koordcore.values.allocation import NOTHING, AllocatedDevice, Allocation, ReservationUse, VirtualFunction
from koordcore.values.cpuset import format_cpuset
from support.histories.objects import pod
from support.histories.recording import Recorder

CORE = "koordinator.sh/gpu-core"


class Holder(msgspec.Struct, frozen=True):
    """A pod or a reservation."""

    allocation: Allocation = NOTHING
    requests: dict[str, int] = {}


def cpus(text: str, reservation: str = "") -> Holder:
    """A pod that owns CPUs, some of them perhaps out of a reservation."""
    return Holder(Allocation(cpuset=text, reservation=_use(reservation)))


def gpu(minor: int, share: int, reservation: str = "", **amounts: int) -> Holder:
    """A pod with a share of a card."""
    device = AllocatedDevice(type="gpu", minor=minor, amounts={CORE: share})
    return Holder(Allocation(devices=(device,), reservation=_use(reservation, **amounts)))


def function(bus_id: str, reservation: str = "") -> Holder:
    """A pod with a virtual function."""
    device = AllocatedDevice(type="rdma", minor=0, virtual_functions=(VirtualFunction(0, bus_id),))
    return Holder(Allocation(devices=(device,), reservation=_use(reservation)))


def _use(uid: str, **amounts: int) -> ReservationUse | None:
    return ReservationUse(name=uid, uid=uid, amounts=amounts) if uid else None


def test_two_pods_on_one_cpu() -> None:
    found = violations({"b": cpus("0-3"), "a": cpus("3-4"), "c": Holder()})

    assert found == [Violation("CPU 3", ("a", "b"))]
    assert found[0].sentence() == "CPU 3 is held by a, b"


def test_a_pod_that_ignores_reservations_may_hold_what_a_reservation_holds() -> None:
    device = AllocatedDevice(type="gpu", minor=0, amounts={CORE: 60})
    reserved = Holder(Allocation(cpuset="0-3", devices=(device,), reservation=_use("r")))
    guest = Holder(Allocation(cpuset="3", devices=(device,), ignores_reservations=True))
    other = Holder(Allocation(cpuset="3", devices=(device,)))

    assert violations({"r": reserved, "guest": guest}) == []
    subjects = {(each.subject, each.holders) for each in violations({"r": reserved, "guest": guest, "other": other})}
    assert subjects == {("CPU 3", ("guest", "other")), (f"{CORE} of gpu 0", ("guest", "other"))}
    assert [each.holders for each in violations({"r": reserved, "s": other})] == [("r", "s"), ("r", "s")]


def test_more_than_a_whole_device() -> None:
    found = violations({"a": gpu(0, 60), "b": gpu(0, 50), "c": gpu(1, 100)})

    assert found == [Violation(f"{CORE} of gpu 0", ("a", "b"), 110, 100)]
    assert found[0].sentence() == f"{CORE} of gpu 0: 110 of 100 is taken, by a, b"


def test_one_virtual_function_twice() -> None:
    assert violations({"a": function("0.1"), "b": function("0.1"), "c": function("0.2")}) == [
        Violation("virtual function 0.1 of rdma 0", ("a", "b"))
    ]


def test_users_of_a_reservation_hold_what_it_holds() -> None:
    held = {"r": cpus("0-3"), "a": cpus("0-1", "r"), "b": cpus("2-5", "r")}
    assert violations(held) == []
    assert violations({**held, "c": cpus("1", "r")}) == [Violation("CPU 1", ("a", "c"))]
    assert violations({**held, "d": cpus("3")}) == [Violation("CPU 3", ("b", "d"))]
    assert violations({"r": function("0.1"), "a": function("0.1", "r")}) == []


def test_shares_out_of_a_reservation_count_once() -> None:
    assert violations({"r": gpu(0, 100), "a": gpu(0, 60, "r"), "b": gpu(0, 40, "r")}) == []
    assert violations({"r": gpu(0, 50), "a": gpu(0, 60, "r"), "b": gpu(0, 40)}) == []
    assert violations({"r": gpu(0, 50), "a": gpu(0, 60, "r"), "b": gpu(0, 41)})[0].taken == 101


def test_a_reservation_gives_no_more_than_it_holds() -> None:
    held = {"r": Holder(requests={"cpu": 4000}), "a": Holder(Allocation(reservation=_use("r", cpu=3000)))}

    assert violations(held) == []
    assert violations({**held, "b": Holder(Allocation(reservation=_use("r", cpu=1001)))}) == [
        Violation("cpu of reservation r", ("a", "b"), 4001, 4000)
    ]
    assert violations({"a": held["a"]}) == [], "a reservation that is not known here cannot be judged"


cpusets = st.frozensets(st.integers(0, 11), max_size=5).map(format_cpuset)


@st.composite
def any_holder(draw: st.DrawFn) -> Holder:
    """A pod with CPUs, cards and virtual functions, which may use the reservation `r`."""
    devices = tuple(
        AllocatedDevice(
            type="gpu",
            minor=minor,
            amounts={CORE: share},
            virtual_functions=tuple(VirtualFunction(0, f"{minor}.{each}") for each in draw(st.frozensets(st.just(0)))),
        )
        for minor, share in draw(st.dictionaries(st.integers(0, 2), st.integers(1, 100), max_size=2)).items()
    )
    reservation = _use(draw(st.sampled_from(["r", ""])))
    return Holder(Allocation(cpuset=draw(cpusets), devices=devices, reservation=reservation))


holders = any_holder()
nodes = st.dictionaries(st.sampled_from("abcdr"), holders, max_size=5)


@given(st.lists(holders, max_size=8))
def test_a_node_that_takes_only_what_nothing_objects_to_never_breaks_a_rule(wanted: list[Holder]) -> None:
    held: dict[str, Holder] = {}
    for number, holder in enumerate(wanted):
        if not objections(held, str(number), holder):
            held[str(number)] = holder

    assert violations(held) == []


@given(nodes, holders, st.sampled_from(["new", "a", "r"]))
def test_objections_are_the_violations_that_the_new_holder_takes_part_in(
    node: dict[str, Holder], holder: Holder, uid: str
) -> None:
    every = [each for each in violations({**node, uid: holder}) if uid in each.holders]
    assert objections(node, uid, holder) == (every if holder.allocation.is_exclusive else [])


@given(nodes, holders)
def test_what_nothing_objects_to_makes_no_violation_worse(node: dict[str, Holder], holder: Holder) -> None:
    if not objections(node, "new", holder):
        assert set(violations({**node, "new": holder})) <= set(violations(node))


@given(nodes, st.sampled_from("abcdr"))
def test_a_pod_that_leaves_breaks_no_rule(node: dict[str, Holder], uid: str) -> None:
    left = {other: holder for other, holder in node.items() if other != uid}
    if uid != "r":
        before = {violation.subject for violation in violations(node)}
        assert {violation.subject for violation in violations(left)} <= before


@given(nodes)
def test_the_order_of_the_pods_does_not_matter(node: dict[str, Holder]) -> None:
    assert violations(node) == violations(dict(reversed(node.items())))


def test_broken_rules_of_a_cluster_count_the_pods_that_others_bound() -> None:
    log = Recorder()
    for number, allocation in ((1, Allocation(cpuset="0-1")), (2, Allocation(cpuset="2"))):
        entry = pod_on_node(f"uid-{number}", pod(number), allocation)
        log.write("node", "node-a", NodeResourcesTaken(pods=[entry]))
    assert broken_rules(log.state) == {}

    for number, cpuset, phase in ((1, "5", "Running"), (3, "2", "Running"), (4, "2", "Succeeded")):
        bound = pod(number)
        bound.spec.node_name, bound.status.phase = "node-a", phase
        bound.metadata.annotations = {keys.RESOURCE_STATUS: f'{{"cpuset":"{cpuset}"}}'}
        log.write("podspec", f"uid-{number}", PodSpecAdded(object=bound))

    assert broken_rules(log.state) == {"node-a": [Violation("CPU 2", ("uid-2", "uid-3"))]}
