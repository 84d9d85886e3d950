"""From a configuration file to the plugins that run, and what is refused."""

import pickle
from typing import cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.configuration import load_configuration, shipped_configuration
from koord_scheduler.domain.config.catalogue import BUILT_IN, Catalogue, KnownPlugin, with_installed
from koord_scheduler.domain.config.effective import EffectiveConfiguration, EffectiveProfile, effective_configuration
from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs, LoadAwareSchedulingArgs
from koord_scheduler.domain.config.kubernetes_args import NodeResourcesFitArgs
from koord_scheduler.domain.framework.plugin import Point
from koordcore.protocol.component_config import InvalidConfiguration, Positive, WireModel
from koordcore.values.invalid import InvalidInput
from support.depth import examples

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
Raw = dict[str, object]


def effective(catalogue: Catalogue = BUILT_IN, **fields: object) -> EffectiveConfiguration:
    return effective_configuration(yaml.safe_dump({**HEAD, **fields}).encode(), catalogue)


def profile(plugins: Raw | None = None, config: list[Raw] | None = None) -> EffectiveProfile:
    return effective(
        profiles=[{"schedulerName": "s", "plugins": plugins or {}, "pluginConfig": config or []}]
    ).profiles[0]


def refusals(catalogue: Catalogue = BUILT_IN, **fields: object) -> list[str]:
    with pytest.raises(InvalidConfiguration) as refused:
        effective(catalogue, **fields)
    return str(refused.value).splitlines()


def enabled(*names: str) -> Raw:
    return {"enabled": [{"name": name} for name in names]}


def disabled(*names: str) -> Raw:
    return {"disabled": [{"name": name} for name in names]}


DEFAULT_FILTERS = (
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity",
    "DynamicResources",
)  # fmt: skip


def test_without_profiles_the_defaults_of_kubernetes_run_as_default_scheduler() -> None:
    only = effective().profiles[0]
    assert only.scheduler_name == "default-scheduler"
    assert only.points[Point.FILTER] == DEFAULT_FILTERS
    assert only.points[Point.PRE_ENQUEUE] == ("SchedulingGates", "DynamicResources")
    assert only.points[Point.POST_FILTER] == ("DynamicResources", "DefaultPreemption")
    assert only.points[Point.BIND] == ("DefaultBinder",)
    assert only.weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


def test_the_shipped_profile_is_that_of_the_specification() -> None:
    configuration = load_configuration(None)
    shipped = configuration.profile("koord-scheduler")
    assert shipped is not None
    points = shipped.points
    assert points[Point.PRE_ENQUEUE][-1] == "Coscheduling"
    assert points[Point.QUEUE_SORT] == ("PrioritySort",)
    assert points[Point.PRE_FILTER][-6:] == (
        "SchedulingHint", "Reservation", "NodeNUMAResource", "DeviceShare", "Coscheduling", "ElasticQuota",
    )  # fmt: skip
    assert points[Point.FILTER] == (
        *DEFAULT_FILTERS, "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare", "Reservation",
    )  # fmt: skip
    assert points[Point.POST_FILTER] == ("Reservation", "Coscheduling", "ElasticQuota", "DefaultPreemption")
    assert points[Point.PRE_BIND][-5:] == (
        "NodeNUMAResource", "DeviceShare", "Reservation", "Coscheduling", "DefaultPreBind",
    )  # fmt: skip
    assert points[Point.BIND] == ("Reservation", "DefaultBinder")
    assert points[Point.PERMIT] == points[Point.POST_BIND] == ("Coscheduling",)
    assert {name: shipped.weights[name] for name in list(shipped.weights)[-5:]} == {
        "LoadAwareScheduling": 1, "NodeNUMAResource": 1, "DeviceShare": 1, "Reservation": 5000, "Coscheduling": 1,
    }  # fmt: skip
    load = shipped.args_of("LoadAwareScheduling", LoadAwareSchedulingArgs)
    assert (load.filter_expired_node_metrics, load.node_metric_expiration_seconds) == (False, 300)
    assert load.usage_thresholds == {"cpu": 0, "memory": 0}
    fit = shipped.args_of("NodeResourcesFit", NodeResourcesFitArgs)
    assert [resource.name for resource in fit.scoring_strategy.resources] == [
        "cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory",
    ]  # fmt: skip
    assert shipped.args_of("Coscheduling", CoschedulingArgs) == CoschedulingArgs()
    assert configuration.profile("other") is None


def test_order_is_both_then_multi_point_then_the_point_only() -> None:
    multi = profile(
        {
            "multiPoint": enabled("Coscheduling", "Reservation"),
            "filter": enabled("LoadAwareScheduling", "Reservation", "NodePorts"),
        }
    )
    rest = tuple(name for name in DEFAULT_FILTERS if name != "NodePorts")
    assert multi.points[Point.FILTER] == ("Reservation", "NodePorts", *rest, "LoadAwareScheduling")
    assert multi.points[Point.PERMIT] == ("Coscheduling",)


def test_a_default_enabled_again_at_multi_point_keeps_its_place_and_takes_the_weight() -> None:
    plugins: Raw = {"multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 7}, {"name": "ImageLocality"}]}}
    weights = profile(plugins).weights
    assert list(weights)[:2] == ["TaintToleration", "NodeAffinity"]
    assert (weights["NodeAffinity"], weights["ImageLocality"]) == (7, 1)


def test_weight_at_the_point_wins_and_zero_means_one() -> None:
    plugins: Raw = {
        "multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 7}]},
        "score": {"enabled": [{"name": "NodeAffinity", "weight": 9}, {"name": "TaintToleration", "weight": 0}]},
    }
    weights = profile(plugins).weights
    assert (weights["NodeAffinity"], weights["TaintToleration"]) == (9, 1)


def test_disabled_removes_one_or_all_at_a_point_or_everywhere() -> None:
    assert "NodePorts" not in profile({"filter": disabled("NodePorts")}).points[Point.FILTER]
    assert "NodePorts" in profile({"filter": disabled("NodePorts")}).points[Point.PRE_FILTER]
    assert profile({"score": {**disabled("*"), **enabled("ImageLocality")}}).weights == {"ImageLocality": 1}
    nowhere = profile({"multiPoint": {**disabled("*"), **enabled("PrioritySort", "DefaultBinder", "NodeName")}})
    assert nowhere.points[Point.FILTER] == ("NodeName",)
    assert nowhere.weights == {}


def test_default_pre_bind_is_last_unless_it_is_named() -> None:
    assert profile().points[Point.PRE_BIND][-1] == "DefaultPreBind"
    named = profile({"preBind": enabled("DefaultPreBind", "Reservation")}).points[Point.PRE_BIND]
    assert named[-2:] == ("DefaultPreBind", "Reservation")
    assert "DefaultPreBind" not in profile({"preBind": disabled("DefaultPreBind")}).points[Point.PRE_BIND]
    assert profile({"preBind": disabled("*")}).points[Point.PRE_BIND] == ()


@pytest.mark.parametrize("plugins", [enabled("Coscheduling"), {**disabled("*"), **enabled("Coscheduling")}])
def test_coscheduling_as_queue_sort_is_priority_sort(plugins: Raw) -> None:
    assert profile({"queueSort": plugins}).points[Point.QUEUE_SORT] == ("PrioritySort",)


def test_arguments_are_defaulted_for_what_runs_and_absent_for_what_does_not() -> None:
    some = profile(config=[{"name": "DefaultPreemption", "args": {"minCandidateNodesAbsolute": 7}}])
    assert some.args["DefaultPreemption"].as_json()["minCandidateNodesAbsolute"] == 7
    assert "NodeResourcesFit" in some.args
    assert "LoadAwareScheduling" not in some.args
    assert some.args_of("LoadAwareScheduling", LoadAwareSchedulingArgs) == LoadAwareSchedulingArgs()


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta3"])
def test_all_versions_are_accepted_for_document_and_arguments(version: str) -> None:
    api = f"kubescheduler.config.k8s.io/{version}"
    args = {"apiVersion": api, "kind": "CoschedulingArgs", "defaultTimeout": "5s"}
    configuration = effective(
        apiVersion=api, profiles=[{"plugins": {"permit": enabled("Coscheduling")},
                                   "pluginConfig": [{"name": "Coscheduling", "args": args}]}],
    )  # fmt: skip
    assert configuration.profiles[0].args_of("Coscheduling", CoschedulingArgs).default_timeout == 5


@pytest.mark.parametrize("name", ["koord-scheduler-config", "scheduler-config"])
@pytest.mark.parametrize("key", ["koord-scheduler-config", "koord-scheduler.config", "scheduler-config"])
def test_a_config_map_is_read_as_what_it_holds(name: str, key: str) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {key: shipped_configuration().decode()},
    }
    assert effective_configuration(yaml.safe_dump(document).encode()) == load_configuration(None)
    broken = {
        **document,
        "data": {key: yaml.safe_dump({**HEAD, "parallelism": 0, "profiles": [{"plugins": enabled()}]})},
    }
    with pytest.raises(InvalidConfiguration) as refused:
        effective_configuration(yaml.safe_dump(broken).encode())
    assert [problem.path for problem in refused.value.problems] == [
        f"data[{key}].parallelism",
        f"data[{key}].profiles[0].plugins.enabled",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "must be one KubeSchedulerConfiguration"),
        (b"a: [", "YAML or JSON"),
        (b"[1]", "must be a KubeSchedulerConfiguration"),
        (b"kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1alpha1", "v1alpha1"),
        (b"kind: KubeSchedulerConfiguration", "apiVersion: must be given"),
        (
            b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfig",
            "kind: must be KubeSchedulerConfiguration",
        ),
        (b"kind: ConfigMap\ndata: {other: x}", "koord-scheduler-config"),
        (b"kind: ConfigMap\ndata: {scheduler-config: 3}", "data[scheduler-config]: must be text"),
        (b"kind: ConfigMap\ndata: {scheduler-config: 'a: ['}", "data[scheduler-config], line 2, column 1: "),
        (b"kind: KubeSchedulerConfiguration\n---\nkind: KubeSchedulerConfiguration", "documents: must be one"),
    ],
)
def test_a_text_that_is_no_configuration_is_refused_in_a_sentence(text: bytes, part: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        effective_configuration(text)
    assert part in str(refused.value)


def test_every_problem_of_a_configuration_is_told() -> None:
    told = refusals(
        profiles=[
            {
                "schedulerName": "a",
                "plugins": {
                    "score": {"enabled": [{"name": "Foo", "weight": 2}, {"name": "NodeName"}]},
                    "bind": disabled("*"),
                    "queueSort": disabled("PrioritySort"),
                    "filter": disabled("Bar"),
                },
                "pluginConfig": [
                    {"name": "Foo"},
                    {"name": "NodeName", "args": {"x": 1}},
                    {"name": "Coscheduling", "args": {"kind": "ElasticQuotaArgs", "controllerWorkers": 0}},
                    {"name": "Coscheduling"},
                ],
            },
            {"schedulerName": "a"},
            {},
        ],
    )
    assert [line.partition(": must be ")[0] for line in told] == [
        "profiles[0].plugins.filter.disabled[0].name",
        "profiles[0].plugins.score.enabled[0].name",
        "profiles[0].plugins.score.enabled[1].name",
        "profiles[0].pluginConfig[0].name",
        "profiles[0].pluginConfig[1].args",
        "profiles[0].pluginConfig[2].args.kind",
        "profiles[0].pluginConfig[2].args.controllerWorkers",
        "profiles[0].pluginConfig[3].name",
        "profiles[0].plugins.queueSort",
        "profiles[0].plugins.bind",
        "profiles[1].schedulerName",
        "profiles[2].schedulerName",
        "profiles[1].plugins.queueSort",
        "profiles[2].plugins.queueSort",
    ]


SLIPS: dict[str, list[str]] = {
    "parallelism: 0": ["parallelism"],
    "paralelism: 4": ["paralelism"],
    "leaderElection: {leaseDuration: 3}": ["leaderElection.leaseDuration"],
    "first.schedulerName: [a]": ["profiles[0].schedulerName"],
    "first.percentageOfNodesToScore: 101": ["profiles[0].percentageOfNodesToScore"],
    "first.plugins.filter: {enabled: [{name: Coscheduling, weight: heavy}]}": [
        "profiles[0].plugins.filter.enabled[0].name",
        "profiles[0].plugins.filter.enabled[0].weight",
    ],
    "first.plugins.score: {enabled: [{nam: NodeName}, {name: NodeAfinity}]}": [
        "profiles[0].plugins.score.enabled[0].nam",
        "profiles[0].plugins.score.enabled[0].name",
        "profiles[0].plugins.score.enabled[1].name",
    ],
    "first.plugins.permit: {disabled: [3, {name: Bar}]}": [
        "profiles[0].plugins.permit.disabled[0]",
        "profiles[0].plugins.permit.disabled[1].name",
    ],
    "first.pluginConfig: [{name: LoadAwareScheduling, args: {usageThresholds: {cpu: 165}}, arg: 1}, {name: Foo}]": [
        "profiles[0].pluginConfig[0].arg",
        "profiles[0].pluginConfig[0].args.usageThresholds.cpu",
        "profiles[0].pluginConfig[1].name",
    ],
    "second.pluginConfig: [{name: LoadAwareScheduling, args: 7}]": ["profiles[1].pluginConfig[0].args"],
    "second.plugins.bind: {disabled: [{name: DefaultBinder}], enabled: [{name: NodeName}]}": [
        "profiles[1].plugins.bind.enabled[0].name",
    ],
    "second.schedulerName: ''": ["profiles[1].schedulerName"],
}
"""A field and what is wrongly written there -> the places that are told."""


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(sorted(SLIPS)), unique=True, min_size=1))
def test_no_mistake_hides_another(slips: list[str]) -> None:
    profiles: dict[str, dict[str, object]] = {"first": {"schedulerName": "a"}, "second": {"schedulerName": "b"}}
    fields: dict[str, object] = {}
    for slip in slips:
        place, _, value = slip.partition(": ")
        name, *steps = place.split(".")
        part: dict[str, object] = profiles.get(name, fields)
        for step in steps[:-1]:
            part = cast("dict[str, object]", part.setdefault(step, {}))
        part[steps[-1] if steps else name] = yaml.safe_load(value)
    told = refusals(BUILT_IN, profiles=list(profiles.values()), **fields)
    assert sorted(line.partition(": must be ")[0] for line in told) == sorted(
        path for slip in slips for path in SLIPS[slip]
    )


def test_a_plugin_that_is_nearly_spelled_right_is_named() -> None:
    (told,) = refusals(profiles=[{"plugins": {"score": enabled("LoadAwareSheduling")}}])
    assert told.endswith("is installed (LoadAwareScheduling?), got 'LoadAwareSheduling'")


def test_fields_of_the_document_are_checked_together() -> None:
    told = refusals(parallelism=0, percentageOfNodesToScore=101, podInitialBackoffSeconds=20, surprise=1, profiles=3)
    assert [line.partition(": must be ")[0] for line in told] == [
        "parallelism", "percentageOfNodesToScore", "podMaxBackoffSeconds", "profiles", "surprise",
    ]  # fmt: skip


def test_a_plugin_named_twice_at_a_point_is_refused() -> None:
    told = refusals(profiles=[{"plugins": {"filter": enabled("NodeName", "NodeName")}}])
    assert told == ["profiles[0].plugins.filter.enabled[1].name: must be named once at a point, got 'NodeName'"]


def test_a_profile_may_have_its_own_percentage() -> None:
    profiles: list[Raw] = [{"schedulerName": "a", "percentageOfNodesToScore": 0}, {"schedulerName": "b"}]
    configuration = effective(percentageOfNodesToScore=30, profiles=profiles)
    assert [profile.percentage_of_nodes_to_score for profile in configuration.profiles] == [0, 30]


def test_what_changes_nothing_is_named() -> None:
    configuration = effective(
        parallelism=4,
        leaderElection={"leaderElect": True, "leaseDuration": "15s"},
        clientConnection={"qps": 50.5},
        extenders=[{"urlPrefix": "http://x", "ignorable": True}],
        profiles=[
            {
                "plugins": {
                    "multiPoint": {**disabled("*"), **enabled("PrioritySort", "DefaultBinder", "Coscheduling")}
                },
                "pluginConfig": [
                    {"name": "Coscheduling", "args": {"skipCheckScheduleCycle": True}},
                    {"name": "DeviceShare"},
                ],
            }
        ],
    )
    paths = [ignored.path for ignored in configuration.ignored]
    assert paths[:6] == [
        "parallelism",
        "leaderElection",
        "clientConnection",
        "extenders",
        "profiles[0].pluginConfig[DeviceShare]",
        "profiles[0].pluginConfig[Coscheduling].args.skipCheckScheduleCycle",
    ]


def test_an_extender_that_is_not_ignorable_is_refused() -> None:
    extenders: list[Raw] = [
        {"urlPrefix": "http://a", "ignorable": True},
        {"urlPrefix": "http://b", "filterVerb": "filter"},
        {"urlPrefix": "http://c", "ignorable": False},
    ]
    assert refusals(extenders=extenders) == [
        "extenders[1].ignorable: must be true: extenders are not called (this one is 'http://b'), got False",
        "extenders[2].ignorable: must be true: extenders are not called (this one is 'http://c'), got False",
    ]


class MineArgs(WireModel):
    """Of a user's plugin."""

    level: Positive = 3


MINE = KnownPlugin(name="Mine", points=frozenset((Point.FILTER, Point.SCORE)), args=MineArgs)


def test_an_installed_plugin_counts_as_known() -> None:
    profiles: list[Raw] = [{"plugins": {"multiPoint": enabled("Mine")}, "pluginConfig": [{"name": "Mine", "args": {}}]}]
    mine = effective(with_installed({"Mine": MINE}), profiles=profiles).profiles[0]
    assert mine.points[Point.FILTER][-1] == "Mine"
    assert mine.weights["Mine"] == 1
    assert mine.args_of("Mine", MineArgs).level == 3
    assert refusals(profiles=profiles)
    profiles[0]["pluginConfig"] = [{"name": "Mine", "args": {"level": 0}}]
    assert refusals(with_installed({"Mine": MINE}), profiles=profiles) == [
        "profiles[0].pluginConfig[0].args.level: must be an integer of at least 1, got 0"
    ]
    with pytest.raises(ValueError, match="NodeName"):
        with_installed({"NodeName": MINE})


def test_a_refusal_survives_being_sent_to_another_process() -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        effective(parallelism=0, surprise=1)
    again = cast("InvalidConfiguration", pickle.loads(pickle.dumps(refused.value)))
    assert str(again) == str(refused.value)
    assert len(again.problems) == 2


names = st.sampled_from(sorted(BUILT_IN))


@st.composite
def plugin_sets(draw: st.DrawFn, point: Point | None) -> Raw:
    usable = [name for name, known in BUILT_IN.items() if point is None or point in known.points]
    chosen = draw(st.lists(st.sampled_from(usable), unique=True, max_size=4)) if usable else []
    removed = draw(st.lists(st.one_of(names, st.just("*")), unique=True, max_size=2))
    return {
        "enabled": [{"name": name, "weight": draw(st.integers(0, 5))} for name in chosen],
        "disabled": [{"name": name} for name in removed],
    }


@st.composite
def written_plugins(draw: st.DrawFn) -> dict[str, Raw]:
    points = draw(st.lists(st.sampled_from([None, *Point]), unique=True, max_size=5))
    plugins = {str(point or "multiPoint"): draw(plugin_sets(point)) for point in points}
    plugins["queueSort"] = {"enabled": [{"name": "PrioritySort"}], "disabled": [{"name": "*"}]}
    plugins.setdefault("bind", {"enabled": []})
    plugins["bind"]["enabled"] = [{"name": "DefaultBinder"}]
    return plugins


@settings(max_examples=examples(60))
@given(written_plugins())
def test_the_effective_configuration_reads_as_itself(plugins: dict[str, Raw]) -> None:
    configuration = effective(profiles=[{"schedulerName": "s", "plugins": plugins}])
    again = effective_configuration(yaml.safe_dump(configuration.as_json()).encode())
    assert again.profiles == configuration.profiles


@settings(max_examples=examples(60))
@given(written_plugins())
def test_a_point_runs_what_was_enabled_there_and_every_default_that_was_not_disabled(plugins: dict[str, Raw]) -> None:
    points = effective(profiles=[{"plugins": plugins}]).profiles[0].points
    multi = names_of(plugins, "multiPoint", "enabled")
    gone = names_of(plugins, "multiPoint", "disabled")
    defaults = [
        name for name, known in BUILT_IN.items()
        if known.default_weight is not None and "*" not in gone and name not in gone
    ]  # fmt: skip
    for point in Point:
        own, removed = names_of(plugins, point, "enabled"), names_of(plugins, point, "disabled")
        spread = {name for name in (*defaults, *multi) if point in BUILT_IN[name].points and name not in removed}
        expected = set(own) if "*" in removed else {*own, *spread}
        if point is Point.PRE_BIND and not {"*", "DefaultPreBind"} & set(removed):
            expected.add("DefaultPreBind")
        assert len(points[point]) == len(set(points[point]))
        assert set(points[point]) == expected
        kept = [name for name in points[point] if name in own and name in spread]
        assert kept == [name for name in own if name in spread]


def names_of(plugins: dict[str, Raw], point: str, part: str) -> list[str]:
    listed = cast("list[dict[str, str]]", plugins.get(str(point), {}).get(part, []))
    return [item["name"] for item in listed]
