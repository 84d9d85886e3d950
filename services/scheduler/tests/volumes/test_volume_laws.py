"""Laws of volumes: none is given twice, all are given back, and kept results equal those computed from nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.equivalence_classes import Claims
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.columns.node_shape import NodeShape
from koord_scheduler.domain.plugins.volumes.books import VolumeBooks
from koord_scheduler.domain.plugins.volumes.matching import Matching
from koordcore.protocol.objects import object_from_json
from koordcore.protocol.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordcore.values.allocation import ClaimBinding
from support.depth import examples
from support.reachable import container_sizes
from support.scheduler.scheduling import Scheduler, SmallLog, node
from support.scheduler.volumes import HOST, ZONE, chosen, claim, storage_class, user_of, volume

NODES: Final = ("a", "b", "c")
NAMES: Final = st.sampled_from(("v1", "v2", "v3", "v4", "v5"))
CLASSES: Final = st.sampled_from(("local", "disks"))
TERMS: Final = st.one_of(
    st.none(),
    st.sampled_from(NODES).map(lambda name: [{"key": HOST, "operator": "In", "values": [name]}]),
    st.sampled_from("xy").map(lambda zone: [{"key": ZONE, "operator": "In", "values": [zone]}]),
    st.sampled_from(NODES).map(lambda name: [{"key": HOST, "operator": "NotIn", "values": [name]}]),
)


@st.composite
def volumes(draw: st.DrawFn) -> dict[str, Any]:
    terms = draw(TERMS)
    reserved = draw(st.sampled_from(("", "", "", "c1")))
    spec: dict[str, Any] = {
        "capacity": {"storage": draw(st.integers(1, 3))},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": draw(CLASSES),
        **({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}} if terms else {}),
        **({"claimRef": {"namespace": "default", "name": reserved}} if reserved else {}),
    }
    phase = draw(st.sampled_from(("Available", "Available", "Bound")))
    return {"metadata": {"name": draw(NAMES)}, "spec": spec, "status": {"phase": phase}}


@st.composite
def claims(draw: st.DrawFn) -> dict[str, Any]:
    spec = {
        "storageClassName": draw(CLASSES),
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": draw(st.integers(0, 3))}},
    }
    return {"metadata": {"namespace": "default", "name": draw(st.sampled_from(("c1", "c2", "c3")))}, "spec": spec}


STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("volume"), volumes()),
        st.tuples(st.just("no volume"), NAMES),
        st.tuples(st.just("claim"), claims()),
        st.tuples(st.just("place"), st.tuples(st.sampled_from(NODES), st.sets(st.sampled_from(("c1", "c2", "c3"))))),
        st.tuples(st.just("remove"), st.integers(0, 3)),
        st.tuples(st.just("zone"), st.tuples(st.sampled_from(NODES), st.sampled_from("xy"))),
    ),
    max_size=30,
)


@dataclass
class Bench:
    """Books over three nodes, and the pods that were placed."""

    nodes: NodeColumns = field(default_factory=NodeColumns)
    placed: list[tuple[int, str, tuple[ClaimBinding, ...]]] = field(
        default_factory=list[tuple[int, str, tuple[ClaimBinding, ...]]]
    )
    pods: int = 0

    def __post_init__(self) -> None:
        self.books = VolumeBooks(self.nodes)
        for name in NODES:
            self.nodes.put(name, NodeShape(labels={HOST: name, ZONE: "x"}))
        for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("disks", "d")):
            topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["y"]}]}]
            document: Mapping[str, Any] = {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": topology,
            }
            self.books.put_class(object_from_json(document, StorageClass))

    def step(self, what: str, given: Any) -> None:
        match what:
            case "volume":
                self.books.put_volume(object_from_json(given, PersistentVolume))
            case "no volume":
                self.books.drop_volume(given)
            case "claim":
                self.books.put_claim(object_from_json(given, PersistentVolumeClaim))
            case "place":
                self.place(*given)
            case "remove" if given < len(self.placed):
                self.books.give(*self.placed.pop(given))
            case "zone":
                name, zone = given
                self.nodes.put(name, NodeShape(labels={HOST: name, ZONE: zone}))
            case _:
                pass

    def place(self, name: str, names: set[str]) -> None:
        """Place a pod with these claims as the plugin does, if the node has volumes for those that are free."""
        row = self.nodes.row(name)
        assert row is not None
        needs = self.books.needs(Claims("default", tuple(sorted(names))))
        plan = self.books.matching.plan(needs.wants, row)
        if isinstance(plan, int):
            return
        given = [(claim.key[1], found) for claim, found in zip(needs.free, plan, strict=True)]
        given += [(claim.key[1], found.name) for claim, found in needs.reserved]
        given += [(claim.key[1], "") for claim, _ in needs.selected]
        bindings = tuple(ClaimBinding(namespace="default", claim=claim, volume=found) for claim, found in given)
        self.pods += 1
        self.placed.append((row, f"p{self.pods}", bindings))
        self.books.take(row, f"p{self.pods}", bindings)

    def from_nothing(self) -> Matching:
        """The volumes that are unbound and that no placed pod has, without any kept result."""
        fresh = Matching(self.nodes)
        for known in self.books.matching.classes.values():
            fresh.put_class(known)
        taken = {each.volume for _, _, bindings in self.placed for each in bindings}
        for each in self.books.volumes.values():
            if each.claim is None and each.is_available and each.name not in taken:
                fresh.add_volume(each)
        return fresh


@settings(max_examples=examples(300))
@given(STEPS)
def test_kept_results_equal_those_computed_from_nothing_and_no_volume_is_given_twice(
    steps: list[tuple[str, Any]],
) -> None:
    bench = Bench()
    for what, given_ in steps:
        bench.step(what, given_)
        fresh = bench.from_nothing()
        known = bench.books.claims.values()
        for wants in ((each.wanted,) for each in known):
            assert bench.books.matching.codes(wants).tolist() == fresh.codes(wants).tolist()
        both = tuple(each.wanted for each in known)
        assert bench.books.matching.codes(both).tolist() == fresh.codes(both).tolist()
        holders: dict[str, set[str]] = {}
        for _, _, bindings in bench.placed:
            for each in bindings:
                holders.setdefault(each.volume, set()).add(each.claim)
        assert all(len(found) == 1 for name, found in holders.items() if name)
    for placed in bench.placed:
        bench.books.give(*placed)
    bench.placed.clear()
    fresh = bench.from_nothing()
    for wants in ((each.wanted,) for each in bench.books.claims.values()):
        assert bench.books.matching.codes(wants).tolist() == fresh.codes(wants).tolist()


PODS: Final = st.lists(
    st.tuples(st.sampled_from(("p1", "p2", "p3", "p4")), st.sets(st.sampled_from(("c1", "c2", "c3")), min_size=1)),
    max_size=8,
)


@settings(max_examples=examples(25))
@given(PODS)
def test_placed_pods_never_share_a_volume_unless_they_share_its_claim(pods: list[tuple[str, set[str]]]) -> None:
    log = SmallLog()
    for name in NODES:
        log.add_node(node(name, labels={HOST: name}))
    scheduler = Scheduler(log)
    storage_class(scheduler)
    for index, name in enumerate(("a", "a", "b")):
        volume(scheduler, f"v{index}", host=name)
    for name in ("c1", "c2", "c3"):
        claim(scheduler, name)
    now, alive = 0.0, set[str]()
    for uid, names in pods:
        now += 400.0
        if uid in alive:
            log.remove_pod(uid)
            alive.discard(uid)
        else:
            log.add_pod(user_of(*sorted(names), uid=uid, cpu="100m"))
            alive.add(uid)
        scheduler.run(now=now)
        held: dict[str, set[str]] = {}
        volume_of: dict[str, set[str]] = {}
        for each in alive:
            if scheduler.state.pods[each].node:
                for claim_name, found in chosen(scheduler, each).items():
                    held.setdefault(found, set()).add(claim_name)
                    volume_of.setdefault(claim_name, set()).add(found)
        assert all(len(found) == 1 for found in (*held.values(), *volume_of.values()))


def test_many_changes_of_claims_that_nobody_takes_are_kept_as_one() -> None:
    """Where a scheduler does not lead, it takes none of them."""
    books = VolumeBooks(NodeColumns())
    for life in range(5_000):
        books.drop_claim("default", f"data-{life}")
    assert container_sizes(books.helped)["._claims"] <= 1024
    assert books.take_helped().may_help([(("default", "data-0"), "", "")])
    assert not books.take_helped().may_help([(("default", "data-0"), "", "")])
