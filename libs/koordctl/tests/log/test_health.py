"""Judgements of `koord doctor`, each at its border."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from koordcore.bus.names import BusNames
from koordcore.bus.setup.streams import StreamSpec, streams
from koordcore.embedded.stack import ProcessState, ProcessStatus
from koordctl.log.health import (
    GIB,
    HOUR,
    LEAST_FREE,
    MOST_LAG_EVENTS,
    MOST_NIGHTLY_HOURS,
    NIGHTLY_RUN,
    NIGHTLY_SUCCESS,
    Finding,
    Verdict,
    clock_finding,
    dead_letter_finding,
    disk_finding,
    fold_finding,
    key_finding,
    nightly_findings,
    nightly_job_finding,
    process_findings,
    report_finding,
    service_finding,
    stream_findings,
    webhook_finding,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EV = streams(BusNames("dev"), replicas=1)[-1]
OBS = streams(BusNames("dev"), replicas=1)[0]


@pytest.mark.parametrize(
    ("url", "ready", "is_optional", "verdict"),
    [
        (None, None, False, Verdict.BROKEN),
        (None, None, True, Verdict.OK),
        ("http://x", None, True, Verdict.BROKEN),
        ("http://x", "log: loading", False, Verdict.BROKEN),
        ("http://x", "", False, Verdict.OK),
    ],
)
def test_a_service_is_ready_or_lacks_something(
    url: str | None, ready: str | None, is_optional: bool, verdict: Verdict
) -> None:
    found = service_finding("manager", url, ready, is_optional)
    assert found.verdict is verdict
    assert bool(found.remedy) is (verdict is not Verdict.OK)


def test_a_fold_that_halted_is_worse_than_one_that_is_behind() -> None:
    verdicts = [fold_finding("m", "m", lag, False).verdict for lag in (0, MOST_LAG_EVENTS, MOST_LAG_EVENTS + 1)]
    assert verdicts == [Verdict.OK, Verdict.OK, Verdict.WARNING]
    assert fold_finding("m", "m", 0, True).verdict is Verdict.BROKEN


@pytest.mark.parametrize(("skew", "verdict"), [(0, "ok"), (1, "ok"), (1.1, "warning"), (-1.1, "warning")])
def test_clocks_may_differ_by_a_second(skew: float, verdict: str) -> None:
    found = clock_finding(NOW + timedelta(seconds=skew), NOW)
    assert found.verdict == verdict
    assert ("behind" in found.told) is (skew < 0)


def test_reports_that_are_too_old_are_a_warning_with_names() -> None:
    assert report_finding({}).verdict == Verdict.OK
    found = report_finding({f"node-{number}": 480 for number in range(7)})
    assert (found.verdict, "node-0 for 8 min" in found.told) == (Verdict.WARNING, True)
    assert found.told.endswith("and 2 more")


def info(spec: StreamSpec, *, used: int = 0, **config: Any) -> dict[str, Any]:
    return {"config": {**spec.config(), **config}, "state": {"messages": 1, "bytes": used}}


def test_a_stream_needs_its_settings_and_room() -> None:
    def verdicts(spec: StreamSpec, found: dict[str, Any] | None) -> list[Verdict]:
        return [each.verdict for each in stream_findings(spec, found)]

    assert verdicts(EV, None) == [Verdict.BROKEN]
    assert verdicts(EV, info(EV, num_replicas=3, max_bytes=1)) == [Verdict.OK]
    assert verdicts(EV, info(EV, discard="old")) == [Verdict.WARNING, Verdict.OK]
    assert verdicts(EV, info(EV, used=EV.max_bytes)) == [Verdict.BROKEN]
    assert verdicts(OBS, info(OBS, used=OBS.max_bytes)) == [Verdict.OK], "old observations make room"
    servers = [{"name": "b", "current": True}, {"name": "c", "current": False, "lag": 7}]
    (behind, _) = stream_findings(EV, {**info(EV), "cluster": {"leader": "a", "replicas": servers}})
    assert (behind.verdict, behind.told) == (Verdict.WARNING, "c is 7 behind")
    (first, _) = stream_findings(EV, info(EV, discard="old"))
    assert first.told == "discard is 'old', not 'new'"


def test_parked_work_a_full_disk_and_open_keys_are_named() -> None:
    assert dead_letter_finding(0).verdict is Verdict.OK
    assert dead_letter_finding(2).told == "2 items wait for a person"
    assert disk_finding("var", LEAST_FREE).verdict is Verdict.OK
    assert disk_finding("var", GIB).told == "1.0 GiB are free in var"
    assert key_finding([]).verdict is Verdict.OK
    assert key_finding(["b", "a"]).told == "others can read a, b"


def test_a_nightly_check_that_fails_or_is_missing_is_named() -> None:
    def verdict(ran: float, succeeded: float, hours_later: float) -> str:
        figures = {NIGHTLY_RUN: {"drill": ran}, NIGHTLY_SUCCESS: {"drill": succeeded}}
        (found,) = nightly_findings(figures, ran + hours_later * HOUR)
        return found.verdict

    assert verdict(9.0, 9.0, MOST_NIGHTLY_HOURS) == "ok"
    assert verdict(9.0, 9.0, MOST_NIGHTLY_HOURS + 1) == "warning"
    assert verdict(9.0, 8.0, 0) == "broken"
    assert verdict(0.0, 0.0, 0) == "ok"
    (silent,) = nightly_findings(None, 0.0)
    assert silent.verdict is Verdict.BROKEN


def schedule(succeeded: str = "", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, Any]:
    """Return the CronJob."""
    status = {"lastSuccessfulTime": succeeded} if succeeded else {}
    return {
        "metadata": {"name": "koord-nightly", "namespace": "n", "uid": "c", "creationTimestamp": created},
        "spec": spec,
        "status": status,
    }


def job(name: str, began: str, condition: str, owner: str = "c") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "ownerReferences": [{"uid": owner}]},
        "status": {"startTime": began, "conditions": [{"type": condition, "status": "True"}]},
    }


FRIDAY, SATURDAY = "2026-01-02T02:30:00Z", "2026-01-03T02:30:00Z"
FAILED, DONE = job("one", FRIDAY, "Failed"), job("two", FRIDAY, "Complete")


@pytest.mark.parametrize(
    ("schedules", "jobs", "verdict", "told"),
    [
        ([], [], Verdict.WARNING, "is missing: nothing backs up the log"),
        ([schedule(suspend=True)], [], Verdict.WARNING, "is suspended: nothing backs up the log"),
        ([schedule(created=SATURDAY)], [], Verdict.OK, "has not succeeded since it began 9.5 h ago"),
        ([schedule()], [DONE], Verdict.WARNING, "has not succeeded since it began 60.0 h ago"),
        ([schedule(FRIDAY)], [DONE], Verdict.OK, "has succeeded 33.5 h ago"),
        ([schedule("2026-01-01T23:59:59Z")], [], Verdict.WARNING, "has succeeded 36.0 h ago"),
        ([schedule("2026-01-01T02:40:00Z")], [DONE, FAILED], Verdict.BROKEN, "has failed jobs: one"),
        ([schedule(created=FRIDAY)], [FAILED], Verdict.BROKEN, "has failed jobs: one"),
        ([schedule(SATURDAY)], [FAILED], Verdict.OK, "has succeeded 9.5 h ago"),
        ([schedule(FRIDAY)], [job("other", SATURDAY, "Failed", owner="d")], Verdict.OK, "has succeeded 33.5 h ago"),
    ],
)
def test_the_nightly_job_exists_runs_and_succeeds(
    schedules: list[dict[str, Any]], jobs: list[dict[str, Any]], verdict: Verdict, told: str
) -> None:
    found = nightly_job_finding(schedules, jobs, datetime(2026, 1, 3, 12, tzinfo=UTC).timestamp())
    assert (found.verdict, found.told) == (verdict, told)
    assert bool(found.remedy) is (verdict is not Verdict.OK)


def policy(**spec: Any) -> dict[str, Any]:
    """Return a NetworkPolicy for all pods of its namespace."""
    return {"metadata": {"name": "p"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"], **spec}}


def ingress(cidr: str, **port: Any) -> dict[str, Any]:
    """Return a rule that admits the addresses of a block."""
    return {"from": [{"podSelector": {}}, {"ipBlock": {"cidr": cidr}}], "ports": [port] if port else []}


CLOSED = policy()
OTHERS = {"matchLabels": {"koord-app": "nats"}}
OURS = {"matchExpressions": [{"key": "koord-app", "operator": "In", "values": ["koord-manager"]}]}


@pytest.mark.parametrize(
    ("policies", "verdict"),
    [
        ([CLOSED], Verdict.OK),
        ([CLOSED, policy(podSelector=OURS, ingress=[ingress("10.0.0.1/32", port="webhook")])], Verdict.OK),
        ([CLOSED, policy(podSelector=OURS, ingress=[ingress("0.0.0.0/0", port="webhook")])], Verdict.WARNING),
        ([CLOSED, policy(ingress=[ingress("::/0", port=9000, endPort=9900)])], Verdict.WARNING),
        ([CLOSED, policy(ingress=[ingress("::/0")])], Verdict.WARNING),
        ([CLOSED, policy(ingress=[{}])], Verdict.WARNING),
        ([CLOSED, policy(ingress=[ingress("0.0.0.0/0", port="metrics"), ingress("::/0", port=443)])], Verdict.OK),
        ([CLOSED, policy(podSelector=OTHERS, ingress=[{}])], Verdict.OK),
        ([policy(podSelector=OTHERS), policy(policyTypes=["Egress"])], Verdict.WARNING),
        ([], Verdict.WARNING),
    ],
)
def test_a_webhook_that_any_address_reaches_is_named(policies: list[dict[str, Any]], verdict: Verdict) -> None:
    found = webhook_finding(policies)
    assert found.verdict is verdict
    assert bool(found.remedy) is (verdict is not Verdict.OK)


@pytest.mark.parametrize(("free", "verdict"), [(LEAST_FREE, "ok"), (GIB, "warning"), (63 << 20, "broken")])
def test_a_full_disk_is_worse_than_one_that_fills_up(free: int, verdict: str) -> None:
    found = disk_finding("var", free)
    assert found.verdict == verdict
    assert ("runbook" in found.remedy) is (verdict == "broken")


def test_a_process_that_has_ended_is_named_with_its_last_words() -> None:
    def findings(state: ProcessState) -> list[Finding]:
        return list(process_findings(ProcessStatus(name="nats", state=state, last_exit=1, last_words="no space")))

    assert findings(ProcessState.READY) == []
    (restarted,), (given_up,) = findings(ProcessState.BACKING_OFF), findings(ProcessState.GIVEN_UP)
    assert (restarted.verdict, restarted.told) == (Verdict.BROKEN, "has ended, and is restarted: no space")
    assert given_up.told == "has ended, and is not restarted: no space"


def test_a_service_that_names_a_section_of_the_runbook_has_it_as_remedy() -> None:
    found = service_finding("projector", "http://x", "facts: ... docs/runbook.md, 'The log went back'. To ...", False)
    assert found.remedy == "docs/runbook.md, 'The log went back'"


def test_a_stream_without_a_leader_is_broken() -> None:
    servers = [{"name": "b", "current": False, "lag": 7}]
    (found, _) = stream_findings(EV, {**info(EV), "cluster": {"replicas": servers}})
    assert (found.verdict, found.told) == (Verdict.BROKEN, "no leader, b is 7 behind")
