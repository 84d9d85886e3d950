"""What a shell offers, and that nothing but offers reaches the line that the user types."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def completed(typed: str, folder: Path, **variables: str) -> tuple[list[str], str]:
    """The offers for a line, and what is said besides."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOORD_")}
    done = subprocess.run(
        [sys.executable, "-m", "koordctl"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={
            **environment,
            "KOORD_VAR": str(folder),
            "_KOORD_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
            **variables,
        },
    )
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize("typed", ["koord logs ", "koord logs web ", "koord exec w", "koord version "])
def test_a_word_without_a_command_here_offers_nothing(typed: str, tmp_path: Path) -> None:
    assert completed(typed, tmp_path) == ([], "")


def test_after_help_stand_commands(tmp_path: Path) -> None:
    assert completed("koord help expl", tmp_path) == (["explain"], "")
    assert completed("koord help explain po", tmp_path) == (["pod"], "")


@pytest.mark.parametrize(
    "variables",
    [
        {"KOORD_MANAGER": "http://127.0.0.1:1", "KOORD_TOKEN_FILE": "/missing"},
        {"KOORD_MANAGER": "https://127.0.0.1:1", "KOORD_CA": "/missing"},
        {"KOORD_MANAGER": "no address"},
    ],
    ids=["no token", "no authority", "no address"],
)
def test_what_keeps_from_asking_for_names_is_not_said(variables: dict[str, str], tmp_path: Path) -> None:
    assert completed("koord get pods ", tmp_path, **variables) == ([], "")


def test_half_a_state_file_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stack.json").write_text('{"phase": "rea')
    assert completed("koord get pods ", tmp_path) == ([], "")
    assert completed("koord get po", tmp_path)[0]


@pytest.mark.parametrize("words", [["g"], ["logs", ""]], ids=["offers", "no offers"])
def test_kubectl_may_stop_to_read(words: list[str], tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "kubectl_complete-koord"
    environment = {**os.environ, "KOORD_VAR": str(tmp_path)}
    with subprocess.Popen(
        [program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        said = running.stderr.read()
    assert (running.returncode, said) == (0, b"")
