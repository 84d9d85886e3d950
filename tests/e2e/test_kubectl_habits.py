"""What users of kubectl type, on a real stack: selectors, outputs, several kinds and names, statuses, completion."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.koord_command import KoordCommand as Koord
from support.servers import server_directory
from support.until import until_blocking

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.deep,
    pytest.mark.xdist_group("habits"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
OBJECTS = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web, tier: front}}
spec: {containers: [{name: main, image: nginx, resources: {requests: {cpu: "2", memory: 1Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: large, namespace: shop, labels: {app: large}}
spec: {containers: [{name: main, image: nginx, resources: {requests: {cpu: "1000"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: evicted}
spec: {nodeName: node-1, containers: [{name: main, image: nginx}]}
status: {phase: Failed, reason: Evicted}
---
apiVersion: v1
kind: Pod
metadata: {name: done}
spec: {nodeName: node-1, containers: [{name: main, image: nginx}]}
status: {phase: Succeeded}
---
apiVersion: v1
kind: Node
metadata: {name: bad}
spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}]}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}, conditions: [{type: Ready, status: "False"}]}
"""


@pytest.fixture(scope="module")
def koord() -> Iterator[Koord]:
    """A stack with two simulated nodes, a Deployment, and pods of several statuses."""
    with server_directory() as folder:
        command = Koord(folder / "var")
        try:
            command.run("up", "--no-agent", "--simulated-nodes", "2")
            command.run("apply", "-f", "-", stdin=OBJECTS)
            command.run("apply", "-f", str(EXAMPLES / "deployment.yaml"))
            until_blocking(lambda: "3/3" in command.run("get", "deployment", "shop"), "the Deployment runs")
            until_blocking(lambda: command.phase("web") == "Running", "the pod runs")
            yield command
        finally:
            command.run("down")


def rows(text: str) -> dict[str, list[str]]:
    """Name -> the cells of its row. Cells are separated by three spaces."""
    head, *lines = [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in text.splitlines()]
    at = head.index("NAME")
    return {line[at]: line for line in lines}


def test_labels_and_fields_select(koord: Koord) -> None:
    assert koord.run("get", "pods", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert koord.run("get", "pods", "-l", "app in (web,large),!tier", "-A", "-o", "name") == "pod/large\n"
    assert koord.run("get", "po", "--selector", "app", "-n", "shop", "-o", "name") == "pod/large\n"
    assert koord.run("get", "pods", "--field-selector", "status.phase=Succeeded", "-o", "name") == "pod/done\n"
    assert koord.said("get", "pods", "-l", "app=nobody")[1] == "no pods found\n"


def test_objects_are_named_in_the_ways_of_kubectl(koord: Koord) -> None:
    assert koord.run("get", "pod/web", "node/node-1", "-o", "name") == "pod/web\nnode/node-1\n"
    assert koord.run("get", "pod", "done", "web", "-o", "name") == "pod/done\npod/web\n"
    tables = koord.run("get", "deploy,no").split("\n\n")
    assert [[line.split()[0] for line in table.splitlines()] for table in tables] == [
        ["NAMESPACE", "default"],
        ["NAME", "node/bad", "node/node-1", "node/node-2"],
    ]
    everything = koord.run("get", "all")
    assert {"pod/web", "deployment/shop"} <= set(everything.split())
    shown, said = koord.said("get", "pod", "web", "nobody", status=1)
    assert "web" in shown
    assert said == "error: Pod default/nobody does not exist\n"
    assert "did you mean -n shop?" in koord.said("get", "pod/large", status=1)[1]


def test_statuses_are_those_of_kubectl(koord: Koord) -> None:
    koord.run("cordon", "node/node-2")
    nodes = rows(koord.run("get", "nodes"))
    assert [nodes[name][1] for name in ("bad", "node-1", "node-2")] == ["NotReady", "Ready", "Ready,SchedulingDisabled"]
    koord.run("uncordon", "no/node-2")
    pods = rows(koord.run("get", "pods"))
    assert {name: pods[name][2] for name in ("web", "evicted", "done", "large")} == {
        "web": "Running",
        "evicted": "Evicted",
        "done": "Completed",
        "large": "Pending",
    }


def test_a_pending_pod_has_its_reason_and_everything_its_age(koord: Koord) -> None:
    until_blocking(lambda: "Insufficient cpu" in koord.run("get", "pods", "-n", "shop"), "the first attempt is told")
    line = koord.run("get", "pod", "large", "-n", "shop", "--no-headers")
    assert line.startswith("shop   large   Pending")
    assert line.rstrip().endswith("Insufficient cpu")
    assert "nodes are available: " in koord.run("get", "pod", "large", "-n", "shop", "-o", "wide")
    assert all(rows(koord.run("get", "nodes"))[name][-1].endswith("s") for name in ("node-1", "node-2"))


def test_outputs_are_documents_templates_and_sorted(koord: Koord) -> None:
    items = koord.ask("get", "pods")["items"]
    names = "".join(f"{item['metadata']['name']}\n" for item in items)
    assert koord.run("get", "pods", "-o", 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}') == names
    assert koord.run("get", "pod", "web", "-o", "jsonpath={.status.phase}") == "Running"
    by_age = koord.run("get", "pods", "--sort-by", ".metadata.name", "-o", "name").splitlines()
    assert by_age == sorted(f"pod/{item['metadata']['name']}" for item in items)
    assert koord.run("get", "pod", "web", "--no-headers", "--show-labels").rstrip().endswith("app=web,tier=front")


def test_moments_are_durations_positions_or_times_that_have_come(koord: Koord) -> None:
    assert "web" in koord.run("get", "pods", "--as-of", "0s")
    assert koord.said("get", "pods", "--as-of", "24h")[0] == ""
    refused = koord.said("get", "pods", "--as-of", "2099-01-01T00:00:00Z", status=1)[1]
    assert refused.startswith("error: --as-of 2099-01-01T00:00:00Z: this time has not come yet, it is ")
    assert refused.endswith(" UTC\n")
    assert "web" in koord.run("explain", "pod", "web", "--as-of", "0s")
    assert koord.run("get", "pod", "web", "--as-of", datetime.now(UTC).isoformat(), "-o", "name") == "pod/web\n"


def test_a_watch_shows_what_changes_and_ends_by_ctrl_c(koord: Koord) -> None:
    words = [sys.executable, "-m", "koordctl", "get", "pods", "-n", "watched", "--watch"]
    environment = {**os.environ, "KOORD_VAR": str(koord.var)}
    pod = OBJECTS.partition("---")[0].replace("name: web", "name: seen, namespace: watched")
    koord.run("apply", "-f", "-", stdin=pod)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:3] == ["NAMESPACE", "NAME", "STATUS"]
        assert watching.stdout.readline().split()[:2] == ["watched", "seen"]
        koord.run("delete", "pod/seen", "-n", "watched")
        states = iter(watching.stdout.readline, "")
        assert next(state for state in states if "Deleted" in state).split()[:2] == ["watched", "seen"]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130


def test_objects_with_a_label_are_deleted(koord: Koord) -> None:
    pod = OBJECTS.partition("---")[0].replace("name: web", "name: gone").replace("app: web", "app: gone")
    koord.run("apply", "-f", "-", stdin=pod)
    assert koord.run("delete", "pods", "-l", "app=gone") == "pod/gone in default deleted\n"
    assert koord.said("delete", "pods", "-l", "app=gone")[1] == "no objects found\n"


def test_other_words_for_commands_and_kinds(koord: Koord) -> None:
    story = koord.run("explain", "pod", "web").splitlines()[0]
    for words in (["explain", "pods", "web"], ["explain", "po/web"], ["describe", "pod", "web"]):
        assert koord.run(*words).splitlines()[0] == story
    assert koord.run("describe", "deployment", "shop") == koord.run("get", "deployment", "shop", "-o", "yaml")
    assert koord.run("top", "nodes").split()[0] == koord.run("top", "no").split()[0] == "NODE"
    assert koord.run("trace", "pod/web").startswith("Pod default/web: ")
    assert koord.run("version") == koord.run("--version")
    assert koord.run("help") == koord.run("--help") == koord.run()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("koord get deployme", {"deployments"}),
        ("koord get pod,nodesl", {"pod,nodeslos"}),
        ("koord get pods w", {"web"}),
        ("koord get pod/w", {"pod/web"}),
        ("koord get pods -o js", {"json", "jsonpath="}),
        ("koord get pods -n sh", {"shop"}),
        ("koord explain pods ev", {"evicted"}),
        ("koord describe pod ev", {"evicted"}),
        ("koord trace pod ev", {"evicted"}),
        ("koord cordon node-", {"node-1", "node-2"}),
        ("koord drain b", {"bad"}),
        ("koord top pod --node ", {"bad", "node-1", "node-2"}),
        ("koord delete deployment sh", {"shop"}),
    ],
)
def test_a_shell_completes_kinds_and_names(koord: Koord, typed: str, offered: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "koordctl"],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "KOORD_VAR": str(koord.var),
            "_KOORD_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
        },
    )
    assert set(done.stdout.split()) == offered


def test_a_request_that_cannot_change_is_named_by_its_path(koord: Koord) -> None:
    said = koord.said("apply", "-f", "-", stdin=OBJECTS.partition("---")[0].replace('cpu: "2"', 'cpu: "3"'), status=1)[
        1
    ]
    assert "spec.containers[main].resources.requests.cpu: must be unchanged ('2')" in said


def test_documents_of_a_list_are_json_with_all_items(koord: Koord) -> None:
    found = json.loads(koord.run("get", "pod/web", "node/node-1", "-o", "json"))
    assert (found["kind"], [item["kind"] for item in found["items"]]) == ("List", ["Pod", "Node"])


def test_kubectl_finds_a_plugin_and_its_completion(koord: Koord) -> None:
    """kubectl runs the first executable in PATH with this name, and another one for completion."""
    folder, environment = Path(sys.executable).parent, {**os.environ, "KOORD_VAR": str(koord.var)}

    def said(*words: str) -> str:
        done = subprocess.run([folder / words[0], *words[1:]], capture_output=True, text=True, env=environment)
        assert done.returncode == 0
        return done.stdout

    assert said("kubectl-koord", "get", "pod", "web", "-o", "name") == "pod/web\n"
    assert said("kubectl_complete-koord", "get", "pods", "we") == "web\n:4\n"
    assert "get\n" in said("kubectl_complete-koord", "ge")
    assert "node-1\n" in said("kubectl_complete-koord", "cordon", "")
