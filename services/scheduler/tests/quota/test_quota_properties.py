"""The books of the quotas agree with the rules read literally, whatever happened in whatever order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.config.koordinator_args import ElasticQuotaArgs
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.plugins.quota.admission import without_zeros
from koord_scheduler.domain.plugins.quota.division import Claim, divide
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.reports import QuotaReports
from koord_scheduler.domain.plugins.quota.specs import PodFacts, built_in_quotas
from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol import keys
from koordcore.protocol.quota import QuotaSpec, shared_weight
from support.depth import examples

RESOURCES = ("cpu", "nvidia.com/gpu")
QUOTAS = ("a", "b", "c", "d", "e", "ns-1")
NAMESPACES = ("ns-1", "ns-2", "ns-3")
PODS = tuple(f"pod-{number}" for number in range(6))
NODES = ("node-1", "node-2")


class NodeIs(NamedTuple):
    """A node has this allocatable now; None: it is gone."""

    name: str
    allocatable: dict[str, int] | None


@dataclass
class World:
    """What is the case: the books are a function of it."""

    quotas: dict[str, QuotaSpec] = field(default_factory=dict[str, QuotaSpec])
    pods: dict[str, PodFacts] = field(default_factory=dict[str, PodFacts])
    assigned: set[str] = field(default_factory=set[str])
    nodes: dict[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])


amounts: st.SearchStrategy[dict[str, int]] = st.fixed_dictionaries(
    {"cpu": st.integers(0, 60)}, optional={"nvidia.com/gpu": st.integers(0, 60)}
)

weights: st.SearchStrategy[dict[str, int]] = st.fixed_dictionaries(
    {}, optional={resource: st.integers(1, 9) for resource in RESOURCES}
)


@st.composite
def quota_specs(draw: st.DrawFn) -> QuotaSpec:
    name = draw(st.sampled_from(QUOTAS))
    low, high = draw(amounts), draw(amounts)
    return QuotaSpec(
        name=name,
        namespace=draw(st.sampled_from((name, "elsewhere"))),
        parent=draw(st.sampled_from((keys.ROOT_QUOTA, keys.ROOT_QUOTA, keys.DEFAULT_QUOTA, *QUOTAS))),
        allow_lent=draw(st.booleans()),
        min={resource: min(amount, high[resource]) for resource, amount in low.items() if resource in high},
        max=high,
        weight=shared_weight(draw(weights), high),
        namespaces=tuple(draw(st.lists(st.sampled_from(NAMESPACES), max_size=2))),
        is_root=draw(st.booleans()),
        tree_id=draw(st.sampled_from(("", "", "", "tree"))),
        tree_total=draw(st.sampled_from((None, None, {"cpu": 30}, {"cpu": 7, "nvidia.com/gpu": 3}))),
        ignore_default_tree=draw(st.booleans()),
    )


@st.composite
def pod_facts(draw: st.DrawFn) -> PodFacts:
    uid = draw(st.sampled_from(PODS))
    return PodFacts(
        uid=uid,
        namespace=draw(st.sampled_from(NAMESPACES)),
        name=uid,
        quota_label=draw(st.sampled_from(("", keys.SYSTEM_QUOTA, *QUOTAS))),
        requests=draw(amounts),
        priority=draw(st.integers(0, 3)),
        preemptible=draw(st.booleans()),
    )


events: st.SearchStrategy[object] = st.one_of(
    quota_specs(),
    pod_facts(),
    st.tuples(st.just("running"), pod_facts()),
    st.tuples(st.just("running"), pod_facts()),
    st.tuples(st.sampled_from(("reserve", "unreserve", "gone")), st.sampled_from(PODS)),
    st.tuples(st.just("delete"), st.sampled_from(QUOTAS)),
    st.builds(NodeIs, st.sampled_from(NODES), amounts),
    st.builds(NodeIs, st.sampled_from(NODES), st.none() | amounts),
)


@st.composite
def histories(draw: st.DrawFn) -> list[object]:
    """A tree and a node to begin with, then anything."""
    node = {resource: draw(st.integers(20, 200)) for resource in RESOURCES}
    tree = draw(st.lists(quota_specs(), min_size=3, max_size=6))
    return [*tree, NodeIs("node-1", node), *draw(st.lists(events, max_size=30))]


Configuration = tuple[ElasticQuotaArgs, SchedulerGates]
gates = st.builds(
    SchedulerGates,
    multi_quota_tree=st.booleans(),
    elastic_quota_guarantee_usage=st.booleans(),
    disable_default_quota=st.booleans(),
)


def live(manager: QuotaManager, world: World, history: list[object], *, curious: bool) -> None:
    """Let all that happen; curious: ask for every runtime after every event, so that all of them are kept."""
    for event in history:
        happen(manager, world, event)
        if curious:
            books(manager)


def happen(manager: QuotaManager, world: World, event: object) -> None:
    """Tell the manager, and note what is the case now."""
    match event:
        case QuotaSpec() as spec:
            manager.upsert_quota(spec)
            world.quotas[spec.name] = spec
        case PodFacts() as facts:
            manager.pod_seen(facts)
            world.pods[facts.uid] = facts
        case ("running", PodFacts() as facts):
            manager.pod_seen(facts, assigned=True)
            world.pods[facts.uid] = facts
            world.assigned.add(facts.uid)
        case ("asks", PodFacts() as facts):
            happen(manager, world, facts)
        case ("reserve", str(uid)) if uid in world.pods:
            manager.reserve(uid)
            world.assigned.add(uid)
        case ("unreserve", str(uid)):
            manager.unreserve(uid)
            world.assigned.discard(uid)
        case ("gone", str(uid)):
            manager.pod_gone(uid)
            world.pods.pop(uid, None)
            world.assigned.discard(uid)
        case ("delete", str(name)):
            manager.delete_quota(name)
            world.quotas.pop(name, None)
        case NodeIs(name, None):
            manager.remove_node(name)
            world.nodes.pop(name, None)
        case NodeIs(name, dict() as allocatable):
            manager.set_node(name, allocatable)
            world.nodes[name] = allocatable
        case _:
            pass


def built_from(world: World, configuration: Configuration, *, backwards: bool) -> QuotaManager:
    """A manager that is told only what is the case in the end."""
    manager = QuotaManager(*configuration)
    steps: list[Callable[[], object]] = [
        *(partial(manager.pod_seen, pod, assigned=pod.uid in world.assigned) for pod in world.pods.values()),
        *(partial(manager.upsert_quota, spec) for spec in world.quotas.values()),
        *(partial(manager.set_node, name, allocatable) for name, allocatable in world.nodes.items()),
    ]
    for step in reversed(steps) if backwards else steps:
        step()
    return manager


def loaded_from(world: World, configuration: Configuration) -> QuotaManager:
    """The same, told of all pods at once."""
    manager = QuotaManager(*configuration)
    for name, allocatable in world.nodes.items():
        manager.set_node(name, allocatable)
    for spec in world.quotas.values():
        manager.upsert_quota(spec)
    with manager.many_pods():
        for pod in world.pods.values():
            manager.pod_seen(pod, assigned=pod.uid in world.assigned)
    return manager


def books(manager: QuotaManager) -> list[QuotaStatusComputed]:
    reports = QuotaReports(manager)
    return [reports.status_of(name) for name in manager.names()]


def add(*lists: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(one.get(name, 0) for one in lists) for name in dict.fromkeys(key for one in lists for key in one)}


class Literal:
    """Sections 10.2 to 10.4, 10.6 and 10.7 read word by word, from scratch, without regard to cost."""

    def __init__(self, world: World, configuration: Configuration) -> None:
        self.world, (self.args, self.gates) = world, configuration
        self.specs = {**{spec.name: spec for spec in built_in_quotas(self.args)}, **world.quotas}
        self.in_quota: dict[str, list[PodFacts]] = {name: [] for name in self.specs}
        for pod in world.pods.values():
            name = self.quota_of(pod)
            if name:
                self.in_quota[name].append(pod)

    def quota_of(self, pod: PodFacts) -> str:
        if self.gates.disable_default_quota:
            return pod.quota_label if pod.quota_label in self.specs else ""
        if pod.quota_label:
            return pod.quota_label if pod.quota_label in self.specs else keys.DEFAULT_QUOTA
        if pod.namespace in self.specs and self.specs[pod.namespace].namespace == pod.namespace:
            return pod.namespace
        listing = sorted(name for name, spec in self.specs.items() if pod.namespace in spec.namespaces)
        return listing[0] if listing else keys.DEFAULT_QUOTA

    def tree(self, name: str) -> str:
        return self.specs[name].tree_id if self.gates.multi_quota_tree else ""

    def named_parent(self, name: str) -> str | None:
        parent = self.specs[name].parent
        regular = parent in self.world.quotas and name in self.world.quotas
        return parent if regular and self.tree(parent) == self.tree(name) else None

    def parent(self, name: str) -> str:
        """A quota's parent; "root:<tree>" for the root of its tree."""
        at = parent = self.named_parent(name)
        for _ in self.specs:
            if at == name:
                parent = None
            at = self.named_parent(at) if at else None
        return parent or f"root:{self.tree(name)}"

    def children(self, parent: str) -> list[str]:
        return [name for name in sorted(self.specs) if name != keys.ROOT_QUOTA and self.parent(name) == parent]

    def lends(self, name: str) -> bool:
        return self.specs[name].allow_lent and not self.gates.elastic_quota_guarantee_usage

    def own(self, name: str, *, used: bool) -> dict[str, int]:
        pods = [pod for pod in self.in_quota[name] if not used or pod.uid in self.world.assigned]
        masked = [{r: a for r, a in pod.requests.items() if r in self.specs[name].max} for pod in pods]
        return add(*masked)

    def used(self, name: str) -> dict[str, int]:
        return add(self.own(name, used=True), *[self.used(child) for child in self.children(name)])

    def request(self, name: str) -> dict[str, int]:
        request = add(self.own(name, used=False), *[self.limited(child) for child in self.children(name)])
        if not self.lends(name):
            for resource, amount in self.specs[name].min.items():
                request[resource] = max(request.get(resource, 0), amount)
        return request

    def limited(self, name: str) -> dict[str, int]:
        maximum = self.specs[name].max
        return {r: min(amount, maximum.get(r, amount)) for r, amount in self.request(name).items()}

    def guaranteed(self, name: str) -> dict[str, int]:
        allocated = add(self.own(name, used=True), *[self.guaranteed(child) for child in self.children(name)])
        minimum = self.specs[name].min
        return {r: max(allocated.get(r, 0), minimum.get(r, 0)) for r in {**allocated, **minimum}}

    def total(self, parent: str) -> dict[str, int]:
        if not parent.startswith("root:"):
            return self.runtime(parent)
        tree = parent.removeprefix("root:")
        roots = [
            spec
            for name, spec in self.world.quotas.items()
            if self.gates.multi_quota_tree and spec.is_root and self.tree(name)
        ]
        if tree:
            return add(*[spec.tree_total or {} for spec in roots if self.tree(spec.name) == tree])
        cut = add(*[spec.tree_total or {} for spec in roots if not spec.ignore_default_tree])
        taken = add(self.own(keys.SYSTEM_QUOTA, used=True), self.own(keys.DEFAULT_QUOTA, used=True))
        less = {r: -a for r, a in add(cut, {r: a for r, a in taken.items() if a}).items()}
        return add(*self.world.nodes.values(), less)

    def scaled(self, name: str, resource: str, total: Mapping[str, int], sum_min: int) -> int:
        base = self.specs[name].min.get(resource, 0)
        if not self.args.enable_min_quota_scale or resource not in total or total[resource] >= sum_min:
            return base
        return 0 if total[resource] <= 0 else int(float(total[resource]) * float(base) / float(sum_min))

    def scaled_min(self, name: str) -> dict[str, int]:
        parent = self.parent(name)
        total = self.total(parent)
        siblings = [self.specs[child] for child in self.children(parent) if child in self.world.quotas]
        minimum = self.specs[name].min
        return {r: self.scaled(name, r, total, sum(spec.min.get(r, 0) for spec in siblings)) for r in minimum}

    def runtime(self, name: str) -> dict[str, int]:
        parent = self.parent(name)
        total = self.total(parent)
        siblings = [child for child in self.children(parent) if child in self.world.quotas]
        if parent.startswith("root:"):
            tree = parent.removeprefix("root:")
            resources = {r for other in self.world.quotas if self.tree(other) == tree for r in self.specs[other].max}
        else:
            resources = set(self.specs[parent].max)
        runtime: dict[str, int] = {}
        for resource in resources:
            sum_min = sum(self.specs[child].min.get(resource, 0) for child in siblings)
            claims: list[Claim] = []
            for child in siblings:
                base = self.scaled(child, resource, total, sum_min)
                if self.gates.elastic_quota_guarantee_usage:
                    base = max(base, self.guaranteed(child).get(resource, 0))
                weight = self.specs[child].weight.get(resource, 0)
                claims.append(Claim(self.limited(child).get(resource, 0), base, weight, self.lends(child)))
            runtime[resource] = divide(total.get(resource, 0), claims)[siblings.index(name)]
        return runtime


@settings(max_examples=examples(60))
@given(histories(), gates, st.booleans(), st.booleans())
def test_books_after_any_events_are_those_of_the_rules_read_literally(
    history: list[object], switched: SchedulerGates, scales: bool, curious: bool
) -> None:
    configuration = ElasticQuotaArgs(enable_min_quota_scale=scales), switched
    manager, world = QuotaManager(*configuration), World()
    live(manager, world, history, curious=curious)
    literal = Literal(world, configuration)
    for name, spec in world.quotas.items():
        status = QuotaReports(manager).status_of(name)
        assert status.used == {r: a for r, a in literal.used(name).items() if a}
        assert status.request == {r: a for r, a in literal.request(name).items() if a}
        assert without_zeros(manager.forest.nodes[name].limited) == {
            r: a for r, a in literal.limited(name).items() if a
        }
        assert manager.runtime_of(name) == {r: a for r, a in literal.runtime(name).items() if r in spec.max}
        assert QuotaReports(manager).scaled_min_of(name) == literal.scaled_min(name)
        if switched.elastic_quota_guarantee_usage:
            assert status.guaranteed == {r: a for r, a in literal.guaranteed(name).items() if a}


@settings(max_examples=examples(60))
@given(histories(), gates)
def test_books_do_not_depend_on_the_way_to_the_present(history: list[object], switched: SchedulerGates) -> None:
    configuration = ElasticQuotaArgs(), switched
    manager, world = QuotaManager(*configuration), World()
    live(manager, world, history, curious=True)
    present = books(manager)
    assert present == books(built_from(world, configuration, backwards=False))
    assert present == books(built_from(world, configuration, backwards=True))
    assert present == books(loaded_from(world, configuration))


@settings(max_examples=examples(40))
@given(histories())
def test_every_fact_may_come_twice(history: list[object]) -> None:
    once, twice, world = QuotaManager(), QuotaManager(), World()
    for event in history:
        happen(once, world, event)
        happen(twice, world, event)
        happen(twice, world, event)
    assert books(once) == books(twice)


@st.composite
def steps_in_one_tree(draw: st.DrawFn) -> tuple[list[QuotaSpec], list[object]]:
    """Three leaves below a parent beside another quota, and small changes that rarely change everything."""
    specs: list[QuotaSpec] = []
    for name, parent in (("p", keys.ROOT_QUOTA), ("z", keys.ROOT_QUOTA), ("a", "p"), ("b", "p"), ("c", "p")):
        maximum = {"cpu": draw(st.integers(6, 30))}
        weight = {"cpu": draw(st.integers(0, 3))}
        lends = draw(st.sampled_from((True, True, False)))
        minimum = {"cpu": draw(st.integers(0, 6))}
        specs.append(QuotaSpec(name=name, parent=parent, min=minimum, max=maximum, weight=weight, allow_lent=lends))
    steps: list[object] = [NodeIs("node", {"cpu": draw(st.integers(0, 25))})]
    for _ in range(draw(st.integers(5, 20))):
        kind = draw(st.sampled_from(("asks", "asks", "running", "node")))
        if kind == "node":
            steps.append(NodeIs("node", {"cpu": draw(st.integers(0, 25))}))
            continue
        leaf = draw(st.sampled_from(("z", "a", "b", "c")))
        requests = {"cpu": draw(st.integers(0, 8))}
        facts = PodFacts(uid=f"of {leaf}", namespace="n", name=leaf, quota_label=leaf, requests=requests)
        steps.append((kind, facts))
    return specs, steps


@settings(max_examples=examples(150))
@given(steps_in_one_tree(), st.booleans(), st.booleans())
def test_kept_runtimes_are_those_of_a_fresh_division(
    given_steps: tuple[list[QuotaSpec], list[object]], guaranteed: bool, scales: bool
) -> None:
    specs, steps = given_steps
    gates = SchedulerGates(elastic_quota_guarantee_usage=guaranteed)
    configuration = ElasticQuotaArgs(enable_min_quota_scale=scales), gates
    manager, world = QuotaManager(*configuration), World()
    for spec in specs:
        happen(manager, world, spec)
    for step in steps:
        happen(manager, world, step)
        assert books(manager) == books(built_from(world, configuration, backwards=False))


claims = st.builds(Claim, st.integers(0, 50), st.integers(0, 30), st.integers(0, 7), st.booleans())


@given(st.integers(-10, 200), st.lists(claims, max_size=7))
def test_division_never_hands_out_more_than_there_is_beyond_the_bases(total: int, given_claims: list[Claim]) -> None:
    shares = divide(total, given_claims)
    firsts = [claim.first() for claim in given_claims]
    assert sum(shares) <= max(total, sum(firsts))
    for share, claim in zip(shares, given_claims, strict=True):
        assert claim.first() <= share <= max(claim.request, claim.first())
    if sum(claim.base for claim in given_claims) <= total:
        assert sum(shares) <= total
    hungry = [c for s, c in zip(shares, given_claims, strict=True) if s < c.request and c.request > c.base and c.weight]
    assert not hungry or sum(shares) >= total


@given(st.integers(1, 10**24), st.integers(1, 10**19), st.integers(1, 10**19))
def test_division_is_exact_for_amounts_of_any_size(total: int, one: int, other: int) -> None:
    shares = divide(total, [Claim(total, 0, one, True), Claim(total, 0, other, True)])
    assert sum(shares) == total
    assert abs(shares[0] * (one + other) - total * one) <= one + other
