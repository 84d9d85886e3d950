"""The configuration file: defaults, order of plugins, refusals with path, rule and value."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from koord_descheduler.domain.config.arguments import PREFERRED
from koord_descheduler.domain.config.loading import ConfigurationRefused, Stage, decode, load
from koord_descheduler.domain.config.profiles import build_profiles, eviction_limits
from koord_descheduler.domain.config.validation import (
    IDLE_ARGUMENTS,
    NO_NAMESPACES,
    NOT_ACTED_ON,
    OFF_LIMITER,
    endless_evictions,
    settings_without_effect,
)
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from support.depth import repeats, seeds
from support.mutations import damaged, mutated

HEADER = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"
FULL: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "leaderElection": {"leaderElect": True, "leaseDuration": "15s", "resourceName": "d"},
    "clientConnection": {"qps": 10, "burst": 20},
    "deschedulingInterval": "10m",
    "nodeSelector": {"matchLabels": {"pool": "a"}},
    "maxNoOfPodsToEvictPerNode": 5,
    "healthzBindAddress": "127.0.0.1:10251",
    "profiles": [
        {
            "name": "p",
            "plugins": {
                "deschedule": {"enabled": [{"name": "PodLifeTime"}, {"name": "RemovePodsViolatingNodeAffinity"}]},
                "balance": {"enabled": [{"name": "LowNodeLoad"}, {"name": "LowNodeUtilization"}]},
                "filter": {"enabled": [{"name": "DefaultEvictor"}]},
            },
            "pluginConfig": [
                {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60, "states": ["Running"]}},
                {"name": "RemovePodsViolatingNodeAffinity", "args": {"nodeAffinityType": ["x"]}},
                {"name": "LowNodeLoad", "args": {"lowThresholds": {"cpu": 10}, "highThresholds": {"cpu": 50}}},
                {"name": "LowNodeUtilization", "args": {"thresholds": {"cpu": 1}, "targetThresholds": {"cpu": 2}}},
                {"name": "DefaultEvictor", "args": {"minPodAge": "5m", "nodeSelector": "a in (b,c)"}},
                {
                    "name": "MigrationController",
                    "args": {
                        "evictQPS": "10",
                        "skipEvictionGates": ["PVC"],
                        "namespaces": {"exclude": ["kube-system"]},
                        "objectLimiters": {"workload": {"duration": "5m", "maxMigrating": "10%"}},
                        "priorityThreshold": {"name": "high"},
                        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                    },
                },
            ],
        }
    ],
}


def refusal(text: str) -> ConfigurationRefused:
    with pytest.raises(ConfigurationRefused) as raised:
        load(text.encode(), BUILT_IN)
    return raised.value


def test_effective_configuration_reads_back_as_itself() -> None:
    once = load(codec.encode(FULL), BUILT_IN)
    again = load(codec.encode(once.as_json()), BUILT_IN)
    assert again.as_json() == once.as_json()


@pytest.mark.parametrize("text", [HEADER + "dryRun: true\ndryRun: false\n", '{"a": 1, "a": 2, "apiVersion": "x"}'])
def test_repeated_key_is_refused(text: str) -> None:
    assert "occurs once" in refusal(text).sentence()


def test_repeated_key_in_the_arguments_of_a_plugin_is_named_with_its_path() -> None:
    text = HEADER + "profiles:\n- name: p\n  pluginConfig:\n  - name: X\n    args: {a: {b: 1, b: 2}}\n"
    (problem,) = refusal(text).problems
    assert problem.path == "profiles[0].pluginConfig[0].args.a.b"


def test_plugin_one_level_too_far_out_is_refused_by_its_name() -> None:
    refused = refusal(HEADER + "profiles:\n- name: p\n  deschedule: {enabled: [{name: PodLifeTime}]}\n")
    assert refused.stage is Stage.DECODE
    assert "profiles[0].deschedule" in refused.sentence()


@pytest.mark.parametrize("text", ["", "x", "- a", "{", HEADER + "---\n" + HEADER])
def test_text_that_is_not_one_document_is_refused(text: str) -> None:
    refused = refusal(text)
    assert refused.stage is Stage.DECODE
    assert all(problem.path for problem in refused.problems)


def test_all_problems_of_a_stage_are_named() -> None:
    refused = refusal(HEADER + "metricsBindAddress: 'x:'\nnodeSelector: {matchLabels: {'a/b/c': x}}\n")
    assert refused.stage is Stage.VALIDATION
    assert [problem.path.split(".")[0] for problem in refused.problems] == ["metricsBindAddress", "nodeSelector"]


def test_arguments_of_an_enabled_upstream_plugin_are_checked_with_their_path() -> None:
    text = HEADER + "profiles:\n- plugins: {balance: {enabled: [{name: LowNodeUtilization}]}}\n"
    assert "profiles[0].pluginConfig[LowNodeUtilization].args.thresholds" in refusal(text).sentence()


def of_plugin(name: str, args: dict[str, Any], *, enabled: bool = True) -> str:
    """Return a configuration with a balance plugin and its arguments."""
    plugins = {"balance": {"enabled": [{"name": name}] if enabled else []}}
    entry = {"name": name, "args": args}
    return HEADER + yaml.safe_dump({"profiles": [{"name": "p", "plugins": plugins, "pluginConfig": [entry]}]})


@pytest.mark.parametrize(("plugin", "field"), [("CustomPriority", "mode"), ("ScaleDownBinPack", "strategy")])
def test_a_choice_that_does_not_exist_is_a_framework_error_of_an_enabled_plugin(plugin: str, field: str) -> None:
    refused = refusal(of_plugin(plugin, {field: "Other"}))
    assert refused.stage is Stage.FRAMEWORK
    (problem,) = [each for each in refused.problems if each.path.endswith(f".{field}")]
    assert problem.rule.startswith("one of ")
    load(of_plugin(plugin, {field: "Other"}, enabled=False).encode(), BUILT_IN)


@pytest.mark.parametrize("value", [10, 1.5, True, "10", []])
def test_a_duration_is_a_text_with_units(value: object) -> None:
    refused = refusal(HEADER + yaml.safe_dump({"deschedulingInterval": value}))
    assert (refused.stage, refused.problems[0].path) == (Stage.DECODE, "deschedulingInterval")


@pytest.mark.parametrize(
    ("field", "value", "stage"),
    [
        *(("evictQPS", value, Stage.DECODE) for value in (True, [1])),
        *(("evictQPS", value, Stage.VALIDATION) for value in (0, "0", "1_0", " 1", "nan", "inf", "ten", "")),
        *(("maxMigratingPerWorkload", value, Stage.DECODE) for value in (True, 1.5)),
        *(("maxMigratingPerWorkload", value, Stage.VALIDATION) for value in (-1, "1", "1.5%")),
    ],
)
def test_a_value_of_several_types_is_refused_once_at_its_field(field: str, value: object, stage: Stage) -> None:
    refused = refusal(of_plugin("MigrationController", {field: value}, enabled=False))
    (problem,) = refused.problems
    assert (refused.stage, problem.path) == (stage, f"profiles[0].pluginConfig[0].args.{field}")


def test_profiles_are_built_with_one_plugin_for_both_of_its_points() -> None:
    configuration = load(codec.encode(FULL), BUILT_IN)
    (profile,) = build_profiles(configuration, BUILT_IN, SharedState(priority_classes={"high": 100}))
    assert [plugin.name for plugin in profile.filters] == ["MigrationController", "DefaultEvictor"]
    assert profile.filters[0] is profile.evict
    assert eviction_limits(configuration).per_node == 5


def test_unknown_priority_class_is_a_start_error_with_its_path() -> None:
    with pytest.raises(InvalidInput, match=r"profiles\[0\].*priorityThreshold.name"):
        build_profiles(load(codec.encode(FULL), BUILT_IN), BUILT_IN, SharedState())


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", seeds(8, few=1))
def test_malformed_configuration_is_accepted_or_refused_with_path_rule_and_value(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(repeats(2_400)):
        refused += _is_refused(codec.encode(mutated(rng, FULL)))
    text = yaml.safe_dump(FULL).encode()
    for _ in range(repeats(100)):
        refused += _is_refused(damaged(rng, text))
    assert refused > repeats(1_000)


def _is_refused(text: bytes) -> bool:
    try:
        load(text, BUILT_IN)
    except ConfigurationRefused as error:
        problems = error.problems
    else:
        return False
    assert problems
    for problem in problems:
        assert problem.path, (text, problem)
        assert problem.rule, (text, problem)
        assert f"must be {problem.rule}, got " in problem.sentence()
    return True


EXISTS = {"key": "team", "operator": "Exists"}


@pytest.mark.parametrize(
    ("selector", "is_off"),
    [
        ({"matchExpressions": [EXISTS]}, True),
        ({"matchLabels": {}, "matchExpressions": [EXISTS]}, True),
        ({"matchLabels": {"a": "b"}, "matchExpressions": [EXISTS]}, False),
        ({"matchLabels": {"a": "b"}}, False),
    ],
)
def test_a_selector_of_namespaces_with_expressions_only_is_reported(selector: dict[str, Any], is_off: bool) -> None:
    plugins = {"filter": {"enabled": [{"name": "DefaultEvictor"}]}}
    entry = {"name": "DefaultEvictor", "args": {"namespaceLabelSelector": selector}}
    header = {name: FULL[name] for name in ("apiVersion", "kind")}
    text = codec.encode({**header, "profiles": [{"name": "p", "plugins": plugins, "pluginConfig": [entry]}]})
    found = dict(settings_without_effect(decode(text), load(text, BUILT_IN)))

    path = "profiles[0].pluginConfig[DefaultEvictor].args.namespaceLabelSelector"
    assert found.get(path) == (NO_NAMESPACES if is_off else None)


def test_only_fields_that_the_file_sets_are_reported_as_without_effect() -> None:
    def ignored(document: dict[str, Any]) -> dict[str, str]:
        text = codec.encode(document)
        return dict(settings_without_effect(decode(text), load(text, BUILT_IN)))

    full = ignored(FULL)
    assert full["leaderElection.resourceName"] == NOT_ACTED_ON["leaderElection.resourceName"]
    assert "clientConnection" in full
    assert not {"leaderElection.resourceLock", "metricsBindAddress"} & full.keys()
    header = {name: FULL[name] for name in ("apiVersion", "kind")}
    assert ignored({**header, "leaderElection": {"leaseDuration": "20s"}}) == {}
    entries = [
        {"name": "MigrationController", "args": {"maxConcurrentReconciles": 2, "evictQPS": "5"}},
        {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}},
    ]
    assert ignored({**header, "profiles": [{"pluginConfig": entries}]}) == {
        "profiles[0].pluginConfig[MigrationController].args.maxConcurrentReconciles": "one task does this work",
        "profiles[0].pluginConfig[PodLifeTime]": "the profile does not enable the plugin",
    }


@pytest.mark.parametrize(
    ("limit", "is_off"), [({}, True), ({"maxMigrating": "10%"}, True), ({"maxMigrating": 3}, False)]
)
def test_limiter_of_namespaces_without_a_number_is_reported_as_off(limit: dict[str, Any], is_off: bool) -> None:
    limiters = {"workload": {"duration": "5m"}, "namespace": {"duration": "5m", **limit}}
    entry = {"name": "MigrationController", "args": {"objectLimiters": limiters}}
    header = {name: FULL[name] for name in ("apiVersion", "kind")}
    text = codec.encode({**header, "profiles": [{"pluginConfig": [entry]}]})
    path = "profiles[0].pluginConfig[MigrationController].args.objectLimiters.namespace"
    assert dict(settings_without_effect(decode(text), load(text, BUILT_IN))) == ({path: OFF_LIMITER} if is_off else {})


def test_the_document_names_every_setting_without_effect() -> None:
    text = (Path(__file__).parents[4] / "docs" / "descheduling.md").read_text().replace("`", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    reasons = [*NOT_ACTED_ON.items(), ("objectLimiters.namespace", OFF_LIMITER)]
    reasons += [(f"{plugin} {field}", why) for (plugin, field), why in IDLE_ARGUMENTS.items()]
    for field, why in reasons:
        assert any(field in row and why in row for row in rows), field


def test_native_plugins_have_the_defaults_of_the_reference_in_full() -> None:
    enabled = "[{name: FragmentationAware}, {name: ScaleDownBinPack}, {name: CustomPriority}]"
    levels = "[{name: a, nodeSelector: {}}, {name: b, nodeSelector: {}}]"
    empty = "{strategy: '', resources: [], resourceWeights: {cpu: 3}}"
    text = (
        f"{HEADER}profiles:\n- plugins: {{balance: {{enabled: {enabled}}}}}\n  pluginConfig:\n"
        f"  - {{name: ScaleDownBinPack, args: {empty}}}\n"
        f"  - {{name: CustomPriority, args: {{mode: '', evictionOrder: {levels}}}}}\n"
        "  - {name: MigrationController, args: {schedulerNames: [], defaultJobMode: '', evictionPolicy: ''}}\n"
    )
    (profile,) = load(text.encode(), BUILT_IN).profiles
    args = {entry.name: dict(entry.args or {}) for entry in profile.plugin_config}
    pack, migration, spread = args["ScaleDownBinPack"], args["MigrationController"], args["FragmentationAware"]
    assert (pack["strategy"], pack["resources"]) == ("CalculateOnly", ["cpu", "memory"])
    assert pack["resourceWeights"] == {"cpu": 3, "memory": 1}
    assert args["CustomPriority"]["mode"] == "BestEffort"
    assert migration["evictQPS"] == 10
    assert (migration["schedulerNames"], migration["defaultJobMode"], migration["evictionPolicy"]) == (
        ["koord-scheduler"],
        "ReservationFirst",
        "Eviction",
    )
    assert (spread["resources"], spread["imbalanceThreshold"], spread["minImprovementThreshold"]) == (
        ["cpu", "memory"],
        0.15,
        0.02,
    )


@pytest.mark.parametrize(
    ("plugin", "args", "path"),
    [
        ("MigrationController", "{priorityThreshold: {value: 1, name: x}}", "priorityThreshold.name"),
        ("MigrationController", "{priorityThreshold: {value: 2000000001}}", "priorityThreshold.value"),
        ("MigrationController", "{defaultDeleteOptions: {gracePeriodSeconds: soon}}", "gracePeriodSeconds"),
        ("MigrationController", "{defaultDeleteOptions: {propagationPolicy: Later}}", "propagationPolicy"),
        ("DefaultEvictor", "{priorityThreshold: {value: 2000000001}}", "priorityThreshold.value"),
        ("DefaultEvictor", "{minReplicas: -1}", "minReplicas"),
    ],
)
def test_arguments_that_can_never_work_are_refused(plugin: str, args: str, path: str) -> None:
    enabled = "{filter: {enabled: [{name: DefaultEvictor}]}}"
    config = f"[{{name: {plugin}, args: {args}}}]"
    (problem,) = refusal(f"{HEADER}profiles: [{{plugins: {enabled}, pluginConfig: {config}}}]").problems
    assert problem.path.endswith(path)


def test_settings_because_of_which_a_plugin_does_nothing_are_told() -> None:
    text = (
        f"{HEADER}profiles:\n- plugins:\n    balance: {{enabled: [{{name: LowNodeLoad}}], disabled: [{{name: X}}]}}\n"
        "    filter: {enabled: [{name: DefaultEvictor}]}\n"
        "    deschedule: {enabled: [{name: RemovePodsViolatingNodeAffinity}]}\n"
        "  pluginConfig:\n"
        "  - {name: DefaultEvictor, args: {namespaceLabelSelector: {matchExpressions: [{key: a, operator: Exists}]}}}\n"
        f"  - {{name: RemovePodsViolatingNodeAffinity, args: {{nodeAffinityType: [required, {PREFERRED}]}}}}\n"
    )
    configuration = load(text.encode(), BUILT_IN)
    assert [each.path for each in settings_without_effect(decode(text.encode()), configuration)] == [
        "profiles[0].plugins.balance.disabled[0]",
        "profiles[0].pluginConfig[RemovePodsViolatingNodeAffinity].args.nodeAffinityType[0]",
        "profiles[0].plugins.balance",
        "profiles[0].pluginConfig[DefaultEvictor].args.namespaceLabelSelector",
    ]
    (endless,) = endless_evictions(configuration)
    assert endless.path == "profiles[0].pluginConfig[RemovePodsViolatingNodeAffinity].args.nodeAffinityType"
