"""One pod's whole way through a real stack, driven only by the `koord` command, and what can be asked afterwards."""

import json
import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from koordcore.bus.setup.manifest import OPERATOR
from koordcore.bus.setup.principals import seed_file
from koordcore.bus.setup.tls_files import ensure_tls_files
from koordcore.embedded.identity import is_alive
from koordctl.access.log import key_folder
from support.koord_command import KoordCommand as Koord
from support.otlp_receiver import OtlpReceiver, otlp_receiver, trust_only
from support.servers import server_directory
from support.spans import read_span_file
from support.until import until_blocking

pytestmark = [pytest.mark.slow, pytest.mark.nats, pytest.mark.postgres, pytest.mark.xdist_group("embedded-stack")]

EXAMPLES = Path(__file__).parents[2] / "examples"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {koordinator.sh/qosClass: LS}}
spec:
  priority: 9500
  containers: [{name: main, image: nginx, resources: {requests: {cpu: "2", memory: 4Gi}}}]
"""
HASH = re.compile(r"[0-9a-f]{32}")
SERVICES = {"manager", "scheduler", "agent", "projector"}


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtlpReceiver]:
    """What receives the traces of all services."""
    files = ensure_tls_files(tmp_path_factory.mktemp("tls"), now=datetime.now(UTC))
    with otlp_receiver(files) as receiver, pytest.MonkeyPatch.context() as patch:
        trust_only(files.ca, patch)
        yield receiver


@pytest.fixture(scope="module")
def koord(collector: OtlpReceiver) -> Iterator[Koord]:
    """A stack with three simulated nodes on which the pod runs already."""
    with server_directory() as folder, pytest.MonkeyPatch.context() as patch:
        command = Koord(folder / "var")
        for service in SERVICES:
            patch.setenv(f"KOORD_{service.upper()}_OTLP_ENDPOINT", collector.url)
        try:
            command.run("up", "--no-agent", "--simulated-nodes", "3", "--traces")
            command.run("apply", "-f", "-", stdin=POD)
            until_blocking(lambda: command.phase("web") == "Running", "the pod's start")
            yield command
        finally:
            command.run("down")


@pytest.mark.deep
def test_up_again_says_that_it_runs(koord: Koord) -> None:
    assert "already running" in koord.run("up")


@pytest.mark.deep
def test_a_demo_beside_a_stack_is_refused(koord: Koord) -> None:
    said, why = koord.said("demo", "--exit", status=1)
    assert said == ""
    assert why.startswith(f"error: a stack runs in {koord.var}, and other commands would still use it")


def test_status_shows_every_process_ready_and_who_leads(koord: Koord) -> None:
    *lines, manager, scheduler, _ = koord.run("status").splitlines()[1:]
    names = [line.split()[0] for line in lines]
    assert names == ["nats", "postgres", "manager", "scheduler", "projector", "agent-sim-1"]
    assert all(line.split()[1:3] == ["ready", "ready"] for line in lines)
    assert re.match(r"manager: manager_\w+ leads since ", manager)
    assert re.match(r"scheduler: scheduler_\w+ leads since ", scheduler)


@pytest.mark.deep
def test_status_and_lag_of_a_system_that_only_addresses_name(koord: Koord, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, stack = Koord(koord.var.parent / "elsewhere"), koord.stack()
    urls = {each.name: each.urls for each in stack.processes}
    for name in ("manager", "scheduler", "projector"):
        monkeypatch.setenv(f"KOORD_{name.upper()}", urls[name]["http"])
    monkeypatch.setenv("KOORD_NATS", urls["nats"]["client"])
    monkeypatch.setenv("KOORD_NATS_SEED", str(seed_file(key_folder(koord.var), OPERATOR.name)))

    *rows, manager, scheduler = elsewhere.run("status").splitlines()[1:]
    assert [tuple(row.split()[::2]) for row in rows] == [
        (name, "ready") for name in ("manager", "scheduler", "projector")
    ]
    assert re.fullmatch(r"manager: manager_\w+ leads", manager)
    assert re.match(r"scheduler: scheduler_\w+ leads since ", scheduler)
    lags = elsewhere.run("bus", "consumers").splitlines()[1:]
    assert {(row.split()[0], row.split()[-1]) for row in lags} == {
        (name, "follows") for name in ("manager", "scheduler", "projector")
    }
    monkeypatch.setenv("KOORD_SCHEDULER", f"{urls['scheduler']['http']},http://127.0.0.1:1")
    assert re.search(r"^scheduler 127.0.0.1:1 +no answer$", elsewhere.run("status", status=1), re.MULTILINE)


def test_doctor_finds_everything_in_order(koord: Koord) -> None:
    assert "0 broken" in koord.run("doctor")


@pytest.mark.deep
def test_backup_becomes_a_stack_with_the_same_past(koord: Koord) -> None:
    folder, story = koord.var.parent / "backup", koord.ask("explain", "pod", "web")
    koord.run("backup", str(folder))
    assert "is not empty" in koord.said("backup", str(folder), status=1)[1]
    assert "a stack runs in" in koord.said("restore", str(folder), status=1)[1]
    again = Koord(koord.var.parent / "again")
    digest = json.loads((folder / "backup.json").read_bytes())["digest"]
    refused = again.said("restore", str(folder), "--digest", "0" * 12, status=1)[1]
    assert "must be 000000000000" in refused
    again.run("restore", str(folder), "--digest", digest)
    try:
        again.run("up", "--no-agent", "--simulated-nodes", "3")
        moments = again.ask("explain", "pod", "web")["moments"]
        assert moments[: len(story["moments"])] == story["moments"]
        assert "equal" in again.run("verify")
    finally:
        again.run("down")


def test_the_priority_classes_of_the_system_are_there(koord: Koord) -> None:
    classes = koord.run("get", "priorityclasses").split()
    assert {"koord-prod", "koord-mid", "koord-batch", "koord-free", "system-cluster-critical"} <= set(classes)


def test_explain_tells_the_whole_story(koord: Koord) -> None:
    story = koord.ask("explain", "pod", "web")
    assert [moment["step"] for moment in story["moments"]] == ["submitted", "placed", "started"]
    placed = story["moments"][1]["explanation"]
    assert placed["nodes_considered"] == placed["nodes_feasible"] == 3
    assert story["node"] == placed["top"][0]["node"]
    assert placed["based_on"]["ev"] < story["moments"][1]["position"]
    text = koord.run("explain", "pod", "web")
    assert f"Running on {story['node']}" in text
    assert "(3 of 3 nodes were feasible)" in text


def test_objects_can_be_read_as_of_a_past_position(koord: Koord) -> None:
    submitted, placed, _ = koord.ask("explain", "pod", "web")["moments"]
    before = koord.ask("get", "pods", "--as-of", str(submitted["position"] - 1))
    assert before["items"] == []
    pending = koord.ask("get", "pod", "web", "--as-of", str(placed["position"] - 1))
    assert "nodeName" not in pending["spec"]
    now = koord.ask("get", "pod", "web")
    then = koord.ask("get", "pod", "web", "--as-of", str(placed["position"]))
    assert then["spec"]["nodeName"] == now["spec"]["nodeName"]


def test_life_of_a_pod_is_one_trace_through_all_services(koord: Koord) -> None:
    trace = koord.ask("explain", "pod", "web")["moments"][0]["trace"]
    file = koord.var / "log" / "traces.jsonl"
    until_blocking(
        lambda: {span.service for span in read_span_file(str(file)) if span.trace_id == trace} >= SERVICES, "spans"
    )
    shown = koord.ask("trace", "pod", "web")
    assert shown["trace"] == trace
    assert {(step["by"].partition("/")[0], step["trace"]) for step in shown["steps"]} == {
        (service, trace) for service in ("manager", "scheduler", "agent")
    }


def test_a_collector_gets_the_life_of_a_pod_as_one_trace(koord: Koord, collector: OtlpReceiver) -> None:
    trace = koord.ask("trace", "pod", "web")["trace"]
    wanted = {f"koord-{service}" for service in SERVICES}

    def has_whole_trace() -> bool:
        spans = [span for span in collector.spans if span.trace_id == trace]
        roots = [span.name for span in spans if not span.parent_id]
        parents = {span.parent_id for span in spans if span.parent_id}
        return (
            wanted <= {span.service for span in spans}
            and roots == ["manager.apply"]
            and parents <= {span.span_id for span in spans}
        )

    until_blocking(has_whole_trace, "spans of all services below one root")


def test_folds_agree_while_the_stack_works(koord: Koord) -> None:
    table = koord.run("verify")
    assert "equal" in table
    rows = [line for line in table.splitlines()[1:] if HASH.fullmatch(line.split()[-1])]
    of_the_scheduler = {line.split()[-1] for line in rows if line.startswith("scheduler, ")}
    assert len({line.split()[-1] for line in rows if not line.startswith("scheduler, ")}) == 1
    assert len(of_the_scheduler) == 1, table
    assert "scheduler, live" in table
    assert "scheduler, from zero" in table
    assert "equal to the projector's rows" in koord.run("replay") or "koord verify" in koord.run("replay")


def test_best_effort_pod_runs_on_what_is_reclaimed(koord: Koord) -> None:
    koord.run("apply", "-f", str(EXAMPLES / "best-effort.yaml"))
    koord.run("apply", "-f", str(EXAMPLES / "colocation.yaml"))
    until_blocking(lambda: koord.phase("crunch") == "Running", "the start of the best-effort pod")
    story = koord.ask("explain", "pod", "crunch")
    assert "unschedulable" in {moment["step"] for moment in story["moments"]}
    node = koord.ask("explain", "node", story["node"])
    terms = node["terms"]["cpu"]
    used = terms["capacity"] - terms["margin"] - max(terms["system_used"], terms["reserved"])
    assert terms["result"] == used - terms["high_priority_used"]


def test_wrong_document_is_refused_with_field_rule_and_value(koord: Koord) -> None:
    koord.run("apply", "-f", "-", stdin=POD.replace('"2"', '"two"'), status=1)
    assert koord.ask("get", "pod", "web")["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"


def test_apply_warns_on_standard_error_and_a_dry_run_says_that_it_was_one(koord: Koord) -> None:
    misspelt = POD.replace("web", "dry").replace("spec:", "spec:\n  nodeSelecter: {a: b}")
    warning = (
        "warning: pod/dry in default: spec.nodeSelecter: unknown field, it is ignored; did you mean nodeSelector?\n"
    )

    assert koord.said("apply", "--dry-run", "-f", "-", stdin=misspelt) == (
        "pod/dry in default created (dry run)\n",
        warning,
    )
    refused = koord.said("apply", "--dry-run", "-f", "-", stdin=misspelt.replace('"2"', "two"), status=1)
    assert refused[1].startswith(f"{warning}pod/dry in default refused (dry run)\n")
    assert koord.run("get", "pod", "dry", status=1) == ""


def test_top_of_a_node_that_does_not_exist_says_so(koord: Koord) -> None:
    for words in (("top", "pod", "--node", "nope"), ("top", "node", "nope")):
        assert koord.said(*words, status=1) == ("", "error: there is no node nope\n")
    assert koord.said("top", "pod", "-n", "nowhere")[1] == "no pods in namespace nowhere reported yet\n"


@pytest.mark.deep
def test_recommendation_that_exists_is_told_from_its_first_moment_on(koord: Koord) -> None:
    wanted = """
apiVersion: analysis.koordinator.sh/v1alpha1
kind: Recommendation
metadata: {name: young}
spec: {target: {type: podSelector, podSelector: {matchLabels: {app: nobody}}}}
"""
    koord.run("apply", "-f", "-", stdin=wanted)

    assert koord.run("recommend", "young").startswith("Recommendation default/young: ")
    assert [line.split()[1] for line in koord.run("recommend").splitlines()] == ["NAME", "young"]
    assert koord.said("recommend", "old", status=1)[1] == "error: there is no Recommendation old\n"
    koord.run("delete", "recommendation", "young")
    koord.run("recommend", "young", status=1)


def test_deployment_makes_its_pods_and_takes_them_away(koord: Koord) -> None:
    def shops() -> int:
        return sum(item["metadata"]["name"].startswith("shop") for item in koord.ask("get", "pods")["items"])

    koord.run("apply", "-f", str(EXAMPLES / "deployment.yaml"))
    until_blocking(lambda: shops() == 3, "three replicas")
    koord.run("delete", "deployment", "shop")
    until_blocking(lambda: shops() == 0, "the end of the replicas")


def test_streams_and_folds_are_shown(koord: Koord) -> None:
    assert "KOORD_EV_dev" in koord.run("bus", "streams")
    folds = {line.split()[1] for line in koord.run("bus", "consumers").splitlines()[1:]}
    assert {"manager", "scheduler", "projector"} <= folds
    assert koord.run("bus", "dlq", "list") == ""


@pytest.mark.deep
def test_events_are_shown_as_lines_of_json(koord: Koord) -> None:
    lines = [
        json.loads(line) for line in koord.run("events", "--since", "1", "--kind", "pod", "-o", "json").splitlines()
    ]
    assert {"PodPlaced"} <= {line["type"] for line in lines}


@pytest.mark.deep
def test_nobody_leads_after_a_kill_until_the_lease_has_ended() -> None:
    with server_directory() as folder:
        koord = Koord(folder / "var")
        try:
            koord.run("up", "--no-agent", "--simulated-nodes", "1")
            scheduler = koord.stack().find("scheduler")
            assert scheduler is not None
            assert scheduler.process is not None
            os.kill(scheduler.process.pid, signal.SIGKILL)

            *_, told, phase = koord.run("status", status=1).splitlines()
            assert re.fullmatch(r"scheduler: no leader \(the previous leader's lease expires in [\d.]+ s\)", told)
            assert phase.startswith("degraded; ")
        finally:
            koord.run("down")


@pytest.mark.deep
def test_up_names_every_process_that_is_ready_and_down_leaves_nothing_running() -> None:
    with server_directory() as folder:
        koord = Koord(folder / "var")
        said = koord.said("up", "--no-agent", "--simulated-nodes", "1")[1]
        stack = koord.stack()
        assert sorted(said.splitlines()) == sorted(f"  {status.name} is ready" for status in stack.processes)
        koord.run("down")
        assert not stack.is_live
        assert not [status.name for status in stack.processes if status.process and is_alive(status.process)]
        assert koord.run("down").startswith("nothing runs")
