"""The documentation names files that exist, and the guide says the same in English and in Chinese."""

import re
from pathlib import Path

import pytest
from koordcore.service.telemetry.metrics import PUBLIC_LABELS
from support.guide import GUIDE, blocks

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
    named = {
        found
        for page in PAGES
        for found in re.findall(r"`((?:tests|libs|services)/[\w/]+\.py)::(\w+)`", page.read_text())
    }
    assert len(named) > 10
    missing = [f"{file}::{test}" for file, test in sorted(named) if f"def {test}(" not in _text(ROOT / file)]
    assert missing == []


def test_each_row_of_the_security_page_names_its_proof() -> None:
    """`the same test` refers to the row before."""
    rows = re.findall(r"^\|.*\|$", (ROOT / "docs" / "security.md").read_text(), re.MULTILINE)
    heads = [below - 1 for below, row in enumerate(rows) if set(row) <= {"|", "-"}]
    assert [rows[head] for head in heads if not rows[head].endswith("| proof |")] == []
    others = [row for number, row in enumerate(rows) if number not in heads and number - 1 not in heads]
    assert [row for row in others if not re.search(r"(::\w+`|the same test) \|$", row)] == []


def test_no_public_label_of_a_metric_names_an_object() -> None:
    """Strangers see series that have public labels only. Each label of the page of metrics was looked at once."""
    rows = re.findall(r"^\| `(\w+)` \| \w+ \| ([^|]*) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    labels = {label for _, cell in rows for label in re.findall(r"`(\w+)`", cell)}
    assert len(labels) > 40
    naming = re.compile(r"node|pod|namespace|container|name$|uid|parent|tree|instance|job|path|qos")
    assert sorted(label for label in labels & PUBLIC_LABELS if naming.search(label)) == ["job_size", "plugin_name"]
    assert {
        "node",
        "pod_name",
        "namespace",
        "elasticquota_name",
        "jobName",
        "name",
        "instance",
    } <= labels - PUBLIC_LABELS


def test_the_guide_has_the_same_pages_in_both_languages() -> None:
    assert names(GUIDE) == names(GUIDE / "zh")


def names(folder: Path) -> set[str]:
    return {page.name for page in folder.glob("*.md")}


@pytest.mark.parametrize("page", sorted(GUIDE.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_has_the_same_sections_tables_and_commands_in_both_languages(page: Path) -> None:
    translated = GUIDE / "zh" / page.name
    assert outline(translated) == outline(page)
    assert blocks(translated) == blocks(page)


def test_the_site_has_every_page_in_its_navigation() -> None:
    """`make docs` does not fail on a page that nobody can find."""
    named = set(re.findall(r"(?:[\w/-]+/)?[\w-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nhooks:")[0]))
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    assert pages == named - {"index.md"}


def outline(page: Path) -> list[str]:
    """Return the level of each heading, and the columns of each row of a table, in their order."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    marks = re.findall(r"^(#+ |\|.*\|$)", text, re.MULTILINE)
    return [mark if mark.startswith("#") else f"{mark.count('|') - 1} columns" for mark in marks]


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
