"""The example policies and configurations: every plugin has one, and all are valid."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.loading import decode, load, text_in
from koord_descheduler.domain.config.policies import converted, left_out
from koord_descheduler.domain.config.profiles import build_profiles
from koord_descheduler.domain.config.validation import unknown_arguments
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
    ({**POLICY, "profiles": [{"plugins": {"score": {}}}]}, "profiles[0].plugins.score"),
    ({**OLD_POLICY, "strategies": {"X": {"enabled": True}}}, "strategies"),
    ({**POLICY, "strategies": {}}, "strategies"),
    ({**POLICY, "evictLocalStoragePods": True}, "evictLocalStoragePods"),
    ({**POLICY, "profiles": [{"pluginConfig": [{"args": {}}]}]}, "profiles[0].pluginConfig[0].name"),
    (
        {**POLICY, "profiles": [{"pluginConfig": [{"name": "PodLifeTime", "args": {}, "nodeFit": True}]}]},
        "profiles[0].pluginConfig[0].nodeFit",
    ),
    (
        {**POLICY, "profiles": [{"pluginConfig": [{"name": "P", "pluginConfig": [{"args": {}}]}]}]},
        "profiles[0].pluginConfig[0].pluginConfig",
    ),
    (
        {**POLICY, "profiles": [{"pluginConfig": [{"name": "P", "args": {"a": 1}}, {"name": "P", "args": {}}]}]},
        "profiles[0].pluginConfig[0].name",
    ),
    (
        {**OLD_POLICY, "strategies": {"RemoveFailedPods": {"enabled": True, "params": {"failedPod": {}}}}},
        "strategies.RemoveFailedPods.params.failedPod",
    ),
    (
        {**OLD_POLICY, "strategies": {"PodLifeTime": {"enabled": True, "params": {"podLifeTime": {"max": 1}}}}},
        "strategies.PodLifeTime.params.podLifeTime.max",
    ),
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


def test_parameters_of_an_old_policy_have_the_effect_that_they_have_upstream() -> None:
    lifetime: dict[str, Any] = {"states": ["ImagePullBackOff"], "podStatusPhases": ["Pending"]}
    params: dict[str, Any] = {"podLifeTime": lifetime, "nodeFit": True, "removeDuplicates": {"excludeOwnerKinds": []}}
    strategy = {"enabled": True, "weight": 1, "params": params}
    policy: dict[str, Any] = {**OLD_POLICY, "strategies": {"PodLifeTime": strategy}}
    (profile,) = converted(policy)["profiles"]
    args = {entry["name"]: entry["args"] for entry in profile["pluginConfig"]}
    assert args["PodLifeTime"]["states"] == ["Pending", "ImagePullBackOff"]
    assert "nodeFit" not in args["DefaultEvictor"]
    assert left_out(policy) == [
        "strategies[PodLifeTime].params.nodeFit",
        "strategies[PodLifeTime].params.removeDuplicates",
        "strategies[PodLifeTime].weight",
    ]


def test_plugin_sets_of_a_policy_without_effect_are_named() -> None:
    plugins = {"balance": {"enabled": ["RemoveDuplicates"], "disabled": ["*"]}, "filter": {"enabled": ["Other"]}}
    found = left_out({**POLICY, "profiles": [{"name": "p", "plugins": plugins}]})
    assert found == ["profiles[0].plugins.balance.disabled", "profiles[0].plugins.filter.enabled"]


@pytest.mark.parametrize(
    ("plugin", "args", "path"),
    [
        ("RemovePodsHavingTooManyRestarts", {"podRestartThresholds": 100}, "podRestartThresholds"),
        ("RemovePodsViolatingNodeTaints", {"includingPreferNoSchedule": True}, "includingPreferNoSchedule"),
        ("LowNodeUtilization", {"evictableNamespace": {}}, "evictableNamespace"),
        ("DefaultEvictor", {"podProtections": {"config": {"PodsWithPVC": {"classes": []}}}}, "podProtections.config"),
    ],
)
def test_unknown_arguments_of_upstream_plugins_are_named(plugin: str, args: dict[str, Any], path: str) -> None:
    policy = {**POLICY, "profiles": [{"name": "p", "pluginConfig": [{"name": plugin, "args": args}]}]}
    (problem,) = unknown_arguments(decode(codec.encode(converted(policy))), BUILT_IN)
    assert problem.path.startswith(f"profiles[0].pluginConfig[{plugin}].args.{path}")
    assert problem.rule == "a field that exists here"


def test_a_document_is_found_in_a_config_map() -> None:
    policy = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n"
    data = {"policy.yaml": policy, "other": "text", "broken": "{"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    assert text_in(codec.encode(config_map), "DeschedulerPolicy") == (policy.encode(), "data[policy.yaml]")
    assert text_in(policy.encode(), "DeschedulerPolicy") == (policy.encode(), "")
    for wrong in ({}, {"a": policy, "b": policy}):
        with pytest.raises(InvalidInput, match="DeschedulerPolicy"):
            text_in(codec.encode({**config_map, "data": wrong}), "DeschedulerPolicy")


@pytest.mark.parametrize("file", [*POLICIES, *CONFIGURATIONS], ids=lambda file: file.stem)
def test_examples_have_no_unknown_arguments(file: Path) -> None:
    text = file.read_bytes()
    made = codec.encode(converted(yaml.safe_load(text))) if file in POLICIES else text
    assert not list(unknown_arguments(decode(made), BUILT_IN))
