"""What each plugin refuses and prefers."""

from typing import Any

import numpy as np
import pytest
from koord_scheduler.domain.cluster.equivalence_classes import PodClasses
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.config.kubernetes_args import NodeResourcesFitArgs
from koord_scheduler.domain.framework.node_points import FilterPlugin, ScorePlugin
from koord_scheduler.domain.plugins.affinity.node_affinity import NodeAffinity, NodeName
from koord_scheduler.domain.plugins.affinity.taint_toleration import NodeUnschedulable, TaintToleration
from koord_scheduler.domain.plugins.resources.fit import NodeResourcesFit
from koordcore.events.envelope import BasedOn
from koordcore.protocol.objects import ContainerImage, LabelSelectorRequirement, Node, Pod
from koordcore.protocol.placement import is_met
from support.scheduler.scheduling import frameworks, node, pod

EMPTY: dict[str, Any] = {}


def columns_of(*nodes: Node) -> NodeColumns:
    columns = NodeColumns(capacity=2)
    for one in nodes:
        columns.put(one.metadata.name, node_shape(one))
    return columns


def refusals(plugin: FilterPlugin, wanted: Pod, *nodes: Node) -> dict[str, tuple[str, ...]]:
    """Node -> why it is refused, for the refused ones."""
    columns = columns_of(*nodes)
    pod_class = PodClasses(columns).of(wanted)
    codes = plugin.filter(pod_class, columns, np.arange(len(nodes), dtype=np.intp))
    if codes is None:
        return {}
    return {columns.names[row]: plugin.reasons(pod_class, columns, int(code)) for row, code in enumerate(codes) if code}


def scores(plugin: ScorePlugin, wanted: Pod, *nodes: Node) -> list[int]:
    """Normalized score of each node, all of them feasible."""
    columns = columns_of(*nodes)
    rows = np.arange(len(nodes), dtype=np.intp)
    raw = plugin.score(PodClasses(columns).of(wanted), columns, rows)
    counts = np.zeros(len(nodes), np.int64) if raw is None else raw
    normalized: list[int] = plugin.normalize(counts, int(counts.min()), int(counts.max())).tolist()
    return normalized


def affinity(**terms: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": terms}}


def in_zone(*zones: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}


def test_cordoned_node_is_refused() -> None:
    found = refusals(NodeUnschedulable(), pod(), node("a"), node("b", unschedulable=True))
    assert found == {"b": ("node(s) were unschedulable",)}


def test_pod_that_tolerates_the_cordon_may_go_there() -> None:
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert refusals(NodeUnschedulable(), tolerant, node("b", unschedulable=True)) == {}


def test_named_node_is_the_only_one() -> None:
    assert set(refusals(NodeName(), pod(nodeName="b"), node("a"), node("b"), node("c"))) == {"a", "c"}
    assert set(refusals(NodeName(), pod(nodeName="nowhere"), node("a"))) == {"a"}
    assert refusals(NodeName(), pod(), node("a")) == {}


def test_untolerated_taint_is_named_in_the_reason() -> None:
    tainted = node("a", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    assert refusals(TaintToleration(), pod(), tainted, node("b")) == {
        "a": ("node(s) had untolerated taint {gpu: yes}",)
    }


def test_first_untolerated_taint_counts() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]
    tolerant = pod(tolerations=[{"key": "a", "operator": "Exists"}])
    found = refusals(TaintToleration(), tolerant, node("n", taints=taints))
    assert found == {"n": ("node(s) had untolerated taint {b: }",)}


@pytest.mark.parametrize(
    ("operator", "values", "value", "met"),
    [
        ("In", ["a", "b"], "b", True),
        ("In", ["a"], None, False),
        ("NotIn", ["a"], "a", False),
        ("NotIn", ["a"], None, True),
        ("Exists", [], "", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], None, True),
        ("DoesNotExist", [], "x", False),
        ("Gt", ["5"], "6", True),
        ("Gt", ["5"], "5", False),
        ("Lt", ["5"], "-6", True),
        ("Lt", ["5"], "many", False),
        ("Gt", ["x"], "6", False),
        ("Gt", ["1", "2"], "6", False),
        ("Gt", ["5"], "99999999999999999999", False),
        ("Like", ["a"], "a", False),
    ],
)
def test_requirement(operator: str, values: list[str], value: str | None, *, met: bool) -> None:
    assert is_met(LabelSelectorRequirement(key="k", operator=operator, values=values), value) is met


def test_selector_and_required_terms_are_both_needed() -> None:
    nodes = [node(f"{zone}{disk}", labels={"zone": zone, "disk": disk}) for zone in "ab" for disk in "xy"]
    wanted = pod(
        nodeSelector={"disk": "x"},
        **affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [in_zone("a"), in_zone("c")]}),
    )
    assert set(refusals(NodeAffinity(), wanted, *nodes)) == {"ay", "bx", "by"}


def test_empty_term_matches_nothing() -> None:
    wanted = pod(**affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [EMPTY]}))
    assert set(refusals(NodeAffinity(), wanted, node("a"))) == {"a"}


def test_field_term_pins_a_node_by_name() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
    wanted = pod(**affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [term]}))
    assert set(refusals(NodeAffinity(), wanted, node("a"), node("b"))) == {"a"}


def test_preferred_weights_add_up_and_are_normalized_to_the_best() -> None:
    preferred = [
        {"weight": 30, "preference": in_zone("a")},
        {"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}},
    ]
    wanted = pod(**affinity(preferredDuringSchedulingIgnoredDuringExecution=preferred))
    nodes = [node("1", labels={"zone": "a", "disk": "d"}), node("2", labels={"disk": "d"}), node("3")]
    assert scores(NodeAffinity(), wanted, *nodes) == [100, 25, 0]
    assert scores(NodeAffinity(), wanted, node("3")) == [0]


def test_every_shortage_is_told() -> None:
    wanted = pod(requests={"cpu": "5", "memory": "1Gi", "nvidia.com/gpu": "1"})
    assert refusals(NodeResourcesFit(NodeResourcesFitArgs()), wanted, node("a", pods="0")) == {
        "a": ("Too many pods", "Insufficient cpu", "Insufficient nvidia.com/gpu")
    }


def test_least_allocated_prefers_the_emptier_node() -> None:
    wanted = pod(requests={"cpu": "1", "memory": "1Gi"})
    big, small = scores(NodeResourcesFit(NodeResourcesFitArgs()), wanted, node("a", cpu="8"), node("b", cpu="2"))
    assert (big, small) == ((87 + 87) // 2, (50 + 87) // 2)


def test_huge_amounts_do_not_overflow() -> None:
    wanted = pod(requests={"cpu": "1e30", "memory": "9e99"})
    found = refusals(NodeResourcesFit(NodeResourcesFitArgs()), wanted, node("a", cpu="1e17", memory="1e17"), node("b"))
    assert found["b"] == ("Insufficient cpu", "Insufficient memory")


def test_native_and_batch_resources_are_never_ignored() -> None:
    args = NodeResourcesFitArgs(
        ignored_resources=("cpu", "kubernetes.io/batch-cpu", "example.com/a"),
        ignored_resource_groups=("kubernetes.io",),
    )
    ignored = [name for name in (*args.ignored_resources, "memory") if NodeResourcesFit(args).ignores(name)]
    assert ignored == ["example.com/a"]


def test_the_number_of_shared_cards_is_left_to_device_share() -> None:
    fit = NodeResourcesFit(NodeResourcesFitArgs())
    names = ("koordinator.sh/gpu.shared", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
    assert [name for name in names if fit.ignores(name)] == ["koordinator.sh/gpu.shared"]


def test_image_counts_by_its_size_and_by_how_many_nodes_have_it() -> None:
    made = frameworks()
    cluster, engine = made.cluster, made.first.engine

    def put(name: str, *images: str) -> None:
        one = node(name)
        one.status.images = [ContainerImage(names=[image], size_bytes=600 << 20) for image in images]
        shape = node_shape(one)
        row, _ = cluster.nodes.put(name, shape)
        cluster.put_node(row, one, shape)

    def parts() -> dict[str, int]:
        wanted = pod("p", {"cpu": "100m"})
        wanted.spec.containers[0].image = "registry/app"
        decision = engine.decide(cluster.pod_classes.read(wanted).subject, "p", BasedOn())
        return {entry.node: entry.parts["ImageLocality"] for entry in decision.explanation.top}

    for name in "abc":
        put(name)
    assert parts() == {"a": 0, "b": 0, "c": 0}
    put("b", "registry/app:latest")
    cluster.settle()
    # 600 MiB on one node of three: 200 MiB, between 23 and 1000
    assert parts() == {"a": 0, "b": 100 * (200 - 23) // (1000 - 23), "c": 0}
    put("c", "registry/app:latest")
    cluster.settle()
    assert parts()["b"] == parts()["c"] == 100 * (400 - 23) // (1000 - 23)
    put("b")
    cluster.settle()
    assert parts()["b"] == 0
