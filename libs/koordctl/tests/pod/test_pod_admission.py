"""What `koord explain pod` tells of admission: who changed the pod, and why one never came to be."""

from typing import Any

import msgspec
import pytest
from koordcore.events.admission import AdmissionDecided
from koordcore.events.envelope import StoredEvent
from koordcore.events.objects import PodSpecAdded, PodSpecDeleted
from koordcore.events.pod import PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values import codec
from koordcore.values.allocation import Allocation
from koordctl.pod.admission import decision_on_generated, decisions_about_pod, denials, is_admitted, stored_because
from koordctl.pod.lines import pod_lines
from koordctl.pod.story import PodStory, denied_pod, explained_pod
from support.explained_events import EXPLANATION, stored

REF = "admission.pods=d=web"
STEPS = ["ClusterColocationProfile/be", "ResourceTranslation"]
RULE: dict[str, Any] = {"rules": ["be-priority"], "message": "Pod: Forbidden: BE with koord-prod"}


def added(seq: int = 10, *, created: str | None = None) -> StoredEvent:
    pod = codec.convert({"metadata": {"name": "web", "namespace": "d", "creationTimestamp": created}}, Pod)
    return stored(seq, "podspec.u", PodSpecAdded(object=pod))


def decision(seq: int, *, based_on: int = 9, second: int = 10, **fields: Any) -> StoredEvent:
    """A decision whose request is number `seq`, as is the one that a fact at this position follows from."""
    given: dict[str, Any] = {
        "uid": str(seq),
        "source": "apply",
        "resource": "pods",
        "operation": "CREATE",
        "allowed": True,
        **fields,
    }
    return stored(seq, REF, AdmissionDecided(**given), second=second, based_on=based_on)


def lines(story: PodStory) -> list[str]:
    return [line.text.strip() for line in pod_lines(story)]


def test_a_pod_that_admission_changed_names_the_steps_before_anything_else() -> None:
    changed = decision(10, steps=STEPS)
    story = explained_pod("u", [added()], decisions_about_pod([added()], [changed]))
    assert [moment.step for moment in story.moments] == ["admitted", "submitted"]
    assert story.moments[0].steps == STEPS
    assert lines(story)[2].endswith("admitted           create, changed by " + ", ".join(STEPS))


def test_a_verdict_on_an_earlier_pod_of_the_name_is_not_told() -> None:
    assert decisions_about_pod([added()], [decision(3, steps=STEPS)]) == []


@pytest.mark.parametrize(
    ("second", "is_its_own"), [(5, True), (0, False), (20, True), (21, True), (22, False), (59, False)]
)
def test_a_webhooks_verdict_belongs_to_the_pod_that_was_stored_right_after_it(second: int, is_its_own: bool) -> None:
    fact = added(created="2026-01-01T00:00:20Z")
    told = decision(3, second=second, source="webhook", webhook="mutate", steps=STEPS)
    assert bool(decisions_about_pod([fact], [told])) is is_its_own


def test_what_was_refused_of_a_pod_that_lives_stands_where_it_happened() -> None:
    denied = decision(4, based_on=11, second=12, operation="UPDATE", allowed=False, user="ann", **RULE)
    before = decision(3, based_on=9, operation="APPLY", allowed=False, **RULE)
    after = decision(5, based_on=21, operation="APPLY", allowed=False, **RULE)
    facts = [added(), stored(20, "podspec.u", PodSpecDeleted(namespace="d", name="web"))]
    own = decisions_about_pod(facts, [before, denied, after])
    assert own == [denied]
    assert decisions_about_pod(facts, [before, denied, after], is_last=True) == [denied, after]
    story = explained_pod("u", facts, own)
    assert [moment.step for moment in story.moments] == ["submitted", "denied", "deleted"]
    assert story.moments[1].sentence == "update by ann: Pod: Forbidden: BE with koord-prod (be-priority)"


def test_a_pod_that_never_came_to_be_says_which_rules_refused_it_and_when() -> None:
    told = [decision(1, steps=STEPS), decision(2, operation="APPLY", allowed=False, **RULE)]
    story = denied_pod("d", "web", denials(told))
    assert (story.status, story.uid, [moment.rules for moment in story.moments]) == ("Denied", "", [["be-priority"]])
    assert lines(story) == [
        "Pod d/web: Denied",
        "2026-01-01 00:00:10.000 UTC  denied             apply: Pod: Forbidden: BE with koord-prod (be-priority)",
    ]


def test_a_pod_whose_first_fact_is_not_known_has_no_verdicts() -> None:
    assert decisions_about_pod([], [decision(1, steps=STEPS)]) == []


def test_the_annotations_that_a_placement_writes_are_shown() -> None:
    written = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'}
    placed = PodPlaced(
        namespace="d",
        name="web",
        node="n",
        requests={},
        attempt=1,
        queued_at="",
        explanation=EXPLANATION,
        annotations=written,
    )
    story = explained_pod("u", [added(), stored(11, "pod.u", placed)], [])
    assert msgspec.to_builtins(story)["moments"][1]["annotations"] == written
    assert 'writes scheduling.koordinator.sh/resource-status: {"cpuset":"0-1"}' in lines(story)


def test_an_annotation_that_the_pod_has_already_is_not_shown_as_written() -> None:
    spec = {keys.RESOURCE_SPEC: '{"requiredCPUBindPolicy":"FullPCPUs"}'}
    metadata = {"namespace": "d", "name": "web", "annotations": spec}
    submitted = stored(10, "podspec.u", PodSpecAdded(object=codec.convert({"metadata": metadata}, Pod)))
    placed = PodPlaced(
        namespace="d",
        name="web",
        node="n",
        requests={},
        attempt=1,
        queued_at="",
        explanation=EXPLANATION,
        allocation=Allocation(cpuset="0-1", cpu_bind_policy="FullPCPUs"),
    )
    story = explained_pod("u", [submitted, stored(11, "pod.u", placed)], [])
    assert list(story.moments[1].annotations) == [keys.RESOURCE_STATUS]


def generated(labels: dict[str, str], seq: int = 10) -> StoredEvent:
    """A pod whose name an API server made, stored at second 10."""
    metadata = {"namespace": "d", "name": "web-7d4-x2k9p", "creationTimestamp": "2026-01-01T00:00:10Z"}
    pod = codec.convert({"metadata": {**metadata, "labels": labels}}, Pod)
    return stored(seq, "podspec.u", PodSpecAdded(object=pod))


def unnamed(seq: int, **fields: Any) -> StoredEvent:
    """A webhook's decision on a pod with `generateName: web-7d4-`."""
    given: dict[str, Any] = {
        "namespace": "d",
        "name": "web-7d4-",
        "source": "webhook",
        "webhook": "mutate",
        "steps": STEPS,
    }
    return decision(seq, **{"second": seq, **given, **fields})


QOS = [{"op": "add", "path": "/metadata/labels/koordinator.sh~1qosClass", "value": "BE"}]
ALL_LABELS = [{"op": "add", "path": "/metadata/labels", "value": {"koordinator.sh/qosClass": "BE"}}]
OF_THE_SPEC = [{"op": "add", "path": "/spec/priority", "value": 5000}]


@pytest.mark.parametrize("patch", [QOS, ALL_LABELS, OF_THE_SPEC, []])
def test_a_pod_whose_name_was_made_is_given_the_last_verdict_before_it_that_fits(patch: list[dict[str, Any]]) -> None:
    fact = generated({"koordinator.sh/qosClass": "BE", "app": "web"})
    fitting = unnamed(7, patch=patch)
    others = [
        unnamed(3, patch=patch),
        unnamed(8, name="web-9-"),
        unnamed(8, namespace="e"),
        unnamed(8, resource="reservations"),
        unnamed(8, operation="UPDATE"),
        unnamed(8, allowed=False, steps=[]),
        unnamed(8, patch=[{"op": "add", "path": "/metadata/labels/koordinator.sh~1qosClass", "value": "LS"}]),
        unnamed(11, patch=patch),
    ]
    assert decision_on_generated(fact, [*others, fitting]) == fitting


def test_a_pod_that_no_verdict_fits_is_given_none() -> None:
    assert decision_on_generated(generated({}), [unnamed(7, patch=QOS)]) is None
    assert decision_on_generated(generated({}), []) is None


def test_verdicts_are_looked_for_where_an_api_server_may_have_asked() -> None:
    begin, end = stored_because(generated({}))
    assert (begin.isoformat(), end.isoformat()) == ("2025-12-31T23:59:55+00:00", "2026-01-01T00:00:11+00:00")


def test_who_let_a_pod_in_is_known() -> None:
    assert is_admitted([decision(3, steps=STEPS)])
    assert not is_admitted([decision(3, allowed=False), decision(4, operation="UPDATE")])
