"""The round: order of profiles and plugins, faults, budgets, dry run."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from koord_descheduler.domain.framework.eviction import EvictionLimiter, EvictionLimits, Result
from koord_descheduler.domain.framework.plugin import PluginFailed, PluginRun, SetSchedulable
from koord_descheduler.domain.framework.registry import PluginKind, registry_of
from koord_descheduler.domain.framework.round import Profile, run_round
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView
from koordcore.values.invalid import InvalidInput
from support.descheduler.views import node_view_from_json, pod_view_from_json


def pod(name: str, node: str) -> PodView:
    meta = {"name": name, "namespace": "d", "uid": f"u-{name}"}
    return pod_view_from_json({"metadata": meta, "spec": {"nodeName": node, "containers": [{"name": "c"}]}})


CLUSTER = ClusterView(
    now=0.0,
    nodes=tuple(node_view_from_json({"metadata": {"name": name}}) for name in ("a", "b")),
    pods=(pod("1", "a"), pod("2", "a"), pod("3", "b")),
)


@dataclass
class Plugin:
    """Evicts all pods of its nodes, notes its name, and fails if it is told so."""

    name: str
    log: list[str] = field(default_factory=list[str])
    error: Exception | None = None

    def deschedule(self, run: PluginRun) -> None:
        self._act(run)

    def balance(self, run: PluginRun) -> None:
        self._act(run)

    def _act(self, run: PluginRun) -> None:
        self.log.append(self.name)
        run.propose(SetSchedulable("a", schedulable=False, plugin=self.name))
        for node in run.nodes:
            for each in run.cluster.unfinished_on(node.name):
                if run.filter(each):
                    run.evict(each, "test")
        if self.error is not None:
            raise self.error


class Evictor:
    """Accepts all pods."""

    name = "evictor"

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        return True


def profile(name: str, log: list[str], **failing: Exception) -> Profile:
    def plugin(at: str) -> Plugin:
        return Plugin(f"{name}.{at}", log, failing.get(at))

    return Profile(name=name, deschedule=(plugin("d1"), plugin("d2")), balance=(plugin("b"),), evict=Evictor())


def run(*profiles: Profile, limits: EvictionLimits | None = None, **options: Any) -> Any:
    return run_round(profiles, CLUSTER, EvictionLimiter(limits or EvictionLimits()), **options)


def test_deschedule_plugins_of_all_profiles_run_before_balance_plugins() -> None:
    log: list[str] = []
    run(profile("p", log), profile("q", log))
    assert log == ["p.d1", "p.d2", "q.d1", "q.d2", "p.b", "q.b"]


@pytest.mark.parametrize("error", [PluginFailed("no"), ZeroDivisionError("no")])
def test_error_of_a_plugin_ends_the_round_after_its_siblings(error: Exception) -> None:
    log: list[str] = []
    outcome = run(profile("p", log, d1=error), profile("q", log))
    assert log == ["p.d1", "p.d2"]
    assert [(fault.plugin, fault.text[-2:]) for fault in outcome.faults] == [("p.d1", "no")]


def test_pod_is_evicted_once_per_round() -> None:
    outcome = run(profile("p", []), profile("q", []))
    assert [attempt.pod.name for attempt in outcome.attempts] == ["1", "2", "3"]


def test_refused_pod_is_offered_to_the_next_plugin_again() -> None:
    outcome = run(profile("p", []), limits=EvictionLimits(per_node=1))
    results = [(attempt.pod.name, attempt.result) for attempt in outcome.attempts]
    assert results == [
        ("1", Result.SUCCESS),
        ("2", Result.NODE_LIMIT),
        ("3", Result.SUCCESS),
        ("2", Result.NODE_LIMIT),
        ("2", Result.NODE_LIMIT),
    ]


def test_total_limit_that_refused_once_is_told_to_the_plugins_until_the_next_round() -> None:
    limiter = EvictionLimiter(EvictionLimits(total=2))
    run_round((profile("p", []),), CLUSTER, limiter)
    assert limiter.is_exhausted
    limiter.reset()
    assert not limiter.is_exhausted


def test_dry_run_counts_and_proposes_nothing() -> None:
    outcome = run(profile("p", []), is_dry_run=True)
    assert {attempt.result for attempt in outcome.attempts} == {Result.DRY_RUN}
    assert outcome.proposals == []


def test_dry_run_of_the_evict_plugin_counts_and_asks_it_for_nothing() -> None:
    class InDryRun(Evictor):
        is_dry_run = True

        def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
            raise AssertionError(pod)

    outcome = run(replace(profile("p", []), evict=InDryRun()), limits=EvictionLimits(total=2))
    results = [attempt.result for attempt in outcome.attempts[:3]]
    assert results == [Result.DRY_RUN, Result.DRY_RUN, Result.TOTAL_LIMIT]


def test_plugin_in_dry_run_leaves_budgets_and_pods_to_the_others() -> None:
    class Trying(Plugin):
        def deschedule(self, run: PluginRun) -> None:
            for pod in (*CLUSTER.pods, *CLUSTER.pods):
                run.try_evict(pod, "try")

    known = profile("p", [])
    outcome = run(replace(known, deschedule=(Trying("t", []), *known.deschedule)), limits=EvictionLimits(total=3))
    tried, done = outcome.attempts[:3], outcome.attempts[3:]
    assert {(each.plugin, each.result, each.is_move) for each in tried} == {("t", Result.DRY_RUN, False)}
    assert [each.pod.name for each in done if each.is_move] == ["1", "2", "3"]


def test_budgets_stay_when_the_cluster_is_too_small() -> None:
    limiter = EvictionLimiter(EvictionLimits())
    limiter.count("a", "d")
    one = ClusterView(now=0.0, nodes=CLUSTER.nodes[:1], pods=())
    with pytest.raises(InvalidInput, match="cluster size is 0 or 1"):
        run_round((), one, limiter)
    assert limiter.total == 1


def test_name_used_twice_is_refused() -> None:
    kinds: list[PluginKind] = [*BUILT_IN.values(), BUILT_IN["PodLifeTime"]]
    with pytest.raises(InvalidInput, match="PodLifeTime"):
        registry_of(kinds)
