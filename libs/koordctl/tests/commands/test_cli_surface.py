"""What a user sees of the commands without a running stack: help, wrong usage, one sentence instead of a traceback."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from koordcore.embedded.errors import EmbeddedError
from koordcore.embedded.identity import identify
from koordcore.embedded.stack import Phase, ProcessState, ProcessStatus, Stack, write_stack
from koordctl.__main__ import run
from koordctl.access.clients import state_file
from koordctl.app import EXPLAIN, app
from koordctl.kind_words import understood
from koordctl.kubectl_words import our_words
from koordctl.stack.nodes import host_node_name, simulated_nodes
from koordctl.stack.processes import StackOptions, choose_ports, delete_data, shared_clock, wipe
from typer.main import get_command
from typer.testing import CliRunner

pytestmark = pytest.mark.slow

README = Path(__file__).resolve().parents[4] / "README.md"
ALL_COMMANDS = README.parent / "docs" / "commands.md"
PLACEHOLDER_FILES = ("my.yaml",)


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command below one that is no group, with the words that call it."""
    for name, child in getattr(command, "commands", {}).items():
        words = (*path, name)
        if getattr(child, "commands", None):
            yield from leaves(child, words)
        else:
            yield " ".join(words), child


COMMANDS = dict(leaves(get_command(app)))


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No stack runs here."""
    for name in ("KOORD_NATS", "KOORD_MANAGER", "KOORD_SCHEDULER", "KOORD_DESCHEDULER", "KOORD_PROJECTOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KOORD_VAR", str(tmp_path / "var"))
    return tmp_path


def koord(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["koord", *words])
    return run(app)


def examples_of(command: str) -> list[str]:
    """The lines of a command's help that call `koord`."""
    _, _, examples = COMMANDS[command].help.partition("Examples:")
    return [line.strip() for line in examples.splitlines() if "koord " in line]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    answer = CliRunner().invoke(app, [*command.split(), "--help"])
    assert answer.exit_code == 0
    assert any(line.partition("koord ")[2].startswith(command) for line in examples_of(command))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_is_a_call_that_is_understood(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(README.parent / "examples")
    for name in PLACEHOLDER_FILES:
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    for line in examples_of(command):
        words = shlex.split(line.partition("koord ")[2].partition(" | ")[0])
        assert words[: len(command.split())] == command.split()
        COMMANDS[command].make_context(command, words[len(command.split()) :])
        named = [word for word in words if word.startswith("examples/")]
        assert all((tmp_path / name).exists() for name in named)


WRONG_USAGE: type[Exception] = typer.BadParameter.__mro__[1]
GROUPS = {" ".join(name.split()[:-1]) for name in COMMANDS}
PAGES = [
    page
    for page in sorted([README, *README.parent.glob("docs/**/*.md"), *README.parent.glob("examples/**/*.md")])
    if "decisions" not in page.parts
]
_BLOCK = re.compile(r"^ *```.*?^ *```$|(?:^    .*\n)+", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:docker compose run --rm(?: -\w+)* |\.venv/bin/)?koord (.*)$")


def calls_in(text: str) -> Iterator[str]:
    """What follows `koord` in the code of a page, up to a comment, a pipe or another command."""
    blocks = _BLOCK.findall(text)
    spans = re.findall(r"`([^`]+)`", _BLOCK.sub("", text))
    for line in [
        *(line.strip() for block in blocks for line in block.splitlines()),
        *map(" ".join, map(str.split, spans)),
    ]:
        if found := _CALL.match(line):
            yield re.split(r" +# | ──| \| | > | < | && | \|\| |; |\\$", found[1])[0].strip()


def translated(words: list[str]) -> list[str]:
    """The words of a call with our names of commands in the place of those of kubectl, and of other words for kinds."""
    ours = our_words(None, words, {entry.name for entry in EXPLAIN}) if words not in (["help"], ["version"]) else words
    below = {name.split()[1] for name in COMMANDS if name.split()[0] == ours[0] and " " in name}
    return [ours[0], *understood(ours[1:], below)]


def is_understood(call: str) -> bool:
    """Whether a command accepts the words of a call; values may be placeholders. The name of a group will do, too."""
    words = translated(shlex.split(call))
    name = next((name for name in COMMANDS if f"{' '.join(words)} ".startswith(f"{name} ")), None)
    if name is None:
        return " ".join(words) in GROUPS or words in (["--help"], ["--version"])
    command, given = COMMANDS[name], words[len(name.split()) :]
    for said in (given, [*given, "VALUE"]):  # a text may name an option without its value
        with contextlib.suppress(WRONG_USAGE):
            _, rest, _ = command.make_parser(command.context_class(command)).parse_args(list(said))
            if not rest:
                return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(README.parent)))
def test_every_call_of_koord_on_a_page_is_understood(page: Path) -> None:
    assert [call for call in calls_in(page.read_text()) if not is_understood(call)] == []


def test_the_page_of_all_commands_lists_each_once() -> None:
    listed = re.findall(r"^(?:\$ |\| `)koord ([a-z-]+(?: [a-z-]+)?)", ALL_COMMANDS.read_text(), re.M)
    called = [next(name for name in COMMANDS if f"{words} ".startswith(f"{name} ")) for words in listed]
    groups = {name.split()[0] for name in COMMANDS} - {"explain"}
    assert sorted(name.split()[0] for name in called if not name.startswith("explain")) == sorted(groups)
    assert [name for name in called if name.startswith("explain")] == [
        "explain pod",
        "explain node",
        "explain reservation",
        "explain migration",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["get", "pods"], ["apply", "-f", "/dev/null"], ["events"], ["replay"], ["verify"], ["status"],
        ["explain", "pod", "x"], ["explain", "node", "x"], ["bus", "streams"], ["bus", "consumers"],
        ["bus", "dlq", "list"], ["recommend"], ["drain", "node-1"],
    ],
)  # fmt: skip
def test_without_a_stack_every_command_says_so_in_one_sentence(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert koord(monkeypatch, *words) == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 1


def test_the_address_of_a_variable_is_named_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KOORD_MANAGER", "http://127.0.0.1:1")
    assert koord(monkeypatch, "get", "pods") == 1
    assert "manager at http://127.0.0.1:1 (KOORD_MANAGER names it): " in capsys.readouterr().err
    monkeypatch.setenv("KOORD_NATS", "nats://127.0.0.1:1")
    assert koord(monkeypatch, "events") == 1
    assert "the log at the address of KOORD_NATS: " in capsys.readouterr().err


def test_doctor_says_first_that_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert koord(monkeypatch, "doctor") == 1
    said = capsys.readouterr().out
    assert said.startswith("nothing runs here: `koord up`\n")
    assert "not started (optional)" in said


def stack_of_a_manager() -> Stack:
    """A running stack that has only a manager."""
    supervisor = identify(os.getpid())
    assert supervisor is not None
    manager = ProcessStatus(name="manager", state=ProcessState.READY, urls={"http": "http://127.0.0.1:1"})
    return Stack(phase=Phase.READY, supervisor=supervisor, processes=(manager,))


def test_commands_say_what_runs_in_the_folder(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_stack(state_file(nowhere / "var"), stack_of_a_manager())
    for words in (["drain", "node-1"], ["drain", "node-1", "--abort"]):
        assert koord(monkeypatch, *words) == 1
        said = "error: no descheduler runs: `koord down`, then `koord up --descheduler FILE`\n"
        assert capsys.readouterr().err == said
    assert koord(monkeypatch, "demo", "--var", str(nowhere / "var")) == 1
    assert "a demo or stack already runs in" in capsys.readouterr().err
    assert koord(monkeypatch, "up", "--speed", "60", "--no-agent", "--sync", "1s") == 1
    assert "running, but not with the given --speed, --no-agent: `koord down`, then" in capsys.readouterr().err
    assert koord(monkeypatch, "up", "--speed", "1") == 0


def test_a_drain_in_the_demo_names_a_stack_that_can_drain(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_stack(state_file(nowhere / "var" / "demo"), stack_of_a_manager())
    assert koord(monkeypatch, "drain", "node-1") == 1
    remedy = "`koord down`, then `koord up --simulated-nodes 5 --descheduler FILE`"
    said = f"error: the demo has no descheduler; to drain nodes of another stack: {remedy}\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["get", "flowers"], "unknown kind 'flowers'"),
        (["get", "podz"], "did you mean pod?"),
        (
            ["get", "pods", "-o", "foo"],
            "--output must be one of table, wide, yaml, json, name or jsonpath=TEMPLATE, got 'foo'",
        ),
        (["delete", "pod"], "KIND NAME"),
        (["events", "--kind", "flower"], "unknown kind flower"),
        (["nonsense"], "nonsense"),
        (["up", "--simulated-nodes", "/no/such/file"], "/no/such/file: must be a number or a file of Node manifests"),
        (["apply", "-f", "/no/such/file"], "/no/such/file: No such file"),
        (["lint", "/no/such/file"], "/no/such/file: No such file"),
        (["delete", "-f", "/no/such/file"], "/no/such/file: No such file"),
        (["scheduler", "check-config", "/no/such/file"], "/no/such/file"),
        (["replay", "--rerun-scheduler", "--config", "/no/such/file"], "/no/such/file"),
        (["get", "pods", "--as-of", "yesterday"], "--as-of must be a position"),
        (["get", "pods", "--to"], "No such option: --to"),
        (["get", "pods", "-l", "a=b=c"], "--selector: must be a label selector"),
        (["get", "pods", "-l", "a", "web"], "a name cannot be given with a selector"),
        (["get", "pods", "--field-selector", "spec.x=1"], "--field-selector: must be a field of Pod: metadata.name, "),
        (["get", "pod/a", "b"], "must be KIND/NAME, as the others, got 'b'"),
        (["get", "events"], "did you mean `koord events`?"),
        (["get", "pods", "-A", "web"], "an object cannot be named in all namespaces"),
        (["get", "pods", "-w", "--as-of", "5m"], "--watch shows what changes from now on"),
        (["get", "pods", "-o", "jsonpath={.a"], "--output: must be a JSONPath template (unclosed action)"),
        (["apply", "examples/pod.yaml"], "did you mean `koord apply -f examples/pod.yaml`?"),
        (["apply"], "did you mean `koord apply -f FILE`?"),
        (["logs", "web"], "`kubectl logs`"),
        (["cordon", "pod/web"], "must be the name of a Node, got 'pod/web'"),
    ],
)
def test_wrong_usage_is_status_2(
    words: list[str], part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert koord(monkeypatch, *words) == 2
    assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["lint"], ["scheduler", "check-config"], ["up", "--simulated-nodes"]],
    ids=" ".join,
)
def test_a_file_with_the_wrong_content_is_refused_with_status_1(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("kind: Flower\nmetadata: {name: rose}\n")
    assert koord(monkeypatch, *words, str(file)) == 1
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["scheduler", "check-config"]], ids=" ".join)
def test_who_reads_no_further_makes_no_command_fail(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "koordctl", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        said = running.stderr.read() if running.stderr is not None else ""
    assert (running.returncode, said) == (0, "")


def test_defect_becomes_a_sentence_and_a_file(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = typer.Typer()

    @broken.command()
    def explode() -> None:  # pyright: ignore[reportUnusedFunction]  # registered by the decorator
        """A command with a defect."""
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("sys.argv", ["koord"])
    assert run(broken) == 1
    said = capsys.readouterr().err
    assert "boom" in said
    assert "Traceback" not in said
    assert "ZeroDivisionError: boom" in (nowhere / "var" / "log" / "koord-defect.log").read_text()


def test_down_without_a_stack_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert koord(monkeypatch, "down") == 0


def test_simulated_nodes_come_from_a_number_or_a_file(tmp_path: Path) -> None:
    assert [node["metadata"]["name"] for node in simulated_nodes("2")] == ["node-1", "node-2"]
    file = tmp_path / "nodes.yaml"
    file.write_text("kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: {name: b}\n")
    assert [node["metadata"]["name"] for node in simulated_nodes(str(file))] == ["a", "b"]
    file.write_text("kind: Pod\nmetadata: {name: a}\n")
    with pytest.raises(typer.Exit):
        simulated_nodes(str(file))


def test_host_name_is_a_node_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "My_Laptop.local")
    assert host_node_name() == "my-laptop.local"


def test_ports_stay_the_same_while_they_are_free(tmp_path: Path) -> None:
    options = StackOptions(var=tmp_path)
    first = choose_ports(options, ["a", "b"])
    assert choose_ports(options, ["a", "b", "c"]).items() >= first.items()
    assert len(set(choose_ports(options, ["a", "b", "c"]).values())) == 3


def test_ports_follow_the_base_when_one_is_given(tmp_path: Path) -> None:
    assert choose_ports(StackOptions(var=tmp_path, port_base=20000), ["a", "b"]) == {"a": 20000, "b": 20001}


def test_only_a_stacks_own_folder_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years of work")
    with pytest.raises(EmbeddedError, match="other files"):
        wipe(StackOptions(var=tmp_path))
    (tmp_path / "ports.json").write_text("{}")
    wipe(StackOptions(var=tmp_path))
    assert not tmp_path.exists()


def test_the_data_of_a_stack_is_deleted_without_the_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "postgres").mkdir()  # such as the volume of a container
    with pytest.raises(EmbeddedError, match="is not from a stack"):
        delete_data(tmp_path)
    (tmp_path / "postgres").rmdir()
    assert not delete_data(tmp_path)
    choose_ports(StackOptions(var=tmp_path, port_base=20000), ["a"])
    (tmp_path / "keys").mkdir()
    (tmp_path / "log").symlink_to(tmp_path / "copy")
    with pytest.raises(EmbeddedError, match="log is a link"):
        delete_data(tmp_path)
    (tmp_path / "log").unlink()
    (tmp_path / "nats" / "jetstream").mkdir(parents=True)

    assert delete_data(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"copy", "keys", "ports.json"}
    assert not delete_data(tmp_path)


@pytest.mark.parametrize(
    "words", ["--simulated-nodes none.yaml", "--descheduler none.yaml", "--kubernetes --speed 60", "--speed 0"]
)
def test_wrong_options_delete_no_data(words: str, tmp_path: Path) -> None:
    (tmp_path / "nats").mkdir()
    (tmp_path / "ports.json").write_text("{}")
    answer = CliRunner().invoke(app, ["up", "--fresh", "--no-agent", "--var", str(tmp_path), *words.split()])
    assert answer.exit_code == 2
    assert (tmp_path / "nats").exists()


@pytest.mark.parametrize("words", ['pods -l " "', "pods -l ''", "-f pods.yaml -l app=web", "pod web -f pods.yaml"])
def test_a_deletion_that_says_too_little_or_too_much_deletes_nothing(words: str) -> None:
    answer = CliRunner().invoke(app, ["delete", *shlex.split(words)], env={"KOORD_MANAGER": "http://127.0.0.1:1"})
    assert answer.exit_code == 2


def test_clock_of_a_later_run_never_goes_back(tmp_path: Path) -> None:
    assert shared_clock(1, tmp_path) == "system"
    ahead = tmp_path / "clock"
    ahead.write_text("1.0@0.0@5000000000.0\n")
    assert float(shared_clock(60, tmp_path).split("@")[2]) > 5_000_000_000
    assert float(shared_clock(1, tmp_path).split("@")[2]) > 5_000_000_000


@pytest.mark.parametrize(("typed", "status"), [("koord g", 0), ("koord no-such", 1)])
def test_a_shell_is_told_whether_there_is_a_completion(
    typed: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_KOORD_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "is-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)
    assert koord(monkeypatch) == status


def test_a_closed_output_is_no_defect() -> None:
    program = "import sys; sys.stdout = None; from koordctl.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "status"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: nothing runs in ")
