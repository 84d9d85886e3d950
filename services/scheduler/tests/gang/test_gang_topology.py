"""The network's tree follows the nodes; jobs are placed in it whole, within what the nodes offer."""

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.plugins.gang.parameters import GatherRule
from koord_scheduler.domain.plugins.gang.placement import Demand, NoTopologyPlan, TopologyPlan, place
from koord_scheduler.domain.plugins.gang.topology import (
    ClusterNetworkTopology,
    Domain,
    DomainStatus,
    Layer,
    NetworkTopology,
    layers_of,
)
from koord_scheduler.domain.plugins.gang.topology_coscheduling import RunningPeers, scale_out_scores
from koordcore.protocol.objects import object_from_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

LAYERS = (Layer("spine", ("spine", "old-spine")), Layer("block", ("block",)))
Labels = dict[str, str]


def upwards(domain: Domain | None) -> Iterator[Domain]:
    """The domain, its parent, ..., the cluster."""
    while domain is not None:
        yield domain
        domain = domain.parent


complete = st.fixed_dictionaries({"spine": st.sampled_from(["s1", "s2"]), "block": st.sampled_from(["b1", "b2"])})
partial = st.fixed_dictionaries(
    {}, optional={"spine": st.just("s1"), "old-spine": st.just("s3"), "block": st.just("n1")}
)
labels = st.one_of(complete, complete, complete, partial)
nodes = st.sampled_from([f"n{number}" for number in range(4)])


def topology_object(*layers: tuple[str, str]) -> ClusterNetworkTopology:
    listed = [{"topologyLayer": name, "parentTopologyLayer": parent, "labelKey": [name]} for name, parent in layers]
    return object_from_json({"spec": {"networkTopologySpec": listed}}, ClusterNetworkTopology)


def shape(domain: Domain) -> object:
    """The tree below a domain as plain values."""
    return domain.id, [shape(domain.children[name]) for name in sorted(domain.children)]


def two_spines(count: int = 4) -> NetworkTopology:
    """Nodes n0, n1, ... two to a block, two blocks to a spine."""
    return NetworkTopology(
        LAYERS, ((f"n{number}", {"spine": f"s{number // 4}", "block": f"b{number // 2}"}) for number in range(count))
    )


def test_layers_are_ordered_by_following_the_parents_from_the_nodes() -> None:
    topology = topology_object(
        ("NodeTopologyLayer", "block"), ("spine", "ClusterTopologyLayer"), ("block", "spine"), ("unused", "")
    )
    assert [layer.name for layer in layers_of(topology)] == ["spine", "block"]


@pytest.mark.parametrize(
    "layers",
    [
        [("block", "")],
        [("NodeTopologyLayer", "block")],
        [("NodeTopologyLayer", "block"), ("block", "spine"), ("spine", "block")],
    ],
)
def test_layers_that_do_not_lead_from_the_nodes_to_the_cluster_are_refused(layers: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidInput, match="networkTopologySpec"):
        layers_of(topology_object(*layers))


def test_node_without_its_lowest_domain_is_alone_and_without_a_higher_one_outside() -> None:
    topology = NetworkTopology(LAYERS, [("n1", {"spine": "s1"}), ("n2", {"block": "b1"}), ("n3", {"old-spine": "s1"})])
    leaf = topology.leaf("n1")
    assert leaf is not None
    assert [domain.id for domain in upwards(leaf)] == [
        "NodeTopologyLayer/n1",
        "block/n1",
        "spine/s1",
        "ClusterTopologyLayer",
    ]
    assert topology.leaf("n2") is None
    assert topology.leaf("n3") is not None


def test_status_describes_every_domain_before_its_children() -> None:
    status = [codec.to_builtins(each) for each in two_spines(3).detail_status()]
    cluster = {"topologyLayer": "ClusterTopologyLayer"}
    spine = {"topologyLayer": "spine", "topologyName": "s0"}
    assert status == [
        {"topologyInfo": cluster, "childTopologyLayer": "spine", "childTopologyNames": ["s0"], "nodeNum": 3},
        {
            "topologyInfo": spine,
            "parentTopologyInfo": cluster,
            "childTopologyLayer": "block",
            "childTopologyNames": ["b0", "b1"],
            "nodeNum": 3,
        },
        {
            "topologyInfo": {"topologyLayer": "block", "topologyName": "b0"},
            "parentTopologyInfo": spine,
            "childTopologyLayer": "NodeTopologyLayer",
            "nodeNum": 2,
        },
        {
            "topologyInfo": {"topologyLayer": "block", "topologyName": "b1"},
            "parentTopologyInfo": spine,
            "childTopologyLayer": "NodeTopologyLayer",
            "nodeNum": 1,
        },
    ]


def test_domain_goes_over_to_another_parent_with_the_node_that_named_it() -> None:
    claims = [("n1", {"spine": "s1", "block": "b"}), ("n2", {"spine": "s2", "block": "b"})]
    topology = NetworkTopology(LAYERS, claims)
    leaf = topology.leaf("n2")
    assert leaf is not None
    assert [domain.name for domain in upwards(leaf)] == ["n2", "b", "s1", ""]
    topology.remove_node("n1")
    assert [domain.name for domain in upwards(leaf)] == ["n2", "b", "s2", ""]
    assert [domain.id for domain in topology.domains_at(1)] == ["spine/s2"]


def test_status_can_be_read_back() -> None:
    for each in two_spines().detail_status():
        assert codec.decode(codec.encode(each), DomainStatus) == each


@given(changes=st.lists(st.tuples(nodes, st.none() | labels), max_size=30))
def test_tree_after_any_changes_is_the_tree_built_from_the_nodes_that_are_left(
    changes: list[tuple[str, Labels | None]],
) -> None:
    topology = NetworkTopology(LAYERS)
    left: dict[str, Labels] = {}
    for name, carried in changes:
        if carried is None:
            topology.remove_node(name)
            left.pop(name, None)
        else:
            topology.put_node(name, carried)
            left[name] = carried
    rebuilt = NetworkTopology(LAYERS, sorted(left.items()))
    assert shape(topology.root) == shape(rebuilt.root)
    assert topology.detail_status() == rebuilt.detail_status()


rules = st.lists(
    st.builds(
        GatherRule,
        layer=st.sampled_from(["spine", "block", "NodeTopologyLayer", "unknown"]),
        strategy=st.sampled_from(["MustGather", "PreferGather"]),
        pod_count_multiple=st.integers(0, 3),
    ),
    max_size=3,
)


def per_domain(topology: NetworkTopology, placed: tuple[str, ...]) -> Mapping[Domain, int]:
    """Members below each domain."""
    counts: dict[Domain, int] = {}
    for node in placed:
        leaf = topology.leaf(node)
        assert leaf is not None
        for domain in upwards(leaf):
            counts[domain] = counts.get(domain, 0) + 1
    return counts


@given(
    slots=st.dictionaries(st.sampled_from([f"n{number}" for number in range(9)]), st.integers(0, 5)),
    members=st.integers(1, 12),
    gather=rules,
    existing=st.dictionaries(st.sampled_from(["n0", "n5"]), st.integers(0, 2)),
)
def test_job_is_placed_whole_within_slots_multiples_and_one_domain(
    slots: dict[str, int], members: int, gather: list[GatherRule], existing: dict[str, int]
) -> None:
    topology = two_spines(8)
    found = place(topology, Demand(members=members, slots=slots, gather=gather, existing=existing))
    must = [rule.layer for rule in gather if rule.strategy == "MustGather"]
    if isinstance(found, NoTopologyPlan):
        fits = sum(count for node, count in slots.items() if topology.leaf(node) is not None) >= members
        assert must or not fits or any(rule.pod_count_multiple > 1 for rule in gather)
        return
    assert len(found.nodes) == members
    counts = per_domain(topology, found.nodes)
    last = {rule.layer: rule.pod_count_multiple for rule in gather if rule.pod_count_multiple > 1}
    candidate = next(domain for domain in counts if domain.id == found.domain)
    assert counts[candidate] == members
    for domain, count in counts.items():
        # Above the domain that takes all, multiples limit the search only.
        if domain.depth >= candidate.depth:
            assert count % last.get(domain.layer, 1) == 0
        if domain.is_node:
            assert count <= slots[domain.name]
        if domain.layer in must:
            assert count == members


def test_failure_names_the_start_domains_their_slots_and_the_multiples() -> None:
    gather = [GatherRule(layer="block", strategy="MustGather", pod_count_multiple=2)]
    found = place(two_spines(), Demand(members=3, slots={"n0": 1, "n1": 1, "n2": 1}, gather=gather))
    assert isinstance(found, NoTopologyPlan)
    assert found.slots == {"block/b0": 2, "block/b1": 0}
    assert found.message("0/4 nodes are available") == (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 3, "
        "topology topologyNode block/b0: 2;topology topologyNode block/b1: 0, 0/4 nodes are available"
        "; podCountMultiple constraints: block=2"
    )


def test_next_candidate_is_tried_when_the_best_one_cannot_hand_out_its_multiples() -> None:
    gather = [
        GatherRule(layer="block", strategy="MustGather"),
        GatherRule(layer="NodeTopologyLayer", strategy="PreferGather", pod_count_multiple=2),
    ]
    found = place(two_spines(), Demand(members=3, slots=dict.fromkeys(["n0", "n1", "n2", "n3"], 4), gather=gather))
    assert isinstance(found, NoTopologyPlan)
    even = place(two_spines(), Demand(members=4, slots={"n0": 2, "n1": 2, "n2": 4}, gather=gather))
    assert even == TopologyPlan("NodeTopologyLayer/n2", ("n2",) * 4)


def test_scale_out_prefers_the_nodes_near_the_running_pods() -> None:
    peers = RunningPeers()
    peers.put("p", "job", "n2")
    peers.put("q", "other", "n0")
    scores = scale_out_scores(two_spines(), ["n0", "n1", "n2", "n3", "outside"], peers.of("job"))
    assert scores.tolist() == [50, 25, 100, 75, 0]
    assert scale_out_scores(two_spines(), ["n0"], peers.of("job")).tolist() == [100]


def test_peers_follow_their_pods() -> None:
    peers = RunningPeers()
    peers.put("p", "job", "n1")
    peers.put("p", "job", "n2")
    assert peers.of("job") == {"n2": 1}
    peers.put("p", "job", "")
    peers.drop("unknown")
    assert peers.of("job") == {}
