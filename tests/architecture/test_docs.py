"""The documentation names files that exist: paths in `docs/architecture.md`, and every relative link."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (*ROOT.glob("libs/*/src"), *ROOT.glob("services/*/src"))
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")],
    key=str,
)


def test_every_step_of_the_architecture_names_a_file_that_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`(koord\w*/[\w/]+\.py)`", text))
    assert len(named) > 50
    missing = [path for path in sorted(named) if not any((source / path).exists() for source in SOURCES)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_every_proof_that_a_page_names_is_a_test() -> None:
    named = {found for page in PAGES for found in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text())}
    assert len(named) > 10
    missing = [f"{file}::{test}" for file, test in sorted(named) if f"def {test}(" not in _text(ROOT / file)]
    assert missing == []


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
