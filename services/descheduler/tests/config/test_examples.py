"""The example policies and configurations: every plugin has one, and all are valid."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.config.policies import converted, left_out
from koord_descheduler.domain.config.profiles import build_profiles
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

EXAMPLES = Path(__file__).parents[4] / "examples" / "descheduler"
POLICIES = sorted(EXAMPLES.glob("policies/*.yaml"))
CONFIGURATIONS = sorted(EXAMPLES.glob("configurations/*.yaml"))
POLICY = {"kind": "DeschedulerPolicy", "apiVersion": "descheduler/v1alpha2"}
OLD_POLICY = {"kind": "DeschedulerPolicy", "apiVersion": "descheduler/v1alpha1"}


def policy(file: Path) -> DeschedulerConfiguration:
    return load(codec.encode(converted(yaml.safe_load(file.read_text()))), BUILT_IN)


def configured(configuration: DeschedulerConfiguration) -> set[str]:
    return {entry.name for profile in configuration.profiles for entry in profile.plugin_config}


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)
def test_policy_becomes_a_configuration_that_can_run(file: Path) -> None:
    configuration = policy(file)
    assert build_profiles(configuration, BUILT_IN, SharedState())


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.stem)
def test_configuration_can_run(file: Path) -> None:
    configuration = load(file.read_bytes(), BUILT_IN)
    assert build_profiles(configuration, BUILT_IN, SharedState())


def test_every_plugin_has_an_example() -> None:
    of_configurations = set[str]().union(*(configured(load(file.read_bytes(), BUILT_IN)) for file in CONFIGURATIONS))
    of_policies = set[str]().union(*(configured(policy(file)) for file in POLICIES))
    assert of_configurations >= BUILT_IN.keys()
    assert of_policies >= {name for name, kind in BUILT_IN.items() if not kind.is_native}


def test_old_policy_keeps_limits_nodes_and_parameters() -> None:
    configuration = policy(EXAMPLES / "policies" / "all-strategies-v1alpha1.yaml")
    assert configuration.node_selector is not None
    assert configuration.node_selector.compiled().matches({"pool": "online"})
    profiles = {profile.name: profile for profile in configuration.profiles}
    assert "strategy-HighNodeUtilization-profile" not in profiles
    args = {entry.name: entry.args for entry in profiles["strategy-PodLifeTime-profile"].plugin_config}
    assert args["DefaultEvictor"] == {"evictLocalStoragePods": True, "priorityThreshold": {"value": 10000}}
    assert args["PodLifeTime"] == {"maxPodLifeTimeSeconds": 86400, "states": ["Pending"]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": "DeschedulerConfiguration"}, "kind"),
    ({"kind": "DeschedulerPolicy", "apiVersion": "v1"}, "apiVersion"),
    ({**POLICY, "profiles": {}}, "profiles"),
    ({**POLICY, "profiles": [{"plugins": {"score": {}}}]}, "profiles[0].plugins"),
    ({**OLD_POLICY, "strategies": {"X": {"enabled": True}}}, "strategies"),
]


@pytest.mark.parametrize(("document", "path"), REFUSED)
def test_document_that_is_no_policy_is_refused(document: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        converted(document)
    assert raised.value.path == path


@pytest.mark.parametrize("policy", [POLICY, OLD_POLICY])
def test_fields_of_a_policy_without_counterpart_are_named(policy: dict[str, Any]) -> None:
    assert left_out(policy) == []
    assert left_out({**policy, "gracePeriodSeconds": 30, "maxNoOfPodsToEvictTotal": 1}) == ["gracePeriodSeconds"]
