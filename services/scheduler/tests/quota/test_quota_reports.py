"""What is said about quotas: the object's status, the explanation of a share."""

from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.reports import QuotaReports, quota_gauges
from koord_scheduler.domain.plugins.quota.specs import PodFacts
from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol import keys
from koordcore.protocol.quota import QuotaSpec
from koordcore.values import codec


def quota(name: str, minimum: int, weight: int, *, lent: bool = True) -> QuotaSpec:
    return QuotaSpec(
        name=name, namespace="ns", min={"cpu": minimum}, max={"cpu": 60_000}, weight={"cpu": weight}, allow_lent=lent
    )


def asks(name: str, cpu: int) -> PodFacts:
    return PodFacts(uid=f"of {name}", namespace="n", name=name, quota_label=name, requests={"cpu": cpu})


def lending_world() -> QuotaManager:
    manager = QuotaManager()
    manager.set_node("node", {"cpu": 60_000})
    for spec in (quota("a", 20_000, 3), quota("b", 10_000, 1), quota("c", 20_000, 1), quota("d", 0, 1)):
        manager.upsert_quota(spec)
    for facts in (asks("a", 50_000), asks("b", 14_000), asks("c", 5000), asks("d", 10_000)):
        manager.pod_seen(facts)
    return manager


def test_explanation_names_base_shares_and_what_was_given_back() -> None:
    reports = QuotaReports(lending_world())
    (a,), (b,), (c,) = (reports.explain(name).shares for name in "abc")
    assert (a.first, [part.offered for part in a.rounds], a.runtime) == (20_000, [15_000, 750], 35_750)
    assert [(part.left, part.weight, part.total_weight) for part in a.rounds] == [(25_000, 3, 5), (1000, 3, 4)]
    assert (b.rounds[0].offered, b.rounds[0].given_back, b.runtime) == (5000, 1000, 14_000)
    assert a.lenders == b.lenders == {"c": 15_000}
    assert a.borrowers == {"a": 15_750, "b": 4000, "d": 5250}
    assert (c.lent, c.borrowed, c.unclaimed, c.unused) == (15_000, 0, 10_000, 0)


def test_explanation_says_it_in_a_sentence() -> None:
    reports = QuotaReports(lending_world())
    assert reports.explain("a").shares[0].reason == (
        "asks for 50 and gets 35750m: its min 20 and 15750m more. What is left (15 of c, 10 beyond all mins) is "
        "divided by weight: it gets 15 of 25 (weight 3m of 5m); then 750m of 1 (weight 3m of 4m)"
    )
    assert reports.explain("c").shares[0].reason == "asks for 5, lends 15 of its min 20 to a, b, d"


def test_explanation_adds_up_to_the_runtime() -> None:
    manager = lending_world()
    for name in "abcd":
        explained = QuotaReports(manager).explain(name)
        share = explained.shares[0]
        assert share.first + sum(part.offered - part.given_back for part in share.rounds) == share.runtime
        assert explained.runtime == manager.runtime_of(name) == {"cpu": share.runtime}


def test_scaled_min_and_a_quota_that_does_not_lend_are_explained() -> None:
    manager = QuotaManager()
    manager.set_node("node", {"cpu": 6000})
    manager.upsert_quota(quota("a", 10_000, 1))
    manager.upsert_quota(quota("b", 10_000, 1, lent=False))
    manager.pod_seen(asks("a", 20_000))
    reports = QuotaReports(manager)
    assert reports.explain("a").shares[0].reason == (
        "asks for 20, gets its min 3 (of 10, scaled down to what the parent has) and nothing more: nothing is left"
    )
    assert reports.explain("b").scaled_min == {"cpu": 3000}


def test_root_system_and_default_quota_have_no_share_to_explain() -> None:
    reports = QuotaReports(lending_world())
    for name in (keys.ROOT_QUOTA, keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA):
        assert (reports.explain(name).runtime, reports.explain(name).shares) == (None, ())


def test_tree_is_explained_from_the_top() -> None:
    manager = lending_world()
    manager.upsert_quota(QuotaSpec(name="a2", parent="a", max={"cpu": 60_000}, weight={"cpu": 1}))
    manager.upsert_quota(QuotaSpec(name="a1", parent="a", max={"cpu": 60_000}, weight={"cpu": 1}))
    reports = QuotaReports(manager)
    explained = reports.explain_tree()
    names = [one.name for one in explained]
    assert names == ["a", "a1", "a2", "b", "c", "d", keys.DEFAULT_QUOTA, keys.SYSTEM_QUOTA]
    assert explained == [reports.explain(name) for name in names]
    assert reports.explain_tree("unknown") == []


def test_explanation_is_plain_data() -> None:
    explained = codec.decode(codec.encode(QuotaReports(lending_world()).explain("a")), dict[str, object])
    assert (explained["name"], explained["runtime"]) == ("a", {"cpu": 35_750})


def statuses(manager: QuotaManager) -> dict[str, QuotaStatusComputed]:
    return {name: QuotaReports(manager).status_of(name) for name in manager.names()}


def test_reservation_changes_only_the_statuses_above_the_pod() -> None:
    manager = lending_world()
    known = statuses(manager)
    assert statuses(manager) == known
    manager.reserve("of c")
    assert [name for name, status in statuses(manager).items() if status != known[name]] == ["c", keys.ROOT_QUOTA]


def test_gauges_tell_spec_and_status_by_resource() -> None:
    values = {(gauge.metric, gauge.name, gauge.field): gauge for gauge in quota_gauges(lending_world())}
    runtime = values["elastic_quota_status", "a", "runtime"]
    assert (runtime.resource, runtime.value, runtime.parent, runtime.is_parent) == (
        "cpu",
        35_750,
        keys.ROOT_QUOTA,
        False,
    )
    assert values["elastic_quota_spec", "a", "sharedWeight"].value == 3
    assert values["elastic_quota_status", "a", "used"].value == 0
    assert ("elastic_quota_status", keys.DEFAULT_QUOTA, "runtime") not in values
