"""The audit finds what it must find, and nothing in a log that is right."""

from collections.abc import Sequence

from koordcore.events.envelope import AggregateRef, BasedOn, Event, StoredEvent, name_token
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pod_on_node
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.objects import CustomObjectObserved, NodeSpecAdded, PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.pod import PlacementExplanation, PodPlaced, PodReleased
from koordcore.protocol.objects import Node, Pod
from koordcore.values import codec
from koordcore.values.allocation import Allocation, ZoneAmounts
from koordctl.demo.invariants import Audit, Findings
from koordctl.demo.summary import main_reason, percentile, share_percent
from support.hardware import topology_document


def node_added(name: str = "n", **allocatable: str) -> tuple[str, Event]:
    node = codec.convert({"metadata": {"name": name}, "status": {"allocatable": {"pods": "10", **allocatable}}}, Node)
    return f"nodespec.{name}", NodeSpecAdded(object=node)


def pod_object(uid: str, requests: dict[str, str]) -> Pod:
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    return codec.convert({"metadata": {"name": uid, "namespace": "d", "uid": uid}, "spec": spec}, Pod)


def submitted(uid: str, **requests: str) -> tuple[str, Event]:
    return f"podspec.{uid}", PodSpecAdded(object=pod_object(uid, requests))


def batch_submitted(uid: str, cpu_milli: int) -> tuple[str, Event]:
    return f"podspec.{uid}", PodSpecAdded(object=pod_object(uid, {"kubernetes.io/batch-cpu": str(cpu_milli)}))


def batch(cpu_milli: int) -> tuple[str, Event]:
    event = NodeOvercommitComputed(
        batch_cpu_milli=cpu_milli, batch_memory_bytes=0, reason="changed", based_on=BasedOn()
    )
    return "nodepolicy.n", event


def placed(uid: str, node: str = "n", *, based_on: int = 0) -> list[tuple[str, Event]]:
    explanation = PlacementExplanation(
        nodes_considered=1, nodes_feasible=1, policy_version="v", based_on=BasedOn(ev=based_on)
    )
    event = PodPlaced(namespace="d", name=uid, node=node, requests={}, attempt=1, queued_at="", explanation=explanation)
    return [
        (f"pod.{uid}", event),
        (f"node.{node}", NodeResourcesTaken(pods=[pod_on_node(uid, pod_object(uid, {}))])),
    ]


def audited(events: Sequence[tuple[str, Event]], explained: Sequence[str] = ()) -> tuple[Audit, Findings]:
    audit = Audit()
    for seq, (subject, event) in enumerate(events, 1):
        kind, _, id_ = subject.partition(".")
        audit.see(StoredEvent(seq, AggregateRef(kind, id_), {}, b"", stored_at_ns=seq * 1_000_000), event)
    return audit, audit.findings(explained)


def test_right_log_has_no_findings_and_says_how_long_pods_waited() -> None:
    audit, found = audited([node_added(cpu="2"), submitted("a", cpu="1"), *placed("a"), submitted("b", cpu="1")], ["b"])
    assert not found.sentences()
    assert (found.submitted, found.placed, found.pending) == (2, 1, ("b",))
    assert audit.waits_ms == [1.0]
    assert audit.requests_on_nodes == {"cpu": 1000}


def test_pod_placed_again_without_release_is_found() -> None:
    _, found = audited([node_added(cpu="4"), submitted("a", cpu="1"), *placed("a"), *placed("a")])
    assert found.double_placements == ("pod d/a is placed on n while it is on n",)


def test_pod_placed_again_after_release_is_fine() -> None:
    released = PodReleased(namespace="d", name="a", node="n", reason="node-gone")
    returned = NodeResourcesReturned(pods=["a"])
    events = [node_added(cpu="1"), submitted("a", cpu="1"), *placed("a"), ("pod.a", released), ("node.n", returned)]
    _, found = audited([*events, *placed("a")])
    assert not found.sentences()


def test_node_over_its_cpu_is_found_with_the_numbers() -> None:
    _, found = audited(
        [node_added(cpu="1"), submitted("a", cpu="1"), submitted("b", cpu="500m"), *placed("a"), *placed("b")]
    )
    assert found.overcommitted == ("node n offers 1000 of cpu; with pod d/b 1500 are taken",)
    assert found.overcommitted_nodes == 1


def test_a_pod_that_was_resized_on_its_node_counts_anew() -> None:
    def resized(uid: str, **requests: str) -> tuple[str, Event]:
        return f"podspec.{uid}", PodSpecChanged(object=pod_object(uid, requests))

    first = [node_added(cpu="4"), submitted("a", cpu="3"), submitted("b", cpu="2"), *placed("a")]
    _, shrunk = audited([*first, resized("a", cpu="1"), *placed("b")])
    assert shrunk.overcommitted == ()
    _, grown = audited([*first, resized("a", cpu="1"), resized("a", cpu="3"), *placed("b")])
    assert len(grown.overcommitted) == 1


def test_more_pods_than_the_node_takes_are_found() -> None:
    _, found = audited([node_added(pods="1"), submitted("a"), submitted("b"), *placed("a"), *placed("b")])
    assert found.overcommitted == ("node n offers 1 of pods; with pod d/b 2 are taken",)


def test_batch_is_judged_by_what_was_published() -> None:
    _, found = audited([node_added(), batch_submitted("a", 800), *placed("a")])
    assert found.overcommitted_nodes == 1
    _, found = audited([node_added(), batch(1000), batch_submitted("a", 800), *placed("a", based_on=3)])
    assert not found.sentences()


def test_batch_that_fell_while_the_decision_was_on_its_way_is_not_held_against_it() -> None:
    history = [node_added(), batch(1000), batch_submitted("a", 800), batch(100)]
    _, found = audited([*history, *placed("a", based_on=3)])
    assert not found.sentences()
    _, found = audited([*history, *placed("a", based_on=4)])
    assert found.overcommitted == ("node n offers 100 of kubernetes.io/batch-cpu; with pod d/a 800 are taken",)


def test_ledger_without_its_placement_is_found() -> None:
    _, found = audited([node_added(cpu="1"), submitted("a", cpu="1"), placed("a")[1]], ["a"])
    assert found.ledger_differences == ("node n: the ledger and the pods' own events differ on d/a",)


def test_pod_that_nobody_told_why_is_found() -> None:
    _, found = audited([node_added(cpu="1"), submitted("a", cpu="1")])
    assert found.unexplained == ("pod d/a is neither placed nor explained",)


def test_deleted_pod_needs_no_explanation() -> None:
    _, found = audited([submitted("a", cpu="1"), ("podspec.a", PodSpecDeleted(namespace="d", name="a"))])
    assert not found.sentences()
    assert found.submitted == 0


def test_percentile_is_a_value_that_occurred() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (percentile(values, 50), percentile(values, 99), percentile([], 99)) == (50.0, 99.0, 0.0)
    assert percentile([7.0], 50) == 7.0


def test_share_of_nothing_is_nothing() -> None:
    assert (share_percent(1, 4), share_percent(1, 0)) == (25.0, 0.0)


def test_main_reason_is_the_one_of_most_nodes() -> None:
    assert main_reason({"Insufficient cpu": 2, "Insufficient nvidia.com/gpu": 9}) == "Insufficient nvidia.com/gpu"
    assert main_reason({}) == "no node"


def given(uid: str, allocation: Allocation) -> tuple[str, Event]:
    return "node.n", NodeResourcesTaken(pods=[pod_on_node(uid, pod_object(uid, {}), allocation)])


def test_cpu_that_is_given_twice_is_found_and_one_that_was_given_back_is_not() -> None:
    events = [node_added(cpu="4"), given("a", Allocation(cpuset="0-1")), given("b", Allocation(cpuset="1-2"))]
    returned = ("node.n", NodeResourcesReturned(pods=["a"]))
    _, found = audited([*events, returned, given("c", Allocation(cpuset="0"))])
    assert found.allocations == ("node n: CPU 1 is held by a, b",)
    assert found.sentences()


def test_a_numa_zone_that_gives_more_than_it_has_is_found() -> None:
    topology = CustomObjectObserved(object=topology_document("n", cores=4))
    half = Allocation(zones=(ZoneAmounts(1, {"cpu": 5_000}),))
    other = Allocation(zones=(ZoneAmounts(0, {"cpu": 5_000}),))
    taken = [
        (f"node.{name_token('n')}", NodeResourcesTaken(pods=[pod_on_node(uid, pod_object(uid, {}), allocation)]))
        for uid, allocation in (("a", half), ("b", other), ("c", half))
    ]
    events: list[tuple[str, Event]] = [("customspec.noderesourcetopologies=n", topology), *taken]

    _, found = audited(events)

    assert found.allocations == ("node n: zone 1 has 8000 of cpu, and its pods hold 10000",)
