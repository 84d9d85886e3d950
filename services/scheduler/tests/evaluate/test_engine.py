"""Decisions: choice, ties, explanation; cached views give what judging afresh gives."""

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.ledger import Ledgers, Source
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.engine.cross_node import best_by_domain
from koord_scheduler.domain.engine.decision import Placed, Restriction, Unschedulable
from koord_scheduler.domain.engine.engine import Engine
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.cluster import Cluster
from koordcore.events.envelope import BasedOn
from koordcore.protocol.objects import ContainerPort, Node, Pod
from support.depth import examples
from support.scheduler.scheduling import frameworks, node, pod, with_metadata

BASED_ON = BasedOn(7, 0)
TAINT_EFFECTS = st.sampled_from(["", "PreferNoSchedule", "NoSchedule"])


def over(*nodes: Node) -> Frameworks:
    made = frameworks()
    for one in nodes:
        put(made.cluster, one)
    return made


def put(cluster: Cluster, one: Node) -> int:
    shape = node_shape(one)
    row, _ = cluster.nodes.put(one.metadata.name, shape)
    cluster.put_node(row, one, shape)
    return row


def decide(made: Frameworks, wanted: Pod) -> Placed | Unschedulable:
    return made.first.engine.decide(made.cluster.pod_classes.read(wanted).subject, wanted.metadata.uid, BASED_ON)


def test_best_node_wins_and_the_parts_of_its_score_are_told() -> None:
    engine = over(node("full", cpu="2"), node("wide", cpu="16"), node("mid", cpu="4"))
    decision = decide(engine, pod(requests={"cpu": "1", "memory": "1Gi"}))
    assert isinstance(decision, Placed)
    assert decision.node == "wide"
    top = decision.explanation.top
    assert [entry.node for entry in top] == ["wide", "mid", "full"]
    assert top[0].parts == {
        "TaintToleration": 300,
        "NodeAffinity": 0,
        "NodeResourcesFit": (93 + 87) // 2,
        "NodeResourcesBalancedAllocation": 96,
        "ImageLocality": 0,
        "LoadAwareScheduling": 0,
    }
    assert all(entry.total == sum(entry.parts.values()) for entry in top)
    assert decision.explanation.based_on == BASED_ON


def test_gangs_of_equal_pods_share_their_cross_node_filters() -> None:
    made = over(node("n"))
    spread = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    gangs = [
        with_metadata(
            pod(topologySpreadConstraints=[spread]), annotations={"gang.scheduling.koordinator.sh/name": name}
        )
        for name in ("a", "b")
    ]
    first, second = (made.cluster.pod_classes.read(each).subject for each in gangs)
    assert first is not second, "an event that helps must wake both gangs"
    engine = made.first.engine
    filters = engine.cross_node_filters(first)
    assert filters.filters
    assert engine.cross_node_filters(second) is filters
    assert engine.cross_node_filters(first) is filters


def test_unschedulable_pod_gets_one_sentence() -> None:
    engine = over(node("a", cpu="1"), node("b", cpu="1"), node("c", unschedulable=True), node("d", cpu="1", memory="1"))
    decision = decide(engine, pod(requests={"cpu": "2", "memory": "1Gi"}))
    assert isinstance(decision, Unschedulable)
    assert decision.message == (
        "0/4 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 3 Insufficient cpu."
    )
    assert [(one.plugin, one.excluded) for one in decision.explanation.exclusions] == [
        ("NodeUnschedulable", 1),
        ("NodeResourcesFit", 3),
    ]


def test_empty_cluster_says_so() -> None:
    decision = decide(over(), pod())
    assert isinstance(decision, Unschedulable)
    assert decision.message == "0/0 nodes are available: the cluster has no nodes."


def test_ties_are_spread_and_do_not_depend_on_the_order_of_nodes() -> None:
    names = [f"n{number}" for number in range(20)]
    forward, backward = over(*map(node, names)), over(*map(node, reversed(names)))
    chosen = {uid: decide(forward, pod(uid)) for uid in map(str, range(50))}
    again = {uid: decide(backward, pod(uid)) for uid in chosen}
    nodes = [decision.node for decision in chosen.values() if isinstance(decision, Placed)]
    assert len(set(nodes)) > 10
    assert nodes == [decision.node for decision in again.values() if isinstance(decision, Placed)]


def test_node_that_is_gone_is_not_considered() -> None:
    engine = over(node("a"), node("b"))
    assert isinstance(decide(engine, pod("x")), Placed)
    engine.cluster.nodes.remove("a")
    decision = decide(engine, pod("x"))
    assert isinstance(decision, Placed)
    assert (decision.node, decision.explanation.nodes_considered) == ("b", 1)


AMOUNTS = st.integers(0, 6)
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
KEYS = st.sampled_from(["a", "b"])
TOPOLOGY_KEYS = st.sampled_from(["zone", "kubernetes.io/hostname"])


@st.composite
def some_node(draw: st.DrawFn) -> Node:
    zone = draw(st.sampled_from(["", "a", "b"]))
    name = draw(st.sampled_from([f"n{number}" for number in range(6)]))
    return node(
        name,
        cpu=str(draw(AMOUNTS)),
        memory=f"{draw(AMOUNTS)}Gi",
        pods=str(draw(st.integers(0, 3))),
        labels={"kubernetes.io/hostname": name, **({"zone": zone} if zone else {})},
        taints=[{"key": draw(KEYS), "effect": draw(EFFECTS)} for _ in range(draw(st.integers(0, 2)))],
        unschedulable=draw(st.integers(0, 4)) == 4,
    )


@st.composite
def some_pod(draw: st.DrawFn) -> Pod:
    tolerated = draw(st.sampled_from(["", "a", "b"]))
    preferred = [
        {
            "weight": draw(st.integers(1, 5)),
            "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [draw(KEYS)]}]},
        }
        for _ in range(draw(st.integers(0, 2)))
    ]
    affinity: dict[str, object] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    for side in draw(st.sets(st.sampled_from(["podAffinity", "podAntiAffinity"]))):
        required, weighted = draw(st.integers(0, 1)), draw(st.integers(0, 1))
        affinity[side] = {
            "requiredDuringSchedulingIgnoredDuringExecution": [some_term(draw) for _ in range(required)],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": draw(st.integers(1, 5)), "podAffinityTerm": some_term(draw)} for _ in range(weighted)
            ],
        }
    spread = [
        {
            "topologyKey": draw(TOPOLOGY_KEYS),
            "maxSkew": draw(st.integers(1, 2)),
            "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
            "labelSelector": {"matchLabels": {"app": draw(KEYS)}},
        }
        for _ in range(draw(st.integers(0, 2)))
    ]
    port = draw(st.integers(0, 3))
    wanted = pod(
        "p",
        {"cpu": str(draw(st.integers(0, 3))), "memory": f"{draw(st.integers(0, 3))}Gi"},
        nodeSelector={"zone": "a"} if draw(st.booleans()) else {},
        tolerations=[{"key": tolerated, "operator": "Exists"}] if tolerated else [],
        affinity=affinity,
        topologySpreadConstraints=spread,
    )
    wanted.metadata.labels["app"] = draw(KEYS)
    if port == 1:
        wanted.spec.containers[0].ports.append(ContainerPort(container_port=80, host_port=80))
    return wanted


def some_term(draw: st.DrawFn) -> dict[str, object]:
    choices: list[dict[str, object]] = [{}, {"namespaceSelector": {}}, {"namespaces": ["other"]}]
    chosen = draw(st.sampled_from(choices))
    return {"topologyKey": draw(TOPOLOGY_KEYS), "labelSelector": {"matchLabels": {"app": draw(KEYS)}}, **chosen}


STEPS = st.lists(
    st.tuples(st.just("node"), some_node())
    | st.tuples(st.just("pod"), some_pod())
    | st.tuples(st.just("gone"), some_node()),
    min_size=5,
    max_size=40,
)


@settings(max_examples=examples(150))
@given(STEPS)
def test_what_is_kept_changes_no_outcome_and_counts_add_up(steps: list[tuple[str, Node | Pod]]) -> None:
    """Kept answers against an engine over facts built from nothing (scheduler-core spec, 12.2 b)."""
    made = frameworks()
    cluster, engine = made.cluster, made.first.engine
    ledgers = Ledgers(cluster.accounting)
    present: dict[str, Node] = {}
    for number, (step, value) in enumerate(steps):
        name = value.metadata.name
        if step == "node":
            assert isinstance(value, Node)
            put(cluster, value)
            if name not in present:
                ledgers.node_appeared(name)
            present[name] = value
        elif step == "gone":
            row = cluster.nodes.row(name)
            if present.pop(name, None) is not None and row is not None:
                ledgers.node_disappears(name)
                cluster.drop_node(row, name)
                cluster.nodes.remove(name)
        else:
            assert isinstance(value, Pod)
            subject = cluster.pod_classes.read(value).subject
            uid = f"{name}-{number}"
            decision = engine.decide(subject, uid, BASED_ON)
            explanation = decision.explanation
            assert explanation == anew(present, ledgers).decide(subject, uid, BASED_ON).explanation
            excluded = sum(one.excluded for one in explanation.exclusions)
            assert explanation.nodes_feasible + excluded == explanation.nodes_considered == len(engine.nodes)
            for one in explanation.exclusions:
                assert one.excluded <= sum(one.reasons.values())
            if isinstance(decision, Placed):
                pod_class = subject.pod_class
                ledgers.hold(decision.node, PodInfo(uid, pod_class.demand, pod_class, subject.kind), Source.ASSUMED)
                taken = subject.pod_class.demand.columns  # a node that has shrunk may lack others
                assert (engine.nodes.free[taken, decision.row] >= 0).all()


@st.composite
def spread_over_zones(draw: st.DrawFn) -> list[Pod]:
    """A few kinds of pods whose constraints look at zones alone."""
    kinds = [
        [(draw(st.integers(1, 3)), draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])))]
        for _ in range(draw(st.integers(1, 3)))
    ]
    if draw(st.booleans()):
        kinds.append([(2, "DoNotSchedule"), (1, "ScheduleAnyway")])
    found: list[Pod] = []
    for constraints in kinds:
        spread = [
            {
                "topologyKey": "zone",
                "maxSkew": skew,
                "whenUnsatisfiable": what,
                "labelSelector": {"matchLabels": {"app": "a"}},
            }
            for skew, what in constraints
        ]
        made = pod("p", {"cpu": str(draw(st.integers(0, 2)))}, topologySpreadConstraints=spread)
        made.metadata.labels["app"] = "a"
        found.append(made)
    return found


@settings(max_examples=examples(80))
@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(1, 6)), min_size=2, max_size=12),
    spread_over_zones(),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=8, max_size=30),
)
def test_the_best_of_each_domain_are_the_best_of_all(
    nodes: list[tuple[str, int]], kinds: list[Pod], steps: list[tuple[int, int]]
) -> None:
    """Pods of few kinds, so that the nodes of each zone stand in order; against a look at every node (12.2 b)."""
    made = frameworks()
    cluster, engine = made.cluster, made.first.engine
    ledgers = Ledgers(cluster.accounting)
    present: dict[str, Node] = {}

    def put_node(number: int, zone: str, cpu: int) -> None:
        name = f"n{number}"
        one = node(name, cpu=str(cpu), labels={"zone": zone} if zone else {})
        put(cluster, one)
        if name not in present:
            ledgers.node_appeared(name)
        present[name] = one

    for number, (zone, cpu) in enumerate(nodes):
        put_node(number, zone, cpu)
    held: list[tuple[str, str]] = []
    by_domain = 0
    for number, (what, which) in enumerate(steps):
        if what == 0:
            zone, cpu = nodes[which % len(nodes)]
            put_node((which + 1) % len(nodes), zone, cpu)
        elif what == 1 and held:
            ledgers.drop(*held.pop(which % len(held)), Source.ASSUMED)
        else:
            wanted = kinds[which % len(kinds)]
            subject = cluster.pod_classes.read(wanted).subject
            decision = engine.decide(subject, f"p-{number}", BASED_ON)
            assert decision.explanation == anew(present, ledgers).decide(subject, f"p-{number}", BASED_ON).explanation
            cross_node = engine.cross_node_filters(subject).by_domain
            assert cross_node is not None
            by_domain += best_by_domain(engine.views.of(subject.pod_class), cross_node, 0, 3) is not None
            if isinstance(decision, Placed):
                pod_class = subject.pod_class
                pod_info = PodInfo(f"p-{number}", pod_class.demand, pod_class, subject.kind)
                ledgers.hold(decision.node, pod_info, Source.ASSUMED)
                held.append((decision.node, pod_info.uid))
    event(f"decided by domain: {by_domain > 2}")


def test_pods_of_one_kind_in_a_row_are_decided_by_domain() -> None:
    zones = [node(f"n{number}", cpu="8", labels={"zone": "ab"[number % 2]}) for number in range(4)]
    made = over(*zones)
    spread = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    wanted = pod("p", {"cpu": "1"}, topologySpreadConstraints=[spread])
    subject = made.cluster.pod_classes.read(wanted).subject
    engine = made.first.engine
    cross_node = engine.cross_node_filters(subject).by_domain
    assert cross_node is not None
    decide(made, wanted)
    decide(made, wanted)
    assert best_by_domain(engine.views.of(subject.pod_class), cross_node, 0, 3) is not None


def anew(present: dict[str, Node], ledgers: Ledgers) -> Engine:
    """An engine that sees these nodes and what the ledgers hold on them for the first time."""
    made = frameworks()
    for name in sorted(present, reverse=True):
        row = put(made.cluster, present[name])
        for known in ledgers.pod_infos(name):
            made.cluster.accounting.take(row, known)
    return made.first.engine


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(["", "PreferNoSchedule", "NoSchedule"])), min_size=1, max_size=9
    ),
    st.sets(st.integers(0, 8), min_size=1),
    st.integers(1, 4),
    st.text(max_size=3),
)
def test_rows_that_are_barred_are_passed_over_in_the_order_of_all(
    nodes: list[tuple[int, str]], barred: set[int], cpu: int, uid: str
) -> None:
    made = over(
        *(
            node(f"n{number}", cpu=str(size), taints=[{"key": "a", "value": "b", "effect": effect}] if effect else [])
            for number, (size, effect) in enumerate(nodes)
        )
    )
    wanted = pod(f"p-{uid}", {"cpu": str(cpu)})
    subject = made.cluster.pod_classes.read(wanted).subject
    rows = tuple(sorted(row for row in barred if row < len(nodes)))
    everywhere = np.arange(len(nodes), dtype=np.intp)
    ranked, sifted = (
        made.first.engine.decide(subject, wanted.metadata.uid, BASED_ON, Restriction(barred=rows, rows=within))
        for within in (None, everywhere)
    )
    assert ranked == sifted
