"""Kills for lack of memory become facts, and times in the usage report."""

from dataclasses import replace
from typing import Any

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Sample, SeriesStore
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json, agent_pod_of_ledger
from koord_agent.domain.node.policies import CollectPolicy
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.reporting.oom_kills import OOM_CONTROL, OomKills, oom_kill_count
from koord_agent.domain.reporting.report import node_report, usage_reported
from koord_agent.simulator.host import SimulatedFleet, starts_after
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.node_ledger import PodOnNode
from koordcore.events.nodestate import ContainersOomKilled
from koordcore.events.observation import Usage
from koordcore.protocol.qos import KubeQos
from support.agent.simulated import simulated_agent

AT_MS = 1_784_894_400_000
AT = "2026-07-24T12:00:00.000000Z"


def pod(*, container_id: str = "containerd://2", ended: dict[str, Any] | None = None, now: bool = False) -> AgentPod:
    state = {"terminated": ended}
    status: dict[str, Any] = {
        "name": "main",
        "containerID": container_id,
        "state": state if now else {"running": {}},
        "lastState": {} if now else state,
    }
    return agent_pod_from_json(
        {
            "metadata": {"uid": "u", "namespace": "shop", "name": "web"},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}]},
            "status": {"phase": "Running", "containerStatuses": [status]},
        }
    )


def oom(container_id: str = "containerd://1", reason: str = "OOMKilled") -> dict[str, Any]:
    return {"reason": reason, "finishedAt": AT, "containerID": container_id, "exitCode": 137}


def test_counter_is_read_from_the_texts_of_both_versions() -> None:
    assert oom_kill_count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n") == 3
    assert oom_kill_count("low 0\nhigh 0\nmax 9\noom 4\noom_kill 2\noom_group_kill 0\n") == 2
    assert oom_kill_count("oom_kill_disable 0\nunder_oom 0\n") is None
    assert oom_kill_count(None) is None


def test_kill_that_the_counter_shows_is_one_fact_with_the_limit() -> None:
    kills = OomKills()
    assert kills.look([pod()], {"containerd://2": 5}, AT_MS - 10_000) == ()
    (fact,) = kills.look([pod()], {"containerd://2": 7}, AT_MS)
    (kill,) = fact.kills
    assert (kill.uid, kill.container, kill.at, kill.limit_bytes, kill.kills) == ("u", "main", AT, 64 << 20, 2)
    assert kills.look([pod()], {"containerd://2": 7}, AT_MS + 10_000) == ()
    assert kills.last() == {"u": {"main": AT}}


def test_end_of_a_container_that_the_kubelet_tells_is_one_fact() -> None:
    for after in (pod(ended=oom()), pod(container_id="containerd://1", ended=oom(), now=True)):
        kills = OomKills()
        kills.look([pod(container_id="containerd://1")], {}, AT_MS - 10_000)
        (fact,) = kills.look([after], {}, AT_MS + 10_000)
        assert [kill.at for kill in fact.kills] == [AT]
        assert kills.look([after], {}, AT_MS + 20_000) == ()


def test_kill_that_both_sources_show_counts_once() -> None:
    kills, before = OomKills(), pod(container_id="containerd://1")
    kills.look([before], {"containerd://1": 0}, AT_MS - 10_000)
    assert kills.look([before], {"containerd://1": 1}, AT_MS)
    ended = pod(container_id="containerd://1", ended=oom(), now=True)
    assert kills.look([ended], {}, AT_MS + 10_000) == ()
    assert kills.look([pod(ended=oom())], {"containerd://2": 0}, AT_MS + 20_000) == ()


def test_kill_before_the_first_look_is_reported_and_no_fact() -> None:
    kills = OomKills()
    assert kills.look([pod(ended=oom())], {"containerd://2": 0}, AT_MS + 60_000) == ()
    assert kills.last() == {"u": {"main": AT}}


def test_other_ends_are_no_kills_and_an_ended_pod_is_forgotten() -> None:
    kills = OomKills()
    kills.look([], {}, AT_MS - 10_000)
    assert kills.look([pod(ended=oom(reason="Error"))], {}, AT_MS) == ()
    assert kills.look([pod(ended=oom())], {}, AT_MS + 10_000)
    kills.forget(["u"])
    assert kills.last() == {}


def test_report_tells_the_kill_of_a_single_container_with_its_pod() -> None:
    store = SeriesStore()
    store.append_all([Sample(Kind.POD_CPU, AT_MS, 0.5, "u"), Sample(Kind.POD_MEMORY, AT_MS, 1 << 20, "u")])
    report = node_report(store, now_ms=AT_MS, policy=CollectPolicy(), pods=[pod().reported])
    (without,) = usage_reported(report, updated_at=AT, be_quota_us=-1).pods
    assert (without.containers, without.oom_killed_at) == ([], "")
    (killed,) = usage_reported(report, updated_at=AT, be_quota_us=-1, oom_kills={"u": {"main": AT}}).pods
    assert (killed.containers, killed.oom_killed_at, killed.usage) == ([], AT, without.usage)


def test_report_lists_containers_that_were_killed_before_they_were_measured() -> None:
    store = SeriesStore()
    samples = [Sample(Kind.POD_CPU, AT_MS, 0.5, "u"), Sample(Kind.POD_MEMORY, AT_MS, 1 << 20, "u")]
    samples += [Sample(Kind.CONTAINER_CPU, AT_MS, 0.5, "c://a"), Sample(Kind.CONTAINER_MEMORY, AT_MS, 1 << 20, "c://a")]
    store.append_all(samples)
    two = replace(pod().reported, containers=(("a", "c://a"), ("b", "c://b")))
    report = node_report(store, now_ms=AT_MS, policy=CollectPolicy(), pods=[two])
    (told,) = usage_reported(report, updated_at=AT, be_quota_us=-1, oom_kills={"u": {"b": AT}}).pods
    assert [(each.name, each.usage, each.oom_killed_at) for each in told.containers] == [
        ("a", Usage(500, 1 << 20), ""),
        ("b", Usage(), AT),
    ]
    assert told.oom_killed_at == ""


def on_node(uid: str, **fields: Any) -> PodOnNode:
    basis: dict[str, Any] = {"requests": {}, "qos": "LS", "kube_qos": "Burstable", "priority_class": "koord-prod"}
    return PodOnNode(uid=uid, namespace="shop", name=uid, **{**basis, **fields})


def test_pod_whose_containers_are_unknown_has_the_kills_of_its_own_cgroup() -> None:
    bare = agent_pod_of_ledger(on_node("u"))
    kills = OomKills()
    assert kills.look([bare], {"u": 1}, AT_MS - 10_000) == ()
    (fact,) = kills.look([bare], {"u": 2}, AT_MS)
    assert [(kill.name, kill.container, kill.kills) for kill in fact.kills] == [("u", "", 1)]
    assert kills.last() == {"u": {"": AT}}


def test_kills_before_the_containers_of_a_pod_were_known_are_no_facts() -> None:
    """After a start, the kubelet may list its pods later than the first look."""
    kills, listed = OomKills(), pod(ended=oom())
    unknown = agent_pod_of_ledger(on_node("u"))
    assert kills.look([], {}, AT_MS + 10_000) == ()
    assert kills.look([unknown], {}, AT_MS + 20_000) == ()
    assert kills.look([listed], {"containerd://2": 5}, AT_MS + 30_000) == ()
    assert kills.last() == {"u": {"main": AT}}
    (fact,) = kills.look([listed], {"containerd://2": 6}, AT_MS + 40_000)
    assert [kill.kills for kill in fact.kills] == [1]
    restarted = pod(container_id="containerd://3", ended=oom())
    (fact,) = kills.look([restarted], {"containerd://3": 1}, AT_MS + 50_000)
    assert [kill.kills for kill in fact.kills] == [1], "the container has begun since the last look"


def test_agent_publishes_kills_and_reports_the_last_one() -> None:
    amounts = {"memory": 64 << 20}
    greedy = on_node("u", requests=amounts, limits=amounts, usage_profile='{"profile": "constant", "memory": 2.0}')
    fleet, agent = simulated_agent({"u": agent_pod_of_ledger(greedy)})
    facts: list[ContainersOomKilled] = []
    for second in range(1, 41):
        fleet.advance(float(second))
        cycle = agent.run_cycle(AT_MS + second * 1_000)
        facts += [fact for fact in cycle.facts if isinstance(fact, ContainersOomKilled)]
    assert [(kill.uid, kill.limit_bytes) for fact in facts for kill in fact.kills] == [("u", 64 << 20)] * len(facts)
    assert len(facts) == 2, "restarts after 10 and 30 s"
    report = agent.report(AT_MS + 40_000, lambda ms: str(ms))
    assert report is not None
    assert [each.oom_killed_at for each in report.pods] == [facts[-1].kills[0].at]


def test_simulated_pod_above_its_limit_is_killed_at_each_restart() -> None:
    assert [starts_after(at) for at in (0, 9, 10, 29, 30, 310, 609, 610, 910)] == [1, 1, 2, 2, 3, 6, 6, 7, 8]
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=4_000, memory_bytes=1 << 30)])
    host = fleet.host("n")
    amounts = {"memory": 64 << 20}
    profile = '{"profile": "constant", "memory": 2.0}'
    for uid, limits in (("small", amounts), ("large", {"memory": 256 << 20}), ("free", {})):
        host.start_pod(agent_pod_of_ledger(on_node(uid, requests=amounts, limits=limits, usage_profile=profile)))
    fleet.advance(15.0)
    counts = {
        uid: oom_kill_count(host.read(CgroupFile(host.layout.pod_directory(KubeQos.BURSTABLE, uid), OOM_CONTROL)))
        for uid in ("small", "large", "free")
    }
    assert counts == {"small": 2, "large": 0, "free": 0}
