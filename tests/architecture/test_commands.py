"""Every command of the documentation is executed by a test, or stands on the list below."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from support.commands import Call, calls, commands_in, compose_services, inline_commands, unexecuted_lines
from support.guide import PAGES, ROOT, RUN_BY, Command, name_of, steps
from support.pages import SECTIONS


@dataclass(frozen=True)
class Elsewhere:
    """A command that no page executes.

    Attributes:
        command: The command with the options that its executions have.
        file: The file that executes it.
        text: What this file contains at that place.
        reason: Why no page executes it.
    """

    command: str
    file: str
    text: str
    reason: str


READER = "from support.guide import"
"""What a test has that runs commands as a reader of the documentation does."""

COMPOSE = "tests/compose/test_compose.py"
ELSEWHERE = (
    Elsewhere("make test", ".ci/run", "target test ", "it would run itself"),
    Elsewhere("make test-compose", ".ci/run", "suite test-compose", "it builds the image, for minutes"),
    Elsewhere("make test-runtime", ".ci/run", "suite test-runtime", "it builds its programs, for minutes"),
    Elsewhere("make test-oracle", ".ci/run", "suite test-oracle", "it builds its program, for minutes"),
    Elsewhere("make test-kubernetes", ".ci/run", "suite test-kubernetes", "it builds its programs, for minutes"),
    Elsewhere("make test-sig-scheduling", ".ci/run", "suite test-sig-scheduling", "it builds its program, for minutes"),
    Elsewhere("make test-cluster", ".ci/run", "suite test-cluster", "it builds its programs, for minutes"),
    Elsewhere("kubectl koord get pods", "tests/e2e/test_kubectl_habits.py", '"kubectl-koord"', "it needs kubectl"),
    Elsewhere("make audit", ".ci/run", "timeout 5m .ci/audit", "it needs the network"),
    Elsewhere("make docs", ".ci/run", "make docs >", "it installs the tools of the site"),
    Elsewhere("make compose-demo", COMPOSE, '["make", "compose-demo"]', "it needs the image"),
    Elsewhere("make compose-down", COMPOSE, '["make", "compose-down"]', "it needs the image"),
    Elsewhere("docker compose stop", COMPOSE, 'system("stop"', "it would end the system of the page"),
    Elsewhere(
        "docker compose down --volumes", COMPOSE, 'compose("down", "--volumes"', "it would end the system of the page"
    ),
    Elsewhere(
        "docker compose --env-file deploy/compose/ha.env --profile ha up -d",
        COMPOSE,
        '"--env-file", "deploy/compose/ha.env", "--profile", "ha"',
        "it needs a new system",
    ),
    Elsewhere("docker compose --profile host up -d", COMPOSE, '"--profile", "host"', "it needs a new system"),
    Elsewhere(
        "make chart", "tests/kubernetes/test_chart.py", "build_chart(", "the test calls the program of this target"
    ),
    Elsewhere(
        "helm install koordstream var/chart --values FILE",
        "tests/kubernetes/test_chart.py",
        'helm("install", "koordstream"',
        "it needs an API server",
    ),
    Elsewhere(
        "kubectl apply --server-side -f FILE",
        "tests/kubernetes/test_manifests.py",
        'plane.ask("apply", "--server-side", "-f"',
        "it needs an API server",
    ),
    Elsewhere(
        "make compiled", "tests/contract/test_compiled_scheduler.py", '"make", "compiled"', "it compiles, for minutes"
    ),
    Elsewhere(
        "make demo EXIT=1", "tests/e2e/test_demo.py", '"--exit"', "it is `koord demo`, whose whole trace takes minutes"
    ),
    Elsewhere(
        "koord demo --nodes 40 --limit 300 --seconds 6 --failing-devices --exit",
        "tests/e2e/test_demo.py",
        '"--failing-devices", "--nodes", "40", "--limit", "300", "--seconds", "6", "--exit"',
        "a test reads its summary, too",
    ),
    Elsewhere(
        "python -m tests.bench kubernetes --only plain --nodes 1000 --scale 0.02 --runs 1",
        "tests/kubernetes/test_benchmark.py",
        "tests.bench kubernetes --only plain --nodes 1000 --scale 0.02 --runs 1",
        "it needs an API server",
    ),
    Elsewhere(
        "python -m tests.faults --kills 20 --nodes 3",
        "tests/faults/test_kills.py",
        '"tests.faults", "--kills", "20", "--nodes", "3"',
        "it takes minutes",
    ),
    Elsewhere(
        "python examples/protection/measure.py --picture FILE",
        "services/agent/tests/qos/test_real_protection.py",
        '"--picture", str(picture)',
        "it needs root",
    ),
    Elsewhere(
        "koord login --url URL",
        "libs/koordctl/tests/installation/test_login.py",
        '["login", "--url", url]',
        "it needs an OIDC issuer",
    ),
    Elsewhere(
        "koord bus genesis --kubeconfig FILE",
        "tests/kubernetes/test_epochs.py",
        'koord("bus", "genesis", "--kubeconfig"',
        "it needs an API server",
    ),
    Elsewhere(
        "koord bus bootstrap --new-log",
        "tests/contract/bus/test_doctor_of_the_log.py",
        '"bus", "bootstrap", "--new-log"',
        "it needs a log that is gone",
    ),
    Elsewhere("koord up --new-log", "tests/integration/test_lost_log.py", '"--new-log"', "it needs a log that is gone"),
    Elsewhere(
        "koord keys store",
        "tests/kubernetes/test_workloads.py",
        'koord("keys", "store"',
        "it needs an API server",
    ),
    Elsewhere(
        "koord keys issue keys/issuer --nats URL --service-account NAMESPACE/NAME --proxy-facts",
        "tests/kubernetes/test_agent_tokens.py",
        '"keys", "issue"',
        "it needs an API server, and has the flags of k8s/base/issuer.yaml",
    ),
    Elsewhere(
        "koord keys create FOLDER --mirror HOST",
        "tests/contract/bus/test_mirror.py",
        '"--mirror", "localhost"',
        "it needs two servers",
    ),
    Elsewhere(
        "nats-server --config /etc/nats/nats-mirror.conf",
        "tests/contract/bus/test_mirror.py",
        '"--config"',
        "it runs until it is stopped",
    ),
    Elsewhere("koord bus mirror", "tests/contract/bus/test_mirror.py", '"bus", "mirror"', "it needs two servers"),
    Elsewhere("koord bus promote", "tests/contract/bus/test_mirror.py", '"bus", "promote"', "it needs two servers"),
    Elsewhere(
        "koord nightly FOLDER --at 02:30 --keys FOLDER --server URL --listen HOST:PORT",
        "tests/contract/bus/test_nightly.py",
        'self.words("nightly")',
        "it runs until it is stopped; the words are those of docker-compose.yml",
    ),
    Elsewhere(
        "koord bus archive s3://archives/koord --keep 2160h --trim",
        "tests/contract/bus/test_archive.py",
        '"bus", "archive", place, "--keep", "0s", "--trim"',
        "it needs old facts and snapshots",
    ),
    Elsewhere(
        "koord restore PLACE --digest SHA256",
        "tests/e2e/test_one_pod.py",
        '"restore", str(folder), "--digest", digest',
        "its digest is known once the backup is there",
    ),
    Elsewhere(
        "koord bus skip FOLD N --reason TEXT",
        "tests/integration/test_poison_event.py",
        '"bus", "skip", "manager"',
        "it needs an event that cannot be read",
    ),
    Elsewhere(
        "koord bus dlq retry NUMBER",
        "tests/contract/bus/test_bus_work.py",
        '"bus", "dlq", "retry"',
        "it needs work that fails",
    ),
    Elsewhere(
        "koord bus dlq drop NUMBER",
        "tests/contract/bus/test_bus_work.py",
        '"bus", "dlq", "drop"',
        "it needs work that fails",
    ),
    Elsewhere(
        "journalctl -u koord-criproxy",
        "tests/runtime/test_installer.py",
        'machine.run("journalctl", "-u", "koord-criproxy")',
        "it needs a host with systemd",
    ),
    Elsewhere(
        "systemd-analyze security",
        "services/criproxy/tests/test_unit_file.py",
        'analyze("security"',
        "a test compares the exposure with a limit",
    ),
    Elsewhere(
        "koord doctor --kubeconfig FILE", "tests/kubernetes/test_doctor.py", '"--kubeconfig"', "it needs an API server"
    ),
)


NOWHERE = {
    "docker compose pull": "no registry has the image",
    "kubectl logs JOB -c STEP --previous": "the tests have no kubelet, which would have the output of containers",
    "kubectl top pod -n NAMESPACE": "the tests have no kubelet, which would know the usage of containers",
    "make test-cgroup2": "it boots a virtual machine, whose instructions are emulated for half an hour",
    "make bench": "it measures for an hour; docs/benchmarks.md makes its measurements on a small scale",
    "python -m tests.bench compose": "it needs the image; tests/compose/test_compose.py makes the measured step once",
    "python -m tests.bench commands": "it starts a stack and runs koord some hundred times",
    "python -m tests.bench import": "it fills the log of a large cluster, for minutes",
    "python -m tests.bench large_gang": "it takes a minute; tests/chaos/test_large_gang_kills.py does the same",
    "python -m tests.bench installation": "it installs everything on a control plane of its own, for minutes",
    "python -m tests.bench rolling_restart --scale 0.25": "it restarts each service of a large cluster, for minutes;"
    " tests/chaos/test_rolling_restart.py restarts those of a small one",
}
"""Commands that no test runs, with the reason."""


@cache
def executed() -> frozenset[Call]:
    """Return what the commands of all pages, those in tests that read pages, and those of the list call."""
    shown = [step.text for page in PAGES for step in steps(page) if isinstance(step, Command)]
    others = {*ROOT.glob("tests/**/test_*.py")} - {Path(__file__)}
    readers = (file for file in others if READER in file.read_text())
    asked = [text for file in readers for text in commands_in(file)]
    texts = (*shown, *asked, *(each.command for each in ELSEWHERE))
    return frozenset(compose_services()).union(*map(calls, texts))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_in_a_block_stands_in_a_block_that_a_test_executes(page: Path) -> None:
    assert unexecuted_lines(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_in_a_sentence_is_executed_with_its_options(page: Path) -> None:
    excused = [call for command in NOWHERE for call in calls(command)]
    found = [text for text in inline_commands(page) if not are_known(text, is_executed)]
    assert [text for text in found if not are_known(text, lambda call: is_shown_by_one(call, excused))] == []


def are_known(command: str, is_known: Callable[[Call], bool]) -> bool:
    """Return whether a command calls something, and whether everything that it calls is known."""
    called = list(calls(command))
    return bool(called) and all(map(is_known, called))


def is_shown_by_one(call: Call, others: Iterable[Call]) -> bool:
    return any(call.is_shown_by(each) for each in others)


def is_executed(call: Call) -> bool:
    """Return whether something executes this with at least the same options."""
    return is_shown_by_one(call, executed())


def test_a_test_follows_each_page_that_needs_more_than_this_machine() -> None:
    assert [page for page, test in RUN_BY.items() if Path(page).name not in (ROOT / test).read_text()] == []


def test_a_test_follows_each_section_that_needs_another_place() -> None:
    tests = {ROOT / test for test in SECTIONS.values()}
    assert [test for test in tests if "sections_for(__file__" not in test.read_text()] == []


def test_what_is_executed_elsewhere_is_found_there() -> None:
    assert [each.command for each in ELSEWHERE if each.text not in (ROOT / each.file).read_text()] == []


def test_no_page_executes_what_is_on_the_list() -> None:
    pages = {call for page in PAGES for step in steps(page) if isinstance(step, Command) for call in calls(step.text)}
    assert [each.command for each in ELSEWHERE if all(call in pages for call in calls(each.command))] == []


def test_nothing_executes_what_cannot_be_executed() -> None:
    assert [command for command in NOWHERE if all(map(is_executed, calls(command)))] == []


def test_the_rule_finds_a_command_that_nothing_executes() -> None:
    assert [text for text in UNKNOWN if are_known(text, is_executed)] == []
    assert [text for text in KNOWN if not are_known(text, is_executed)] == []


UNKNOWN = (
    "koord events --subject X",
    "koord nothing",
    "koord bus nothing NAME",
    "koord-scheduler --nothing",
    "make nothing",
    "make CALLS=nothing",
    "python -m tests.bench nothing",
    "docker compose logs nothing",
    "docker compose run --rm keys koord nothing",
    "docker compose run --rm nothing koord keys create",
)
KNOWN = ("koord get pods -o yaml", "docker compose logs jaeger", "docker compose run --rm keys koord keys create DIR")
