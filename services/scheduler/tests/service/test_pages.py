"""What a scheduler shows of itself: debug pages, flags that change while it runs, figures."""

from typing import Any

import httpx
import pytest
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.loop.cycle.deciding import decide_next
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.shell.collectors import NodeCounts, StateFigures
from koord_scheduler.shell.debugging import DebugFlags, DecisionLog, score_table
from koord_scheduler.shell.monitoring import Monitor
from koord_scheduler.shell.observing import SchedulerMetrics
from koord_scheduler.shell.routes import routes
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.pod import NodeScore
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.service.clock import SystemClock
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod


class Lines:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, /, **fields: object) -> None:
        self.lines.append((event, fields))

    info = warning = error = debug

    def bind(self, **_: object) -> "Lines":
        return self


def decision_log(frameworks: Frameworks, flags: DebugFlags | None = None, size: int = 10) -> tuple[DecisionLog, Lines]:
    lines = Lines()
    log = DecisionLog(
        flags or DebugFlags(), frameworks, lines, queue_size=size, set_level=lambda level: lines.info(level)
    )
    return log, lines


def client(state: SchedulerState, *, leads: bool = True, log: DecisionLog | None = None) -> httpx.AsyncClient:
    pages = routes(
        state,
        configuration={"kind": "KubeSchedulerConfiguration"},
        decision_log=log or decision_log(state.frameworks)[0],
        is_leader=lambda: leads,
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(Starlette(routes=pages)), base_url="http://scheduler")


def cluster() -> Scheduler:
    """A node with a pod of quota `a`, and a gang of which one member is missing."""
    log = SmallLog()
    log.add_node(node("n"))
    for plural, name, spec in (
        ("elasticquotas", "a", {"max": {"cpu": "4"}, "min": {"cpu": "2"}}),
        ("podgroups", "g", {"minMember": 2}),
    ):
        ref = custom_ref(plural, "team", name)
        metadata = {"namespace": "team", "name": name}
        log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": metadata, "spec": spec}))
    log.add_pod(labelled("p", {keys.QUOTA_NAME: "a"}, ports=[{"containerPort": 80, "hostPort": 8080}]))
    log.add_pod(labelled("m", {keys.POD_GROUP: "g"}))
    log.add_pod(pod("large", {"cpu": "100"}))
    scheduler = Scheduler(log)
    scheduler.run()
    return scheduler


def labelled(uid: str, labels: dict[str, str], **container: Any) -> Pod:
    requests = {"resources": {"requests": {"cpu": "1"}}}
    return pod_from_json(
        {
            "metadata": {"namespace": "team", "name": uid, "uid": uid, "labels": labels},
            "spec": {"containers": [{"name": "main", **requests, **container}]},
        }
    )


async def test_every_listed_service_answers_and_a_copy_that_does_not_lead_says_so() -> None:
    state = cluster().state
    async with client(state) as leader, client(state, leads=False) as standby:
        listed = (await leader.get("/apis/v1/__services__")).json()["GET"]
        assert listed == sorted(listed)
        for path in listed:
            known = path.replace("{node}", "n").replace("{namespace}", "team")
            known = known.replace("{name}", "g" if "gang" in path else "a")
            assert (await leader.get(known)).status_code == 200, known
            refused = await standby.get(known)
            assert (refused.status_code, refused.json()) == (503, {"message": "the instance is not leader"})
        assert (await standby.get("/queue")).status_code == 200
        assert (await standby.get("/configz")).status_code == 200


async def test_resources_of_every_pod_are_told_with_their_node_and_unit() -> None:
    async with client(cluster().state, leads=False) as scheduler:
        page = await scheduler.get("/metrics/resources")
    told = {
        (sample.name, sample.labels["pod"], sample.labels["node"], sample.labels["unit"]): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }
    assert page.headers["content-type"].startswith("text/plain")
    assert told == {
        ("kube_pod_resource_request", "p", "n", "cores"): 1.0,
        ("kube_pod_resource_request", "m", "", "cores"): 1.0,
        ("kube_pod_resource_request", "large", "", "cores"): 100.0,
    }


async def test_node_page_tells_what_the_filters_see() -> None:
    async with client(cluster().state) as scheduler:
        page = (await scheduler.get("/apis/v1/nodes/n")).json()
        missing = await scheduler.get("/apis/v1/nodes/x")
    assert page["pods"] == ["team/p"]
    assert page["usedPorts"] == {"0.0.0.0": [{"protocol": "TCP", "port": 8080}]}
    assert (page["allocatable"]["cpu"], page["requested"]["cpu"], page["remaining"]["cpu"]) == (4000, 1000, 3000)
    assert (missing.status_code, missing.json()) == (404, {"message": "cannot find node x"})


async def test_quota_pages_show_the_books_and_who_lends() -> None:
    async with client(cluster().state) as scheduler:
        one = (await scheduler.get("/apis/v1/plugins/ElasticQuota/quotas/a?includePods=true")).json()
        every = (await scheduler.get("/apis/v1/plugins/ElasticQuota/quotas")).json()
        trees = (await scheduler.get("/apis/v1/plugins/ElasticQuota/trees")).json()
        missing = await scheduler.get("/apis/v1/plugins/ElasticQuota/quotas/x")
    assert one["used"] == {"cpu": "1"}
    assert one["podCache"] == {"team/p": {"isAssigned": True, "resource": {"cpu": "1"}}}
    assert keys.ROOT_QUOTA not in every
    assert "podCache" not in every["a"]
    [explained] = [quota for quota in trees[""] if quota["name"] == "a"]
    assert explained["shares"][0]["reason"].startswith("asks for 1, lends 1 of its min 2")
    assert missing.status_code == 404


async def test_gang_pages_tell_what_it_waits_for() -> None:
    async with client(cluster().state) as scheduler:
        view = (await scheduler.get("/apis/v1/plugins/Coscheduling/gang/team/g")).json()
        lines = (await scheduler.get("/apis/v1/plugins/Coscheduling/lines")).json()
        missing = await scheduler.get("/apis/v1/plugins/Coscheduling/gang/team/x")
    assert (view["minRequiredNumber"], view["pendingChildren"]) == (2, {"team/m": {}})
    assert [(line["id"], line["pending"], line["min_members"]) for line in lines] == [("team/g", 1, 2)]
    assert lines[0]["says"]
    assert missing.status_code == 404


async def test_flags_change_while_it_runs_and_bad_values_are_refused() -> None:
    state = cluster().state
    log, lines = decision_log(state.frameworks)
    async with client(state, log=log) as scheduler:
        for flag, value in (("s", "5"), ("f", "true"), ("d", "true"), ("db", "1"), ("v", "6")):
            assert (await scheduler.put(f"/debug/flags/{flag}", content=value)).status_code == 200
        assert (await scheduler.put("/debug/flags/s", content="many")).status_code == 400
        assert (await scheduler.put("/debug/flags/x", content="1")).status_code == 404
    assert log.flags == DebugFlags(top_scores=5, filters=True, diagnosis=True, blocking=True)
    assert [event for event, _ in lines.lines] == ["debug"]


def test_scores_filters_and_diagnoses_are_told_when_asked_for() -> None:
    small = SmallLog()
    for number in range(6):
        small.add_node(node(f"n{number}", cpu=str(number + 1)))
    small.add_pod(pod("fits", {"cpu": "1"}, priority=1))
    small.add_pod(pod("large", {"cpu": "100"}))
    scheduler = Scheduler(small)
    flags = DebugFlags(top_scores=5, filters=True, diagnosis=True, blocking=True)
    log, lines = decision_log(scheduler.state.frameworks, flags)
    scheduler.follow()
    while (decision := decide_next(scheduler.state, 0.0)) is not None:
        log.tell(decision)
    scores, failed, diagnosis = lines.lines
    assert [scores[0], failed[0], diagnosis[0]] == ["scores", "filter_failed", "diagnosis"]
    assert str(scores[1]["table"]).count("\n") == 6
    assert (failed[1]["plugin"], failed[1]["nodes"]) == ("NodeResourcesFit", 6)


def test_diagnoses_beyond_the_queue_are_dropped_and_counted() -> None:
    scheduler = cluster()
    log, lines = decision_log(scheduler.state.frameworks, DebugFlags(diagnosis=True), size=1)
    [failed] = [explanation for explanation in scheduler.explanations if explanation.uid == "large"][:1]
    log.tell([failed, failed, failed])
    assert (log.dropped, lines.lines) == (2, [])


def test_score_table_is_markdown_with_a_column_per_plugin() -> None:
    best = [NodeScore("n1", 150, {"B": 50, "A": 100}), NodeScore("n2", 90, {"A": 90})]
    assert score_table("ns/p", best).splitlines() == [
        "| # | Pod | Node | Score | A | B |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 0 | ns/p | n1 | 150 | 100 | 50 |",
        "| 1 | ns/p | n2 | 90 | 90 | 0 |",
    ]


def test_figures_are_read_from_the_state() -> None:
    registry = CollectorRegistry()
    registry.register(StateFigures(cluster().state))
    value = registry.get_sample_value
    assert value("scheduler_pending_pods", {"queue": "unschedulable"}) == 1
    assert value("scheduler_pending_pods", {"queue": "gated"}) == 1
    assert value("scheduler_queue_incoming_pods_total", {"queue": "unschedulable", "event": "ScheduleAttemptFailure"})
    assert value("scheduler_unschedulable_pods", {"plugin": "NodeResourcesFit", "profile": "koord-scheduler"}) == 1
    quota = {"name": "a", "resource": "cpu", "tree": "", "is_parent": "false", "parent": keys.ROOT_QUOTA}
    assert value("scheduler_elastic_quota_status", {**quota, "field": "used"}) == 1000
    assert value("scheduler_elastic_quota_spec", {**quota, "field": "max"}) == 4000
    assert value("scheduler_waiting_gang_group_number") == 0


@pytest.mark.parametrize(("count", "bucket"), [(0, "1.0"), (1, "1.0"), (2, "2.0"), (3, "4.0"), (4, "4.0"), (5, "8.0")])
def test_node_counts_fall_into_the_next_power_of_two(count: int, bucket: str) -> None:
    registry = CollectorRegistry()
    counts = NodeCounts("nodes", "")
    registry.register(counts)
    counts.observe(count)
    assert registry.get_sample_value("nodes_bucket", {"le": bucket}) == 1
    assert registry.get_sample_value("nodes_sum") == count
    if bucket != "1.0":
        assert registry.get_sample_value("nodes_bucket", {"le": str(float(bucket) / 2)}) == 0


def test_decision_without_an_outcome_is_complained_about_once() -> None:
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("n"))
    scheduler.log.add_pod(pod("p"))
    scheduler.follow()
    scheduler.decide()
    registry, lines = CollectorRegistry(), Lines()
    monitor = Monitor(
        clock=SystemClock(),
        metrics=SchedulerMetrics(registry, ["koord-scheduler"]),
        logger=lines,
        period_seconds=1.0,
        timeout_seconds=-1.0,
        profile_of=scheduler.state.profile_of,
    )
    [works] = [work.items for work in scheduler.state.assumed.outbox.take().works]
    key = monitor.begin(works)
    monitor.look()
    monitor.look()
    monitor.end(key)
    assert registry.get_sample_value("scheduler_scheduling_timeout_total", {"profile": "koord-scheduler"}) == 1
    assert [event for event, _ in lines.lines] == ["scheduling_timeout"]
