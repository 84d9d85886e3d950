"""`koord lint`: what would become of files, without a cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
from koord_manager.domain.admission.options import Options
from koordcore.protocol.manifests import read_documents
from koordctl.app import app
from koordctl.objects.lint import Finding, Linter
from typer.testing import CliRunner

EXAMPLES = Path(__file__).parents[4] / "examples"
PROFILE = """
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: be}
spec:
  selector: {matchLabels: {class: batch}}
  qosClass: BE
  priorityClassName: koord-batch
  patch: {metadata: {labels: {class: null}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {class: batch}}
spec:
  containers:
  - {name: main, image: nginx, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}
"""


def lint(*texts: str, **gates: bool) -> list[Finding]:
    return Linter(Options(gates=gates)).judge(document for text in texts for document in read_documents(text.encode()))


def rules(finding: Finding) -> list[str]:
    return [violation.rule.rpartition(" ")[2] for violation in finding.violations]


def test_what_stands_before_a_document_is_applied_to_it() -> None:
    _, pod = lint(PROFILE, POD)

    assert pod.steps == ("ClusterColocationProfile/be", "ResourceTranslation", "ExtendedResourceSpec")
    assert {"op": "remove", "path": "/metadata/labels/class"} in pod.patch
    assert not pod.violations
    assert lint(POD, PROFILE)[0].steps == ()


def test_a_quota_is_judged_against_the_tree_of_the_files() -> None:
    quota = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata:
  name: {name}
  namespace: kube-system
  labels: {{quota.scheduling.koordinator.sh/is-parent: "{is_parent}", quota.scheduling.koordinator.sh/parent: {parent}}}
spec: {{min: {{cpu: {min}}}, max: {{cpu: 10}}}}
"""
    root = quota.format(name="all", is_parent="true", parent="''", min=4)
    children = [quota.format(name=f"q{each}", is_parent="false", parent="all", min=3) for each in range(2)]

    findings = lint(root, *children)

    assert [rules(finding) for finding in findings] == [[], [], ["min-sum-exceeds-parent"]]


def test_a_configuration_is_told_everything_that_is_wrong_with_it() -> None:
    config = """
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: |
    {"cpuReclaimThresholdPercent": -1, "degradeTimeMinutes": "soon",
     "nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "updateTimeThresholdSeconds": 0}]}
  resource-threshold-config: '{"clusterStrategy": {"cpuSuppressThresholdPercent": 165}'
  resource-qos-config: '{"clusterStrategy": {"beClass": {"cpuQOS": {"groupIdentity": 9}}}}'
"""
    (finding,) = lint(config)
    assert [violation.path for violation in finding.violations] == [
        "colocation-config.degradeTimeMinutes",
        "colocation-config.cpuReclaimThresholdPercent",
        "colocation-config.nodeConfigs[0].updateTimeThresholdSeconds",
        "resource-threshold-config",
        "resource-qos-config.clusterStrategy.beClass.cpuQOS.groupIdentity",
    ]


def test_gates_are_those_of_the_manager() -> None:
    gpu = POD.replace("cpu: 1", "koordinator.sh/gpu: 150")

    assert rules(lint(gpu)[0]) == []
    off_then_on = {"DisableDeviceResourceSpec": True, "ValidatePodDeviceResource": True}
    assert rules(lint(gpu, **off_then_on)[0]) == ["gpu-not-multiple-of-100"]


@pytest.mark.parametrize("folder", [EXAMPLES])
def test_the_examples_are_good(folder: Path) -> None:
    texts = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.yaml"))]

    assert [finding for finding in lint(*texts) if finding.violations or finding.warnings] == []


def test_a_value_that_nobody_understands_is_warned_about_and_taken() -> None:
    (pod,) = lint(POD.replace("class: batch", "koordinator.sh/qosClass: BestEffort"))

    assert pod.violations == ()
    (warning,) = pod.warnings
    assert warning.startswith("metadata.labels[koordinator.sh/qosClass]: should be one of LSE, LSR, LS, BE, SYSTEM, ")


def test_the_command_reports_every_document_and_fails_for_one(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{PROFILE}---{POD}", encoding="utf-8")
    (tmp_path / "b.yaml").write_text(POD.replace("class: batch", "koordinator.sh/qosClass: BE"), encoding="utf-8")
    (tmp_path / "c.yaml").write_text("a: [", encoding="utf-8")

    good = CliRunner().invoke(app, ["lint", str(tmp_path / "a.yaml"), "--patch"])
    assert good.exit_code == 0, good.output
    assert "pod/web in default ok, changed by ClusterColocationProfile/be" in good.output
    assert '"path":"/spec/priorityClassName"' in good.output

    refused = CliRunner().invoke(app, ["lint", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")])
    assert refused.exit_code == 1

    bad = CliRunner().invoke(app, ["lint", str(tmp_path)])
    assert bad.exit_code == 2
    assert "cannot be used in combination (be-priority)" in bad.output
    assert "c.yaml: line 2, column 1: must be YAML or JSON" in bad.output


def test_a_schedulers_configuration_is_sent_to_its_own_command(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", encoding="utf-8")

    answer = CliRunner().invoke(app, ["lint", str(file)])
    assert answer.exit_code == 1
    assert f"koord scheduler check-config {file}" in answer.output


def test_context_is_used_and_not_reported(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(PROFILE, encoding="utf-8")
    (tmp_path / "pod.yaml").write_text(POD, encoding="utf-8")

    answer = CliRunner().invoke(app, ["lint", str(tmp_path / "pod.yaml"), "-c", str(tmp_path / "cluster.yaml")])

    steps = "ClusterColocationProfile/be, ResourceTranslation, ExtendedResourceSpec"
    assert answer.output.splitlines() == [f"{tmp_path / 'pod.yaml'}: pod/web in default ok, changed by {steps}"]


def test_a_file_that_is_too_deep_is_refused_and_ends_no_process(tmp_path: Path) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text("[" * 100_000 + "]" * 100_000)
    done = subprocess.run([sys.executable, "-m", "koordctl", "lint", str(file)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "nested at most 64 deep" in done.stdout + done.stderr
