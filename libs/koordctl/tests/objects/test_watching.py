"""`koord get --watch` shows an object again only if it has changed, whatever the columns of its kind are."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from koordctl.objects.asking import Answer, Question
from koordctl.objects.kinds import Target
from koordctl.objects.showing import Form
from koordctl.objects.watching import changes, seen

BEGIN = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
TABLE = Form("table", None, headers=True, labels=False)
META = {"name": "a", "namespace": "team", "creationTimestamp": "2026-11-29T11:59:00Z"}
UPDATED = {"updateTime": "2026-11-29T11:59:30Z"}


def rows(kind: str, *items: dict[str, Any], seconds: int = 0, form: Form = TABLE) -> Any:
    answer = Answer(kind, [*items], BEGIN + timedelta(seconds=seconds), [])
    return seen([answer], Question([Target(kind, None)], None, as_of="1"), form)


@pytest.mark.parametrize("output", ["table", "wide", "name", "yaml"])
@pytest.mark.parametrize(
    "kind", ["Namespace", "ConfigMap", "PriorityClass", "ElasticQuota", "PodGroup", "Recommendation", "Node", "Pod"]
)
def test_an_object_that_only_grows_older_is_not_shown_again(kind: str, output: str) -> None:
    form = TABLE._replace(output=output)
    item: dict[str, Any] = {"metadata": META, "spec": {"containers": []}, "status": UPDATED}
    assert [*changes(rows(kind, item, form=form), rows(kind, item, seconds=2, form=form))] == []


def test_a_change_is_shown_once_and_an_end_with_the_last_state() -> None:
    first = {"metadata": META, "data": {"a": "1"}}
    longer = {"metadata": META, "data": {"a": "1", "b": "2"}}
    before, after = rows("ConfigMap", first), rows("ConfigMap", longer, seconds=2)
    assert [row for _, row, _ in changes(before, after)] == [["team", "a", 2, "62s"]]
    assert [row for _, row, _ in changes(after, rows("ConfigMap", seconds=4))] == [["team", "a", 2, "62s"]]


def test_objects_of_one_name_in_two_namespaces_are_two() -> None:
    other: dict[str, Any] = {"metadata": {**META, "namespace": "shop"}, "data": {}}
    before, after = rows("ConfigMap", other), rows("ConfigMap", other, {"metadata": META, "data": {}})
    assert [row[:2] for _, row, _ in changes(before, after)] == [["team", "a"]]


def test_a_pod_is_shown_with_its_new_status_and_as_deleted() -> None:
    pod: dict[str, Any] = {"metadata": META, "spec": {"containers": []}, "status": {"phase": "Pending"}}
    runs: dict[str, Any] = {**pod, "spec": {"containers": [], "nodeName": "n"}, "status": {"phase": "Running"}}
    before, after = rows("Pod", pod), rows("Pod", runs)
    assert [row[1:3] for _, row, _ in changes(before, after)] == [["a", "Running"]]
    assert [row[1:3] for _, row, _ in changes(after, rows("Pod"))] == [["a", "Deleted"]]
