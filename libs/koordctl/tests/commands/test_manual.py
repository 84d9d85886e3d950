"""Man pages: one for each command, with what its help says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from koordctl.app import COMMANDS, app
from koordctl.manual import manual_pages
from koordctl.sketches import read_sketches
from typer.testing import CliRunner

pytestmark = pytest.mark.slow

PAGES = manual_pages(read_sketches(), "1.2.3")


def test_each_command_has_a_page_that_the_page_above_names() -> None:
    assert {f"koord-{entry.name}.1" for entry in COMMANDS} < set(PAGES)
    assert "koord-bus-dlq-list.1" in PAGES
    for name in PAGES.keys() - {"koord.1"}:
        above = name.removesuffix(".1").rpartition("-")[0]
        while f"{above}.1" not in PAGES:  # a command may have a hyphen
            above = above.rpartition("-")[0]
        escaped = name.removesuffix(".1").replace("-", r"\-")
        assert f".B {escaped}(1)" in PAGES[f"{above}.1"]


def test_a_page_has_the_options_and_examples_of_its_command() -> None:
    page = PAGES["koord-get.1"]
    sections = re.findall(r"^\.SH (.*)$", page, re.MULTILINE)
    assert sections == ["NAME", "SYNOPSIS", "ARGUMENTS", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"]
    assert r".B \-l, \-\-selector <str>" in page
    assert r"koord get pods \-\-watch" in page
    assert r'{"\en"}' in page  # a backslash of an example is not an escape of roff


def test_no_text_is_an_order_to_roff() -> None:
    requests = {line.split()[0] for page in PAGES.values() for line in page.splitlines() if line[:1] in (".", "'")}
    assert requests == {".TH", ".SH", ".TP", ".PP", ".B", ".nf", ".fi"}
    assert not [line for page in PAGES.values() for line in page.splitlines() if re.search(r"\\(?![-e&])", line)]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff checks what can be checked without it, too")
def test_groff_has_no_warnings(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["man", str(tmp_path / "man1")]).output
    assert said.startswith(f"{len(PAGES)} man pages in ")
    for name in ("koord.1", "koord-get.1", "koord-bus.1"):
        words = ["groff", "-man", "-Tutf8", "-ww", "-z", "-Kutf8", str(tmp_path / "man1" / name)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stderr == ""
