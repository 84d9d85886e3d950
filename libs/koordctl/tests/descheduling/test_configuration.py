"""`koord descheduler check-config` and `convert`: ConfigMaps, and fields that nobody reads."""

import json
from pathlib import Path

import pytest
from koordctl.app import app
from typer.testing import CliRunner

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: p
  pluginConfig:
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 60, maxAge: 1}}
  plugins: {deschedule: {enabled: [PodLifeTime]}}
"""
CONFIGURATION = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
- name: p
  pluginConfig:
  - {name: PodLifeTime, args: {maxPodLifeTimeSeconds: 60, maxAge: 1}}
"""


@pytest.mark.parametrize(("command", "text"), [("convert", POLICY), ("check-config", CONFIGURATION)])
@pytest.mark.parametrize("in_config_map", [False, True])
def test_an_unknown_argument_is_refused_with_its_path(
    tmp_path: Path, command: str, text: str, *, in_config_map: bool
) -> None:
    file = tmp_path / "given.yaml"
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"file.yaml": text}}
    file.write_text(json.dumps(config_map) if in_config_map else text)
    answer = CliRunner().invoke(app, ["descheduler", command, str(file)])
    place = "data[file.yaml]." if in_config_map else ""
    said = f"{place}profiles[0].pluginConfig[PodLifeTime].args.maxAge: must be a field that exists here"
    assert said in answer.output.replace("\n", " ")
    assert answer.exit_code == 1
    file.write_text(file.read_text().replace(", maxAge: 1", ""))
    assert CliRunner().invoke(app, ["descheduler", command, str(file)]).exit_code == 0


def test_a_repeated_key_of_a_policy_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(POLICY.replace("maxAge: 1", "maxPodLifeTimeSeconds: 1"))
    answer = CliRunner().invoke(app, ["descheduler", "convert", str(file)])
    assert "maxPodLifeTimeSeconds" in answer.output
    assert answer.exit_code != 0
