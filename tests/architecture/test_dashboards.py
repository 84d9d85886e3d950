"""Every metric of the dashboards and alerts exists in a service, with the labels by which it is grouped."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_agent.shell.metrics.series import PREFIX, SERIES
from support.metrics_page import PAGE, defined_labels, listed
from support.sources import all_sources

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy" / "dashboards").glob("*.json"))
ALERTS = ROOT / "deploy" / "alerts" / "koordstream.yml"
ALERT_FILES = (ALERTS, ROOT / "deploy" / "alerts" / "kubernetes.yml")
CASES = Path(__file__).with_name("alert_cases.yml")
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool not installed (apt-get install prometheus)"
)
METRIC = re.compile(r"\b(?:koord|koordlet|koordinator|scheduler|slo)_[a-z0-9_]+\b")
SUFFIX = re.compile(r"_(total|bucket|sum|count)$")
SCRAPED = {"service", "instance", "le"}
"""Labels that Prometheus adds, or that every histogram has."""

pytestmark = pytest.mark.xdist_group("sources")


def expressions() -> Iterator[tuple[str, str]]:
    """(where, expression) of every dashboard and alert."""
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{file.name}: {panel['title']}", target["expr"]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@cache
def quoted(sources: str) -> frozenset[str]:
    """The words that stand between quotation marks."""
    return frozenset(re.findall(r'(?<=")[a-z0-9_]+(?=")', sources))


@cache
def beginnings(sources: str) -> frozenset[str]:
    """The words that end with an underscore before a brace, as in f"scheduler_{name}"."""
    return frozenset(re.findall(r"([a-z0-9_]*_)\{", sources))


def is_defined(name: str, sources: str) -> bool:
    """Whether the code names a metric: whole, or in two parts as in f"scheduler_{name}"."""
    whole = SUFFIX.sub("", name)
    for candidate in (name, whole, whole.split("_", 1)[1]):
        if candidate in quoted(sources):
            return True
        for cut in (found.start() for found in re.finditer("_", candidate)):
            beginning = candidate[: cut + 1]
            if candidate[cut + 1 :] in quoted(sources) and any(
                each.endswith(beginning) for each in beginnings(sources)
            ):
                return True
    return False


@pytest.fixture(scope="module")
def sources() -> str:
    """All code in which metrics are defined."""
    return "\n".join(source.text for source in all_sources())


def test_every_metric_of_dashboards_and_alerts_exists(sources: str) -> None:
    unknown = {
        (where, name)
        for where, expression in expressions()
        for name in METRIC.findall(expression)
        if not is_defined(name, sources)
    }
    assert not unknown


def test_every_metric_of_the_code_is_on_the_page_with_its_labels() -> None:
    """`tests/e2e/test_metrics.py` writes the page, and compares it with running services."""
    page = {name.removesuffix("_total"): family.labels for name, family in listed(PAGE.read_text()).items()}
    defined = defined_labels() | {PREFIX + name: set(labels) for name, (_, labels) in SERIES.items()}
    assert len(defined) > 100
    assert {
        name: labels for name, labels in defined.items() if not labels <= page.get(name, set()) or name not in page
    } == {}


def test_every_label_by_which_a_metric_is_grouped_exists(sources: str) -> None:
    unknown = {
        (where, label)
        for where, expression in expressions()
        for labels in re.findall(r"by \(([^)]*)\)", expression)
        for label in labels.replace(" ", "").split(",")
        if label not in SCRAPED and label not in quoted(sources)
    }
    assert not unknown


def rules() -> list[dict[str, Any]]:
    """Every alert of both files."""
    groups = [group for file in ALERT_FILES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_has_a_section_in_the_runbook() -> None:
    """Other sections are those to which doctor and the commands lead."""
    text = (ROOT / "docs" / "runbook.md").read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 ]", "", title.lower()).replace(" ", "-") for title in titles}
    wanted = {rule["alert"]: rule["annotations"]["runbook_url"].partition("#")[2] for rule in rules()}
    assert set(wanted.values()) <= anchors


def test_dashboards_have_their_own_ids_and_panels() -> None:
    boards = [json.loads(file.read_text()) for file in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == len(boards)
    for board in boards:
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@needs_promtool
def test_prometheus_accepts_the_alerts_and_every_expression_of_a_dashboard(tmp_path: Path) -> None:
    records = [{"record": f"check:{number}", "expr": text} for number, (_, text) in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": records}]}))
    for each in (file, *ALERT_FILES):
        assert promtool("check", "rules", "--lint-fatal", str(each)) == ""


def promtool(*words: str) -> str:
    """What promtool says against its input; empty if it passes."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.deep
@needs_promtool
def test_each_alert_fires_with_its_fault_only() -> None:
    assert promtool("test", "rules", str(CASES)) == ""
    cases = [case for each in yaml.safe_load(CASES.read_text())["tests"] for case in each["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if "exp_alerts" in case} == names
    assert {case["alertname"] for case in cases if "exp_alerts" not in case} == names
