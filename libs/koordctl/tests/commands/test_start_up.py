"""What a command loads before it does anything: no more than it uses."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from koordctl.app import COMMANDS, EXPLAIN, app
from koordctl.lazy_tree import Entry
from typer.main import get_command
from typer.testing import CliRunner

pytestmark = pytest.mark.slow

LOADED = """
import sys
from koordctl.__main__ import main
try:
    main()
except SystemExit:
    pass
print("loaded", *sorted(sys.modules))
"""
SERVICES = {"koord_manager", "koord_scheduler", "koord_agent", "koord_projector"}
ENGINES = {"numpy", "numba", "sqlalchemy", "asyncpg", "kubernetes", "kubernetes_asyncio", "opentelemetry"}
CLIENTS = {"httpx", "aiohttp", "structlog", "prometheus_client"}
LOG = {"nats", "nacl", "koordcore.bus", "asyncio"}
SLOW = {"pydantic", "rich", "pygments", "markdown_it", "yaml"}
"""Libraries whose import takes as long as a command that reads may take."""
ALL = SERVICES | ENGINES | CLIENTS | LOG | SLOW


def loaded_by(words: list[str], folder: Path, **variables: str) -> set[str]:
    """The modules, and the packages above them, that a command has loaded by its end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOORD_")}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "KOORD_VAR": str(folder), **variables},
    )
    names = done.stdout.rpartition("loaded ")[2].split()
    return {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)}


UNUSED = [
    (["get", "pods"], ALL),
    (["get", "nodes"], ALL),
    (["top", "node"], ALL),
    (["top", "pod", "--limit", "3"], ALL),
    (["gang"], ALL),
    (["quota", "tree"], ALL),
    (["status"], SERVICES | ENGINES | CLIENTS | {"nats", "nacl", "koordcore.bus"} | SLOW),
    (["explain", "pod", "x"], SERVICES | ENGINES | CLIENTS | {"nats", "nacl", "koordcore.bus"} | SLOW),
    (["explain", "node", "x"], SERVICES | ENGINES | CLIENTS | SLOW),
    (["events"], SERVICES | ENGINES | CLIENTS | SLOW),
    (["bus", "streams"], SERVICES | ENGINES | CLIENTS),
    (["lint", os.devnull], (SERVICES - {"koord_manager"}) | ENGINES | CLIENTS | LOG),
    (["scheduler", "check-config"], (SERVICES - {"koord_scheduler"}) | ENGINES | CLIENTS | LOG),
]


@pytest.mark.parametrize(("words", "unused"), UNUSED, ids=[" ".join(words) for words, _ in UNUSED])
def test_a_command_loads_nothing_that_it_does_not_use(words: list[str], unused: set[str], tmp_path: Path) -> None:
    assert loaded_by(words, tmp_path) & unused == set()


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["drain", "--help"], ["bus", "dlq", "-h"], ["explain", "pod", "-h"]],
    ids=" ".join,
)
def test_help_and_version_load_no_command(words: list[str], tmp_path: Path) -> None:
    loaded = loaded_by(words, tmp_path)
    assert loaded & ALL == set()
    assert "koordctl.app" in loaded
    assert {name for name in loaded if name.count(".") == 1 and name.startswith("koordctl.")} == {
        "koordctl.__main__",
        "koordctl.app",
        "koordctl.kind_words",
        "koordctl.kubectl_words",
        "koordctl.lazy_tree",
        "koordctl.plain_values",
        "koordctl.sketches",
    }
    assert {"asyncio", "koordcore.events"} & loaded == set()


@pytest.mark.parametrize("typed", ["koord g", "koord drain n --", "koord get pods -o ", "koord bus dlq "])
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_completion_loads_no_command(typed: str, shell: str, tmp_path: Path) -> None:
    variables = {
        "_KOORD_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": typed,
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1),
    }
    loaded = loaded_by([], tmp_path, **variables) - {"rich"}  # it is named as missing
    assert loaded & ALL == set()
    assert not {name for name in loaded if re.fullmatch(r"koordctl\.(access|objects|descheduling|log|render).*", name)}


@pytest.mark.parametrize("typed", ["koord get p", "koord get pods ", "koord explain pod ", "koord cordon "])
def test_completion_of_kinds_and_names_loads_little(typed: str, tmp_path: Path) -> None:
    variables = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    loaded = loaded_by([], tmp_path, _KOORD_COMPLETE="complete_bash", **variables) - {"rich"}
    assert loaded & ALL == set()
    assert "koordctl.completing" in loaded


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_list_of_commands_says_what_their_own_help_says(entry: Entry) -> None:
    tree: Any = get_command(app)
    command = tree.commands[entry.name]
    assert entry.summary == " ".join(str(command.help).partition("\n\n")[0].split())


def test_the_list_of_commands_is_in_sections() -> None:
    _, *sections = re.split(r"^(?=\S.*:$)", CliRunner().invoke(app, ["--help"]).output, flags=re.MULTILINE)
    listed = {section.partition(":")[0]: re.findall(r"^  ([a-z]+) ", section, re.MULTILINE) for section in sections}
    panels = dict.fromkeys(entry.panel for entry in COMMANDS)
    assert {panel: listed[panel] for panel in panels} == {
        panel: [entry.name for entry in COMMANDS if entry.panel == panel] for panel in panels
    }


@pytest.mark.parametrize("entry", EXPLAIN, ids=lambda entry: entry.name)
def test_the_list_of_what_is_explained_says_what_their_own_help_says(entry: Entry) -> None:
    tree: Any = get_command(app)
    command = tree.commands["explain"].commands[entry.name]
    assert entry.summary == " ".join(str(command.help).partition("\n\n")[0].split())
