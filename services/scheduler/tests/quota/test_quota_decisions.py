"""What quotas refuse, take back and leave to preemption; when a refused pod is worth another try."""

from collections.abc import Mapping

import msgspec
import pytest
from koord_scheduler.domain.config.koordinator_args import ElasticQuotaArgs
from koord_scheduler.domain.plugins.quota.admission import Admission, Check
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.overuse import OveruseClock
from koord_scheduler.domain.plugins.quota.specs import PodFacts
from koordcore.protocol import keys
from koordcore.protocol.quota import QuotaSpec
from koordcore.values.quantity import of_milli
from support.reachable import container_sizes

GI = 1 << 30
MAX = {"cpu": 10_000, "memory": 16 * GI}


def quota(
    name: str,
    parent: str = keys.ROOT_QUOTA,
    high: Mapping[str, int] = MAX,
    low: Mapping[str, int] | None = None,
) -> QuotaSpec:
    return QuotaSpec(name=name, parent=parent, min=low or {}, max=high, weight=high)


def pod(
    uid: str,
    label: str = "q",
    cpu: int = 1000,
    memory: int = 0,
    *,
    priority: int = 0,
    preemptible: bool = True,
    start_time: float | None = None,
) -> PodFacts:
    requests = {"cpu": cpu, "memory": memory} if memory else {"cpu": cpu}
    return PodFacts(
        uid=uid,
        namespace="n",
        name=uid,
        quota_label=label,
        requests=requests,
        priority=priority,
        preemptible=preemptible,
        start_time=start_time,
    )


def manager_with(*specs: QuotaSpec, settings: ElasticQuotaArgs | None = None, cpu: int = 100_000) -> QuotaManager:
    manager = QuotaManager(settings)
    manager.set_node("node", {"cpu": cpu, "memory": 100 * GI})
    for spec in specs:
        manager.upsert_quota(spec)
    return manager


def submit(manager: QuotaManager, facts: PodFacts) -> Admission:
    manager.pod_seen(facts)
    answer = manager.admit(facts)
    if answer.admitted:
        manager.reserve(facts.uid)
    return answer


def test_pods_are_admitted_until_the_runtime_is_used_up() -> None:
    manager = manager_with(quota("q"))
    answers = [submit(manager, pod(str(number), cpu=4000)) for number in range(3)]
    assert [answer.admitted for answer in answers] == [True, True, False]
    assert answers[2] == Admission(
        False,
        "q",
        Check.QUOTA,
        ("cpu",),
        "Insufficient quotas, quotaName: q, runtime: cpu:10,memory:0, used: cpu:8, pod's request: cpu:4, "
        "exceedDimensions: [cpu]",
    )


def test_nothing_used_is_written_as_empty() -> None:
    manager = manager_with(quota("q"))
    assert (
        "used: <empty>, pod's request: cpu:11,memory:1Gi," in submit(manager, pod("1", cpu=11_000, memory=GI)).message
    )


def test_quota_over_its_runtime_in_memory_refuses_pods_that_ask_for_cpu_only() -> None:
    manager = manager_with(quota("q"))
    submit(manager, pod("1", cpu=1, memory=10 * GI))
    manager.upsert_quota(quota("q", high={"cpu": 10_000, "memory": 8 * GI}))
    answer = submit(manager, pod("2", cpu=1))
    assert (answer.admitted, answer.exceeded) == (False, ("memory",))


def test_non_preemptible_pods_fit_into_min() -> None:
    manager = manager_with(quota("q", low={"cpu": 3000}))
    assert submit(manager, pod("1", cpu=2000, preemptible=False)).admitted
    answer = submit(manager, pod("2", cpu=2000, preemptible=False))
    assert answer.check is Check.NON_PREEMPTIBLE
    assert answer.message == (
        "Insufficient non-preemptible quotas, quotaName: q, min: cpu:3, nonPreemptibleUsed: cpu:2, "
        "pod's request: cpu:2, exceedDimensions: [cpu]"
    )
    assert submit(manager, pod("3", cpu=2000)).admitted


def test_ancestors_are_asked_when_told_to_and_only_about_what_the_pod_requests() -> None:
    settings = ElasticQuotaArgs(enable_check_parent_quota=True, enable_runtime_quota=False)
    specs = (quota("top", high={"cpu": 3000, "memory": GI}), quota("q", "top"), quota("other", "top"))
    manager = manager_with(*specs, settings=settings)
    manager.pod_seen(pod("full", "other", cpu=2000, memory=2 * GI), assigned=True)
    assert submit(manager, pod("1", cpu=1000)).admitted
    answer = submit(manager, pod("2", cpu=1000))
    assert (answer.check, answer.quota, answer.exceeded) == (Check.PARENT, "top", ("cpu",))
    assert answer.message == (
        "Insufficient quotas, quotaNameTopo: [top q], runtime: cpu:3,memory:1Gi, used: cpu:3,memory:2Gi, "
        "pod's request: cpu:1, exceedDimensions: [cpu]"
    )


@pytest.mark.parametrize("asked", [True, False])
def test_full_ancestor_refuses_only_when_asked(asked: bool) -> None:
    settings = ElasticQuotaArgs(enable_check_parent_quota=asked, enable_runtime_quota=False)
    manager = manager_with(quota("top", high={"cpu": 500}), quota("q", "top"), settings=settings)
    manager.pod_seen(pod("1", "top", cpu=500), assigned=True)
    assert submit(manager, pod("2", cpu=1)).admitted is not asked


def test_default_quota_is_limited_by_its_max_only_without_runtime_quota() -> None:
    limited = ElasticQuotaArgs(enable_runtime_quota=False, default_quota_group_max={"cpu": of_milli(500)})
    facts = pod("1", label="")
    assert manager_with().admit(facts) == Admission(True, keys.DEFAULT_QUOTA)
    assert manager_with(settings=limited).admit(facts).exceeded == ("cpu",)


def test_clock_of_overuse_runs_only_while_the_quota_is_over() -> None:
    clock = OveruseClock(120.0)
    assert clock.observe(0.0, ["q"]) == []
    assert clock.observe(120.0, ["q"]) == [], "longer than, not as long as"
    assert clock.observe(121.0, ["q"]) == ["q"]
    assert clock.observe(240.0, ["q"]) == [], "it started again"
    assert clock.observe(242.0, ["q"]) == ["q"]
    assert clock.observe(243.0, []) == []
    assert clock.observe(400.0, ["q"]) == [], "the interruption counts"


REVOKING = ElasticQuotaArgs(monitor_all_quotas=True, delay_evict_time=10.0)


def test_deleted_pods_that_were_to_end_later_are_forgotten_although_no_time_passes() -> None:
    manager = manager_with(quota("q"))
    ending = msgspec.structs.replace(pod("kept"), ignored_at=50.0)
    manager.pod_seen(ending)
    for number in range(5_000):
        manager.pod_seen(msgspec.structs.replace(pod(f"p{number}"), ignored_at=100.0 + number))
        manager.pod_gone(f"p{number}")
    assert container_sizes(manager)["._terminating"] <= 1024
    assert manager.expire(60.0) == ["kept"]


def test_quotas_whose_parents_form_a_cycle_are_below_the_root_until_the_cycle_ends() -> None:
    manager = manager_with(quota("a", "b"), quota("b", "c"), quota("c", "a"), quota("below", "a"), quota("own", "own"))

    def parents() -> dict[str, str]:
        found = ((name, manager.forest.nodes[name].parent) for name in ("a", "b", "c", "below", "own"))
        return {name: parent.name for name, parent in found if parent is not None}

    root = keys.ROOT_QUOTA
    assert parents() == {"a": root, "b": root, "c": root, "below": "a", "own": root}
    assert submit(manager, pod("p", "below")).admitted
    manager.upsert_quota(quota("c", root))
    assert parents() == {"a": "b", "b": "c", "c": root, "below": "a", "own": root}


def test_overuse_is_revoked_after_the_delay_least_important_and_youngest_first() -> None:
    manager = manager_with(quota("q"), settings=REVOKING)
    for facts in (
        pod("important", cpu=4000, priority=9, start_time=3.0),
        pod("older", cpu=2000, start_time=1.0),
        pod("younger", cpu=2000, start_time=2.0),
        pod("kept", cpu=2000, preemptible=False),
    ):
        assert submit(manager, facts).admitted
    assert manager.revoke(0.0) == {}
    manager.set_node("node", {"cpu": 8000, "memory": 100 * GI})
    assert manager.overused() == ["q"]
    assert manager.revoke(1.0) == {}
    assert manager.revoke(12.0) == {"q": ["younger"]}
    assert manager.revoke(13.0) == {}


@pytest.mark.parametrize(
    "settings", [ElasticQuotaArgs(), ElasticQuotaArgs(monitor_all_quotas=True, enable_runtime_quota=False)]
)
def test_overuse_is_revoked_only_when_told_to_and_with_runtime_quota(settings: ElasticQuotaArgs) -> None:
    manager = manager_with(quota("q"), settings=settings)
    submit(manager, pod("1"))
    manager.remove_node("node")
    manager.set_node("node", {"cpu": 0})
    assert manager.revoke(0.0) == manager.revoke(1000.0) == {}


def test_own_pods_of_a_parent_answer_for_what_the_whole_quota_uses() -> None:
    manager = manager_with(quota("p"), quota("q", "p"))
    manager.pod_seen(pod("own", "p", cpu=4000), assigned=True)
    manager.pod_seen(pod("below", "q", cpu=8000), assigned=True)
    assert manager.pods_to_revoke("p") == ["own"]


def test_victims_of_quota_preemption_are_less_important_preemptible_and_of_the_same_quota() -> None:
    manager = manager_with(quota("q"), quota("other"))
    for facts in (
        pod("low", priority=1),
        pod("equal", priority=5),
        pod("spared", priority=1, preemptible=False),
        pod("elsewhere", "other", priority=1),
    ):
        submit(manager, facts)
    preemptor = pod("me", priority=5)
    victims = [uid for uid in ("low", "equal", "spared", "elsewhere", "unknown") if manager.may_preempt(preemptor, uid)]
    assert victims == ["low"]


@pytest.mark.parametrize("spared", [True, False])
def test_default_quota_is_spared_from_preemption_as_configured(spared: bool) -> None:
    manager = manager_with(settings=ElasticQuotaArgs(disable_default_quota_preemption=spared))
    submit(manager, pod("low", "", priority=1))
    assert manager.may_preempt(pod("me", "", priority=5), "low") is not spared


def test_room_of_a_quota_tries_victims_without_changing_it() -> None:
    manager = manager_with(quota("q"), quota("other"))
    submit(manager, pod("1", cpu=9000))
    submit(manager, pod("2", "other", cpu=9000))
    me = pod("me", cpu=2000)
    manager.pod_seen(me)
    room = manager.room_for(me)
    assert not room.fits()
    room.take("2")
    assert not room.fits()
    room.take("1")
    assert room.fits()
    room.put_back("1")
    assert not room.fits()
    assert not manager.admit(me).admitted


def test_more_nodes_do_not_help_beyond_the_max_of_an_ancestor() -> None:
    top = quota("top", high={"cpu": 8000, "memory": 80 * GI})
    manager = manager_with(top, quota("q", parent="top"), quota("r", parent="top"), cpu=4000)
    assert submit(manager, pod("1", "q", cpu=3000)).admitted
    second, third = pod("2", "q", cpu=4000), pod("3", "r", cpu=6000)
    assert not submit(manager, second).admitted
    assert not submit(manager, third).admitted
    assert [manager.more_nodes_help(each) for each in (second, third)] == [True, False]
