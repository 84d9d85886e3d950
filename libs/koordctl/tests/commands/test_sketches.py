"""The sketches say what the commands say, and a command is called if help was not meant."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from koordctl.app import app
from koordctl.completing import kind_words
from koordctl.objects.kinds import kind_named
from koordctl.sketches import CommandSketch, read_sketches, sketched
from koordctl.sketching import all_kind_words, all_sketches
from typer.main import get_command
from typer.testing import CliRunner

pytestmark = pytest.mark.slow


def paths(sketches: dict[str, CommandSketch], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, found in sketches.items():
        yield (*above, name)
        yield from paths(found["commands"], (*above, name))


def help_of(command: Any, words: tuple[str, ...]) -> str:
    """What `--help` prints after the words that follow the name of the command."""
    root: Any = get_command(app)
    with root.make_context("koord", [words[0]], resilient_parsing=True) as context:
        context = command.make_context(words[0], [], parent=context, resilient_parsing=True)
        for word in words[1:]:
            command = command.commands[word]
            context = command.make_context(word, [], parent=context, resilient_parsing=True)
        return str(context.get_help())


def test_sketches_are_those_of_the_commands() -> None:
    assert read_sketches() == all_sketches(), "run `make schemas`"
    assert files("koordctl").joinpath("sketches.json").read_bytes().endswith(b"}\n")


def test_the_words_for_kinds_are_those_of_the_definitions() -> None:
    assert kind_words() == all_kind_words(), "run `make schemas`"
    assert {word: kind_named(word) for word in kind_words()} == kind_words()


@pytest.mark.parametrize("words", [*paths(read_sketches())], ids=" ".join)
def test_a_sketch_shows_the_help_of_its_command(words: tuple[str, ...]) -> None:
    def unused() -> Any:
        raise AssertionError("help calls no command")

    command = sketched(words[0], read_sketches()[words[0]], unused)
    shown = CliRunner().invoke(app, [*words, "--help"]).output
    # The two are wrapped at different widths.
    assert "".join(help_of(command, words).split()) == "".join(shown.split())


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["apply", "-f", "-h"], 2, "error: -h: No such file or directory\n"),
        (["get", "--bad", "--help"], 2, "No such option: --bad"),
        (["bus", "skip", "--help", "--bad"], 2, "No such option: --bad"),
    ],
    ids=["value of an option", "before help", "after help"],
)
def test_a_word_like_help_may_be_a_value(words: list[str], status: int, said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "koordctl", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "KOORD_VAR": str(tmp_path)},
    )
    assert (done.returncode, said in done.stderr) == (status, True)
