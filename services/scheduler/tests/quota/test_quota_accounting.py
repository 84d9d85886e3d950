"""Sums, totals, trees and runtimes of quotas, one claim at a time."""

from collections.abc import Mapping

from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.reports import QuotaReports
from koord_scheduler.domain.plugins.quota.specs import PodFacts
from koordcore.protocol import keys
from koordcore.protocol.quota import QuotaSpec

BIG = {"cpu": 1_000_000, "memory": 1_000_000}


def quota(
    name: str,
    parent: str = keys.ROOT_QUOTA,
    low: Mapping[str, int] | None = None,
    high: Mapping[str, int] | None = None,
    *,
    tree: str = "",
    total: Mapping[str, int] | None = None,
    ignored: bool = False,
    lent: bool = True,
) -> QuotaSpec:
    upper = high or BIG
    return QuotaSpec(
        name=name,
        parent=parent,
        min=low or {},
        max=upper,
        weight=upper,
        tree_id=tree,
        is_root=total is not None,
        tree_total=total,
        ignore_default_tree=ignored,
        allow_lent=lent,
    )


def pod(
    uid: str, label: str, requests: Mapping[str, int] | None = None, *, ignored_at: float | None = None
) -> PodFacts:
    asked = requests if requests is not None else {"cpu": 1000}
    return PodFacts(uid=uid, namespace="n", name=uid, quota_label=label, requests=asked, ignored_at=ignored_at)


def manager_with(*specs: QuotaSpec, cpu: int = 100_000, gates: SchedulerGates | None = None) -> QuotaManager:
    manager = QuotaManager(gates=gates)
    manager.set_node("node", {"cpu": cpu, "memory": 100_000})
    for spec in specs:
        manager.upsert_quota(spec)
    return manager


def used(manager: QuotaManager, name: str) -> Mapping[str, int]:
    return QuotaReports(manager).status_of(name).used


def test_use_moves_up_in_full_and_request_only_up_to_max() -> None:
    manager = manager_with(quota("p"), quota("c", "p", high={"cpu": 1500}))
    for uid in ("1", "2"):
        manager.pod_seen(pod(uid, "c"), assigned=True)
    status = QuotaReports(manager).status_of("p")
    assert (status.used, status.child_request) == ({"cpu": 2000}, {"cpu": 1500})
    assert used(manager, keys.ROOT_QUOTA) == {"cpu": 2000}


def test_resources_that_max_does_not_name_are_not_counted() -> None:
    manager = manager_with(quota("q", high={"cpu": 5000}))
    manager.pod_seen(pod("1", "q", {"cpu": 1000, "memory": 5}), assigned=True)
    assert used(manager, "q") == {"cpu": 1000}
    manager.upsert_quota(quota("q", high={"cpu": 5000, "memory": 50}))
    assert used(manager, "q") == {"cpu": 1000, "memory": 5}


def test_reserve_and_unreserve_are_counted_once_each() -> None:
    manager = manager_with(quota("q"))
    manager.pod_seen(pod("1", "q"))
    manager.reserve("1")
    manager.reserve("1")
    assert used(manager, "q") == {"cpu": 1000}
    manager.unreserve("1")
    manager.unreserve("1")
    manager.unreserve("never seen")
    assert used(manager, "q") == {}
    assert QuotaReports(manager).status_of("q").request == {"cpu": 1000}


def test_terminating_pod_counts_until_its_time_has_come() -> None:
    manager = manager_with(quota("q"))
    manager.pod_seen(pod("1", "q"), assigned=True)
    manager.pod_seen(pod("1", "q", ignored_at=50.0))
    assert manager.expire(49.0) == []
    assert used(manager, "q") == {"cpu": 1000}
    assert manager.expire(50.0) == ["1"]
    assert used(manager, "q") == {}
    assert manager.expire(60.0) == []


def test_terminating_pod_with_the_immediate_gate_counts_no_more() -> None:
    manager = manager_with(quota("q"))
    manager.pod_seen(pod("1", "q"), assigned=True)
    manager.pod_seen(pod("1", "q", ignored_at=0.0))
    assert used(manager, "q") == {}


def test_reserving_pods_of_system_and_default_takes_from_what_is_divided() -> None:
    manager = manager_with(quota("a", low={"cpu": 60_000}), quota("b", low={"cpu": 40_000}))
    manager.pod_seen(pod("a1", "a", {"cpu": 90_000}))
    manager.pod_seen(pod("b1", "b", {"cpu": 90_000}))
    manager.pod_seen(pod("1", "", {"cpu": 30_000}))
    manager.pod_seen(pod("2", keys.SYSTEM_QUOTA, {"cpu": 20_000}))
    assert manager.runtime_of("a")["cpu"] + manager.runtime_of("b")["cpu"] == 100_000
    manager.reserve("1")
    assert manager.runtime_of("a")["cpu"] + manager.runtime_of("b")["cpu"] == 70_000
    manager.reserve("2")
    assert (manager.runtime_of("a")["cpu"], manager.runtime_of("b")["cpu"]) == (30_000, 20_000)
    assert manager.runtime_of(keys.DEFAULT_QUOTA) == {}


def test_total_below_zero_gives_nobody_anything() -> None:
    manager = manager_with(quota("a", low={"cpu": 60_000}), cpu=10_000)
    manager.pod_seen(pod("a1", "a", {"cpu": 90_000}))
    manager.pod_seen(pod("1", "", {"cpu": 30_000}), assigned=True)
    assert manager.total_of()["cpu"] == -20_000
    assert manager.runtime_of("a")["cpu"] == 0


def test_default_quota_takes_no_part_in_the_division_however_large_its_request() -> None:
    manager = manager_with(quota("a"), quota("b"))
    manager.pod_seen(pod("1", "", {"cpu": 10**9}))
    manager.pod_seen(pod("2", "a", {"cpu": 90_000}))
    assert manager.runtime_of("a")["cpu"] == 90_000


def test_node_that_goes_takes_its_resources_with_it() -> None:
    manager = manager_with(quota("a", low={"cpu": 10_000, "gpu": 4}, high={"cpu": 50_000, "gpu": 8}))
    manager.set_node("gpus", {"gpu": 2})
    manager.pod_seen(pod("1", "a", {"cpu": 50_000, "gpu": 8}))
    assert manager.runtime_of("a") == {"cpu": 50_000, "gpu": 2}
    manager.remove_node("gpus")
    manager.remove_node("gpus")
    assert manager.runtime_of("a") == {"cpu": 50_000, "gpu": 4}, "a resource that no node names is not scaled down"


def test_children_wait_below_the_root_until_their_parent_comes() -> None:
    manager = manager_with()
    assert "p cannot be its parent" in manager.upsert_quota(quota("c", "p")).warnings[0]
    manager.pod_seen(pod("1", "c"), assigned=True)
    manager.upsert_quota(quota("p"))
    assert used(manager, "p") == {"cpu": 1000}
    manager.delete_quota("p")
    assert used(manager, keys.ROOT_QUOTA) == {"cpu": 1000}


def test_quotas_that_are_each_others_parents_count_below_the_root() -> None:
    manager = manager_with(quota("a", "b"), quota("b", "c"), quota("c", "a"))
    manager.pod_seen(pod("1", "a"), assigned=True)
    assert used(manager, "b") == {}
    manager.upsert_quota(quota("c"))
    assert used(manager, "b") == used(manager, "c") == {"cpu": 1000}


def test_quota_whose_parent_does_not_name_a_resource_is_warned_about_and_unlimited_in_it() -> None:
    manager = manager_with(quota("p", high={"cpu": 5000}))
    change = manager.upsert_quota(quota("c", "p", high={"cpu": 5000, "gpu": 1}))
    assert change.warnings == ("quota c: max names gpu, but that of its parent p does not: unlimited",)
    assert "gpu" not in manager.runtime_of("c")
    assert manager.admit(pod("1", "c", {"gpu": 100})).admitted


def test_trees_divide_their_own_total_and_leave_the_rest_to_the_default_tree() -> None:
    gates = SchedulerGates(multi_quota_tree=True)
    root, leaf, other = quota("t", tree="x", total={"cpu": 30_000}), quota("leaf", "t", tree="x"), quota("other")
    manager = manager_with(root, leaf, other, gates=gates)
    manager.pod_seen(pod("1", "leaf", {"cpu": 90_000}))
    manager.pod_seen(pod("2", "other", {"cpu": 90_000}))
    assert (manager.runtime_of("leaf")["cpu"], manager.runtime_of("other")["cpu"]) == (30_000, 70_000)
    manager.upsert_quota(quota("t", tree="x", total={"cpu": 30_000}, ignored=True))
    assert manager.runtime_of("other")["cpu"] == 90_000
    manager.upsert_quota(quota("t", tree="x", total={"cpu": 50_000}))
    assert (manager.runtime_of("leaf")["cpu"], manager.runtime_of("other")["cpu"]) == (50_000, 50_000)
    manager.delete_quota("t")
    assert manager.runtime_of("other")["cpu"] == 90_000


def test_tree_ids_mean_nothing_without_their_gate() -> None:
    manager = manager_with(quota("t", tree="x", total={"cpu": 1}), quota("leaf", "t", tree="y"))
    manager.pod_seen(pod("1", "leaf", {"cpu": 60_000}))
    assert manager.runtime_of("leaf")["cpu"] == 60_000


def test_what_is_in_use_is_safe_from_siblings_in_guarantee_mode() -> None:
    gates = SchedulerGates(elastic_quota_guarantee_usage=True)
    manager = manager_with(quota("a"), quota("b"), gates=gates)
    manager.pod_seen(pod("1", "a", {"cpu": 80_000}))
    manager.reserve("1")
    manager.pod_seen(pod("2", "b", {"cpu": 100_000}))
    assert (manager.runtime_of("a")["cpu"], manager.runtime_of("b")["cpu"]) == (80_000, 20_000)
    manager.pod_gone("1")
    assert manager.runtime_of("b")["cpu"] == 100_000


def test_own_pods_of_a_parent_count_beside_its_children() -> None:
    manager = manager_with(quota("p"), quota("c", "p"), gates=SchedulerGates(support_parent_quota_submit_pod=True))
    manager.pod_seen(pod("1", "p"), assigned=True)
    manager.pod_seen(pod("2", "c", {"cpu": 500}), assigned=True)
    document = QuotaReports(manager).document("p", include_pods=True)
    assert (document["used"], document["selfUsed"]) == ({"cpu": "1500m"}, {"cpu": "1"})
    assert document["podCache"] == {"n/1": {"isAssigned": True, "resource": {"cpu": "1"}}}
    assert sorted(QuotaReports(manager).documents()) == ["c", keys.DEFAULT_QUOTA, keys.SYSTEM_QUOTA, "p"]


def test_min_is_scaled_to_the_total_of_the_moment_also_for_quotas_that_nothing_happened_to() -> None:
    manager = manager_with(quota("a", low={"cpu": 10_000}), quota("b", low={"cpu": 10_000}))
    manager.pod_seen(pod("a1", "a", {"cpu": 3000}))
    manager.pod_seen(pod("b1", "b", {"cpu": 8000}))
    assert manager.runtime_of("b")["cpu"] == 8000
    manager.set_node("node", {"cpu": 12_000})
    assert manager.runtime_of("b")["cpu"] == 8000
    manager.pod_seen(pod("a2", "a", {"cpu": 30_000}))
    assert (manager.runtime_of("a")["cpu"], manager.runtime_of("b")["cpu"]) == (6000, 6000)
