"""The files that are tried: what is worth a look in them is said, and what cannot be taken names its file."""

from pathlib import Path

import pytest
from koord_manager.domain.admission.context.facts import ConfigNames
from koordcore.protocol.manifests import read_documents
from koordctl.app import app
from koordctl.replay.manager import config_remarks, profile_remarks
from koordctl.replay.manager_rerun import read_chosen
from typer.testing import CliRunner

PROFILE = """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: batch}
spec: SPEC
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: koordinator-system}
data: {}
"""
SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{qosClass: BE, selecter: {}}", "spec.selecter: unknown field, it is dropped; did you mean selector?"),
        ("{selector: {matchExpressions: [{key: a, operator: Inn, values: [b]}]}}", "; the profile matches no pod"),
    ],
)
def test_a_profile_that_matches_otherwise_than_meant_is_worth_a_look(spec: str, said: str) -> None:
    (remark,) = profile_remarks(read_documents(PROFILE.replace("SPEC", spec).encode()))
    assert remark.startswith("batch: spec.sel")
    assert remark.endswith(said)


def test_a_profile_that_is_understood_is_not() -> None:
    spec = "{qosClass: BE, selector: {matchLabels: {a: b}}}"
    assert profile_remarks(read_documents(PROFILE.replace("SPEC", spec).encode())) == ()


def test_a_config_map_that_the_manager_does_not_read_is_worth_a_look() -> None:
    (document,) = read_documents(CONFIG.replace("NAME", "packed").encode())
    (remark,) = config_remarks(document, ConfigNames())
    assert "koordinator-system/slo-controller-config only, this is koordinator-system/packed" in remark
    assert config_remarks(document, ConfigNames(slo_name="packed")) == ()
    assert read_chosen([document]) == {}


@pytest.mark.parametrize(
    ("option", "text", "status", "said"),
    [
        ("--config", SCHEDULER, 1, "apiVersion, kind: must be one of"),
        ("--config", CONFIG.replace("NAME", "A b"), 1, "metadata.name: must be"),
        ("--config", "a: [", 2, "line "),
        ("--config", "# nothing", 2, "must contain the ConfigMap slo-controller-config"),
        ("--profiles", PROFILE.replace("SPEC", "{qosClass: [1]}"), 1, "spec.qosClass: must be"),
        (
            "--profiles",
            f"{PROFILE}---{PROFILE}".replace("SPEC", "{qosClass: 1}"),
            1,
            "documents[0].spec.qosClass: must",
        ),
        ("--profiles", "a: [", 2, "line "),
    ],
)
def test_a_fault_of_a_file_names_the_file(tmp_path: Path, option: str, text: str, status: int, said: str) -> None:
    file = tmp_path / "tried.yaml"
    file.write_text(text)
    answer = CliRunner().invoke(app, ["replay", "--rerun-manager", option, str(file)])
    assert f"error: {file}: {said}" in answer.output
    assert answer.exit_code == status


@pytest.mark.parametrize(
    "words",
    [
        ["scheduler", "check-config"],
        ["replay", "--rerun-scheduler", "--config"],
        ["descheduler", "check-config"],
        ["descheduler", "convert"],
        ["deschedule", "--dry-run", "--config"],
        ["replay", "--rerun-descheduler", "--config"],
        ["lint"],
    ],
)
@pytest.mark.parametrize("text", ["a: [", "", "# nothing\n---\n"])
def test_a_file_that_cannot_be_read_is_wrong_usage_everywhere(tmp_path: Path, words: list[str], text: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    answer = CliRunner().invoke(app, [*words, str(file)])
    assert f"{file}: " in answer.output
    assert answer.exit_code == 2
