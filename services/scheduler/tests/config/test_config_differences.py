"""What another configuration changes, said before its results."""

import yaml
from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.configuration import shipped_configuration
from koord_scheduler.domain.config.catalogue import BUILT_IN
from koord_scheduler.domain.config.differences import differences
from koord_scheduler.domain.config.effective import EffectiveConfiguration, effective_configuration

SHIPPED = effective_configuration(shipped_configuration())
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def configured(text: str) -> EffectiveConfiguration:
    return effective_configuration(yaml.safe_dump({**HEAD, **yaml.safe_load(text)}).encode())


def test_a_configuration_does_not_differ_from_itself() -> None:
    assert list(differences(SHIPPED, SHIPPED)) == []


def test_plugins_that_a_file_does_not_name_are_told_as_off() -> None:
    told = list(differences(SHIPPED, configured("profiles: [{schedulerName: koord-scheduler}]")))
    koordinator = "LoadAwareScheduling, NodeNUMAResource, DeviceShare, Reservation, Coscheduling, ElasticQuota"
    assert told[0] == f"off: {koordinator}, SchedulingHint, GpuRepackHold"
    assert not any("without effect" in each for each in told)


def test_weights_points_arguments_and_back_off_are_told_one_by_one() -> None:
    before = configured("profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {resources: "
                        "[{name: cpu, weight: 1}, {name: memory, weight: 1}]}}}]}]")  # fmt: skip
    after = configured("""
podMaxBackoffSeconds: 30
percentageOfNodesToScore: 50
profiles:
- plugins:
    score: {enabled: [{name: NodeAffinity, weight: 9}], disabled: [{name: ImageLocality}, {name: PodTopologySpread}]}
    filter: {disabled: [{name: NodePorts}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}]}}
""")
    assert list(differences(before, after)) == [
        "podMaxBackoffSeconds 10 -> 30",
        "off: ImageLocality",
        "no longer at filter: NodePorts",
        "no longer at score: PodTopologySpread",
        "NodeAffinity weight 2 -> 9",
        "NodeResourcesFit scoringStrategy.type LeastAllocated -> MostAllocated",
        "NodeResourcesFit scoringStrategy.resources[cpu].weight 1 -> 3",
        'NodeResourcesFit scoringStrategy.resources[memory] {"weight": 1} -> unset',
        "percentageOfNodesToScore 0 -> 50",
    ]


def test_profiles_are_compared_by_name() -> None:
    two = configured("profiles: [{schedulerName: a}, {schedulerName: b}]")
    other = configured("profiles: [{schedulerName: c}, {schedulerName: b, percentageOfNodesToScore: 7}]")
    assert list(differences(two, other)) == [
        "profile a: gone",
        "profile b: percentageOfNodesToScore 0 -> 7",
        "profile c: new",
    ]
    renamed = configured("profiles: [{schedulerName: z}]")
    assert list(differences(configured("profiles: []"), renamed)) == ["schedulerName default-scheduler -> z"]


@given(st.sets(st.sampled_from([name for name, known in BUILT_IN.items() if known.default_weight is not None])))
def test_what_is_off_one_way_is_on_the_other_way(off: set[str]) -> None:
    kept = off - {"PrioritySort", "DefaultBinder"}
    disabled = [{"name": name} for name in sorted(kept)]
    less = effective_configuration(
        yaml.safe_dump({**HEAD, "profiles": [{"plugins": {"multiPoint": {"disabled": disabled}}}]}).encode()
    )
    base = configured("profiles: []")
    there, back = list(differences(base, less)), list(differences(less, base))
    assert [line.replace("off", "on", 1) for line in there] == back
    named = {name for line in there for name in line.partition(": ")[2].split(", ")} - {""}
    assert named == kept
