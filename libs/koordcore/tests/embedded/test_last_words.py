"""Why a process ended, read from its log."""

from pathlib import Path

import pytest
from koordcore.embedded.process import last_words

ERROR = '{"level":"error","event":"compose_failed","error":"profiles[0]: must be\\nknown"}'
INFO = '{"level":"info","event":"service_stopped"}'
NAMED = '{"level":"error","event":"log_full"}'
TRACEBACK = "Traceback (most recent call last):\n  File \"x.py\", line 1\nModuleNotFoundError: No module named 'slots'"

LOGS = [
    (ERROR, "profiles[0]: must be known"),
    (f"{ERROR}\n{INFO}\n\n", "profiles[0]: must be known"),
    (f"{ERROR}\n{NAMED}", "log_full"),
    (f"{INFO}\n{TRACEBACK}", "ModuleNotFoundError: No module named 'slots'"),
    (INFO, ""),
    ("[1] [FTL] no such setting", "[1] [FTL] no such setting"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "words"), LOGS)
def test_the_last_error_of_a_log_is_told_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    log = tmp_path / "service.log"
    log.write_text(text)
    assert last_words(log) == words


def test_an_error_of_an_earlier_run_is_not_told(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text(f"{ERROR}\n{INFO}\n")
    assert last_words(log, since=len(ERROR) + 1) == ""


def test_a_log_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    assert last_words(tmp_path / "none.log") == ""


def test_long_words_are_cut(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text("x" * 1000)
    assert last_words(log) == "x" * 400 + "..."
