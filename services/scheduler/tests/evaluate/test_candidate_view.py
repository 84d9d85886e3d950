"""Few candidates found by indexes and judged alone: what is decided and told is what a look at all nodes gives."""

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.configuration import shipped_configuration
from koord_scheduler.domain.columns.label_index import LabelIndex
from koord_scheduler.domain.columns.node_columns import row_list
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.config.effective import effective_configuration
from koord_scheduler.domain.engine.candidates import FreeIndex
from koord_scheduler.domain.engine.decision import Optimisations
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.loop.profiles import frameworks_of
from koordcore.events.envelope import BasedOn
from koordcore.protocol.objects import Node, Pod
from support.scheduler.scheduling import node, pod

BASED_ON = BasedOn(7, 0)
SHIPPED = effective_configuration(shipped_configuration())
NAMES = [f"n{number}" for number in range(6)]
ZONE, DISK = "zone", "disk"


def switched(*, dynamic_index: bool) -> Frameworks:
    return frameworks_of(SHIPPED, optimisations=Optimisations(dynamic_index=dynamic_index))


def put(cluster: Cluster, one: Node) -> int:
    shape = node_shape(one)
    row, _ = cluster.nodes.put(one.metadata.name, shape)
    cluster.put_node(row, one, shape)
    return row


def drop(cluster: Cluster, name: str) -> None:
    row = cluster.nodes.row(name)
    if row is not None:
        cluster.drop_node(row, name)
        cluster.nodes.remove(name)


@st.composite
def some_node(draw: st.DrawFn) -> Node:
    labels = {key: draw(st.sampled_from("abc")) for key in (ZONE, DISK) if draw(st.booleans())}
    effects = st.sampled_from(["NoSchedule", "PreferNoSchedule"])
    return node(
        draw(st.sampled_from(NAMES)),
        cpu=str(draw(st.integers(0, 4))),
        labels=labels,
        taints=[{"key": draw(st.sampled_from("ab")), "effect": draw(effects)} for _ in range(draw(st.integers(0, 2)))],
        unschedulable=draw(st.integers(0, 4)) == 4,
    )


def some_requirement(draw: st.DrawFn, key: str, values: list[str]) -> dict[str, object]:
    operator = draw(st.sampled_from(["In", "In", "In", "NotIn", "Exists", "DoesNotExist"]))
    chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True))
    return {"key": key, "operator": operator, "values": chosen if operator.endswith("In") else []}


def some_terms(draw: st.DrawFn, least: int) -> list[dict[str, object]]:
    return [
        {
            "matchFields": [
                some_requirement(draw, "metadata.name", [*NAMES, "gone"]) for _ in range(draw(st.integers(0, 1)))
            ],
            "matchExpressions": [
                some_requirement(draw, draw(st.sampled_from([ZONE, DISK])), ["a", "b"])
                for _ in range(draw(st.integers(0, 2)))
            ],
        }
        for _ in range(draw(st.integers(least, 2)))
    ]


@st.composite
def some_pod(draw: st.DrawFn) -> Pod:
    required = some_terms(draw, 1) if draw(st.booleans()) else None
    preferred = [{"weight": draw(st.integers(1, 9)), "preference": term} for term in some_terms(draw, 0)]
    affinity: dict[str, object] = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    if required is not None:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": required}
    tolerated = draw(st.sampled_from(["", "a", "node.kubernetes.io/unschedulable"]))
    return pod(
        "p",
        {"cpu": str(draw(st.integers(0, 3)))},
        nodeSelector={DISK: "a"} if draw(st.integers(0, 3)) == 0 else {},
        affinity={"nodeAffinity": affinity},
        tolerations=[{"key": tolerated, "operator": "Exists"}] if tolerated else [],
    )


STEPS = st.lists(some_node() | some_pod() | st.sampled_from(NAMES), min_size=5, max_size=30)


@given(STEPS)
def test_the_dynamic_index_changes_no_placement_no_explanation_and_no_feasible_set(
    steps: list[Node | Pod | str],
) -> None:
    on, off = switched(dynamic_index=True), switched(dynamic_index=False)
    for number, step in enumerate(steps):
        if isinstance(step, Node):
            put(on.cluster, step)
            put(off.cluster, step)
        elif isinstance(step, str):
            drop(on.cluster, step)
            drop(off.cluster, step)
        else:
            subjects = [(made, made.cluster.pod_classes.read(step).subject) for made in (on, off)]
            room = [made.first.engine.has_room(subject) for made, subject in subjects]
            assert room[0] == room[1]
            one, other = (made.first.engine.decide(subject, f"p{number}", BASED_ON) for made, subject in subjects)
            assert one == other
            for ask in ("feasible", "resolvable"):
                rows = [getattr(made.first.engine, ask)(subject) for made, subject in subjects]
                assert row_list(rows[0]) == row_list(rows[1]), ask
            told = [
                [(each.plugin, each.reason, each.is_resolvable, row_list(each.rows)) for each in refusals]
                for refusals in (made.first.engine.refusals(subject) for made, subject in subjects)
            ]
            assert told[0] == told[1]
            excluded = sum(each.excluded for each in one.explanation.exclusions)
            assert (
                one.explanation.nodes_feasible + excluded == one.explanation.nodes_considered == len(on.cluster.nodes)
            )


def test_pod_that_names_its_node_keeps_nothing_over_all_nodes() -> None:
    made = switched(dynamic_index=True)
    for name in NAMES:
        put(made.cluster, node(name))
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    subject = made.cluster.pod_classes.read(pod(affinity={"nodeAffinity": required})).subject
    decision = made.first.engine.decide(subject, "p", BASED_ON)
    assert not made.first.engine.views.keeps(subject.pod_class)
    assert decision.explanation.top[0].node == "n3"
    assert [(each.plugin, each.excluded) for each in decision.explanation.exclusions] == [("NodeAffinity", 5)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30), st.integers(1, 9))
def test_free_index_misses_no_node_with_room(steps: list[tuple[int, int]], wanted: int) -> None:
    cluster = Cluster()
    index = FreeIndex(cluster.nodes)
    demand = cluster.nodes.demand({"cpu": wanted * 1000}, {}).pairs
    for name, cpu in steps:
        cluster.nodes.put(f"n{name}", node_shape(node(f"n{name}", cpu=str(cpu))))
        found = index.rows(demand, 100)
        nodes = cluster.nodes
        fits = [row for row in range(len(nodes.names)) if all(nodes.free[at, row] >= amount for at, amount in demand)]
        assert found is not None
        assert set(fits) <= set(found)


def test_label_key_is_indexed_while_it_is_asked_for() -> None:
    shapes = {row: node_shape(node(labels={"zone": "ab"[row % 2]})) for row in range(4)}
    index = LabelIndex(shapes)
    assert index.rows("zone", ["a"], 10) is None
    assert index.rows("zone", ["a"], 10) == {0, 2}
    assert index.rows("zone", ["a"], 1) is None
    index.changed(0, {"zone": "a"}, {"zone": "c"})
    assert index.rows("zone", ["a", "c"], 10) == {0, 2}
    assert index.rows("zone", ["a"], 10) == {2}
    for number in range(200_000):
        index.rows(f"other-{number % 2}", ["x"], 10)
    assert index.indexed() == {"other-0", "other-1"}
