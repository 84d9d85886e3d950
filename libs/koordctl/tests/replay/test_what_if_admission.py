"""Profiles and gates to try as they are written, decisions that are still retained, and the report of differences."""

from pathlib import Path
from typing import Any

import pytest
from koord_manager.domain.what_if.admission import AdmissionFate
from koord_manager.domain.what_if.admission_outcome import Change, Outcome
from koord_manager.domain.what_if.recording import Tally
from koordcore.bus.adapters.memory import MemoryObservationLog
from koordcore.events.admission import AdmissionDecided, admission_ref
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.events.explanations import PodGated
from koordcore.protocol.manifests import InvalidManifest, read_documents
from koordcore.values.invalid import InvalidInput
from koordctl.app import app
from koordctl.replay.admission import (
    AdmissionComparison,
    read_gates,
    read_profiles,
    retained_decisions,
    show_admission,
    title,
    tried_of,
)
from typer.testing import CliRunner

PROFILE = """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: NAME}
spec: {qosClass: BE, selector: {matchLabels: {a: b}}}
"""


def test_the_profiles_of_a_file_are_read_by_name() -> None:
    found = read_profiles(read_documents("---".join(PROFILE.replace("NAME", name) for name in ("one", "two")).encode()))
    assert {name: profile.qos_class for name, profile in found.items()} == {"one": "BE", "two": "BE"}
    assert read_profiles([]) == {}


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}",
        f"{PROFILE}---{PROFILE}",
        PROFILE.replace("NAME", "a B"),
        PROFILE.replace("qosClass: BE", 'probability: "x"'),
        PROFILE.replace("qosClass: BE", "qosClass: [1]"),
    ],
)
def test_a_file_that_is_no_list_of_profiles_is_refused(text: str) -> None:
    with pytest.raises((InvalidInput, InvalidManifest)):
        read_profiles(read_documents(text.encode()))


def test_only_the_gates_that_are_named_are_tried() -> None:
    assert read_gates("") == {}
    assert read_gates("MultiQuotaTree=true,PodMutatingWebhook=false") == {
        "MultiQuotaTree": True,
        "PodMutatingWebhook": False,
    }
    assert read_gates("AllAlpha=true")["MultiQuotaTree"] is True
    with pytest.raises(InvalidInput):
        read_gates("NoSuchGate=true")


def test_nothing_is_tried_unless_something_is_given() -> None:
    assert tried_of(None, {}) is None
    assert tried_of({}, {}) is not None
    assert tried_of(None, {"MultiQuotaTree": False}) is not None


def test_a_gate_that_says_what_the_manager_was_tries_nothing() -> None:
    assert tried_of(None, {"EnableSyncGPUSharedResource": True}) is None
    tried = tried_of(None, {"EnableSyncGPUSharedResource": True, "MultiQuotaTree": True})
    assert tried is not None
    assert tried.gates == {"MultiQuotaTree": True}


async def test_verdicts_on_admission_are_picked_and_it_is_known_since_when() -> None:
    async def publish(stream: MemoryObservationLog, at: str) -> None:
        origin = Origin(causation_id=at, correlation_id="c", actor="a", occurred_at=at)
        verdict = AdmissionDecided(uid=at, source="apply", resource="pods", operation="CREATE", allowed=True)
        await stream.publish(admission_ref("pods", "n", "p"), verdict, origin)
        await stream.publish(AggregateRef("pod", "u"), PodGated(namespace="n", name="p", message="m"), origin)

    everything, some = MemoryObservationLog(), MemoryObservationLog(keep=4)
    assert await retained_decisions(everything) == ([], "")
    for stream in (everything, some):
        for at in ("1", "2", "3"):
            await publish(stream, at)
    found, since = await retained_decisions(everything)
    assert ([one.causation_id for one in found], since) == (["1", "2", "3"], "")
    found, since = await retained_decisions(some)
    assert since
    assert [one.causation_id for one in found] == ["2", "3"]


def fate(recorded: Outcome, rerun: Outcome, *changes: Change) -> AdmissionFate:
    return AdmissionFate("pods", "shop", "web", "CREATE", "apply", "now", 7, recorded, rerun, list(changes))


def comparison(*fates: AdmissionFate, **more: Any) -> AdmissionComparison:
    values: dict[str, Any] = {"tally": Tally(3, 2, 2, 1), "not_reviewed": 0, "unexplained": []}
    return AdmissionComparison(fates=list(fates), **{**values, **more})


IN, OUT = Outcome(True), Outcome(False, rules=("r",), fields=("f",), message="it must not")
FATES = [fate(IN, IN, Change("metadata.labels.a", None, "x" * 100)), fate(IN, OUT), fate(OUT, IN), fate(OUT, OUT)]


def test_objects_are_told_apart_by_what_becomes_of_them() -> None:
    found = comparison(*FATES)
    kinds = (found.changed, found.denied, found.admitted, found.denied_by_other_rules)
    assert kinds == tuple([one] for one in FATES)
    document = found.document()
    assert document["changed"][0]["changes"] == [{"field": "metadata.labels.a", "recorded": None, "rerun": "x" * 100}]
    assert document["deniedInsteadOfAdmitted"][0]["rerun"]["message"] == "it must not"
    assert document["decisions"]["recorded"] == 3
    assert title(FATES[0]) == "pods shop/web"


def test_what_differs_is_shown_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    show_admission(comparison(*FATES, not_reviewed=2, unexplained=[FATES[1]]))
    shown = capsys.readouterr().out
    for part in (
        "3 decisions of admission recorded; under the recorded profiles and gates, 2 were repeated and 2 gave",
        "1 of them were not repeated",
        "2 pods lack the changes",
        "WITH THE RECORDED SETTINGS",
        "denied instead of admitted   1",
        "it must not",
        "metadata.labels.a   -",
    ):
        assert part in shown, shown
    assert "x" * 80 not in shown
    show_admission(comparison(tally=Tally()))
    assert capsys.readouterr().out == ""


def test_profiles_are_refused_where_the_manager_is_not_rerun(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(PROFILE)
    assert CliRunner().invoke(app, ["replay", "--profiles", str(file)]).exit_code == 2


def test_a_file_with_a_fault_is_named(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}")
    answer = CliRunner().invoke(app, ["replay", "--rerun-manager", "--profiles", str(file)])
    assert answer.exit_code == 1
    assert "ClusterColocationProfile" in answer.output
