"""Labels and annotations that are taken and not understood."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_manager.domain.documents.warnings.metadata import KNOWN, MOST_KEYS, metadata_warnings
from koord_manager.domain.documents.warnings.metadata_rules import HOLDERS


def warned(kind: str = "Pod", labels: object = None, annotations: object = None, spec: object = None) -> list[str]:
    document: dict[str, Any] = {"kind": kind, "metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
    return list(metadata_warnings(document))


@pytest.mark.parametrize(
    ("kind", "part", "key", "value", "allowed"),
    [
        ("Pod", "labels", "koordinator.sh/qosClass", "be", "one of LSE, LSR, LS, BE, SYSTEM"),
        ("Pod", "labels", "koordinator.sh/priority-class", "", "one of koord-prod, koord-mid, koord-batch, koord-free"),
        ("Pod", "labels", "koordinator.sh/priority", "high", "an integer literal within int32"),
        ("Pod", "labels", "koordinator.sh/eviction-enabled", "True", "one of true, false"),
        ("Pod", "labels", "scheduling.koordinator.sh/preemption-policy", "never", "one of Never, PreemptLowerPriority"),
        ("Pod", "annotations", "gang.scheduling.koordinator.sh/mode", "strict", "one of Strict, NonStrict"),
        ("PodGroup", "annotations", "gang.scheduling.koordinator.sh/match-policy", "once", "one of once-satisfied, "),
        ("Pod", "annotations", "gang.scheduling.koordinator.sh/waiting-time", "30", "a duration such as 30s"),
        ("Pod", "annotations", "koordinator.sh/oom-score-adj", "1001", "an integer within -1000..1000"),
        ("Pod", "annotations", "koordinator.sh/cpuBurst", '{"policy": "on"}', "one of none, cpuBurstOnly, "),
        ("Pod", "annotations", "koordinator.sh/eviction-policy", '["CPU"]', "one of BECPUEvict, CPUEvict, "),
        ("Node", "labels", "node.koordinator.sh/numa-topology-policy", "single", "one of BestEffort, Restricted, "),
        ("Node", "labels", "node.koordinator.sh/cpu-reclaim-ratio", "60%", "a number of at least 0"),
        ("ElasticQuota", "labels", "quota.scheduling.koordinator.sh/is-parent", "yes", "one of true, false"),
    ],
)
def test_an_unknown_value_is_told_with_its_field_and_what_is_allowed(
    kind: str, part: str, key: str, value: str, allowed: str
) -> None:
    (warning,) = warned(kind, **{part: {key: value}})
    assert warning.startswith(f"metadata.{part}[{key}]")
    assert f": should be {allowed}" in warning


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("koordinator.sh/qosclass", "koordinator.sh/qosClass"),
        ("koordinator.sh/qos-class", "koordinator.sh/qosClass"),
        ("scheduling.koordinator.sh/qosClass", "koordinator.sh/qosClass"),
        ("koordintor.sh/qosClass", "koordinator.sh/qosClass"),
        ("koordinator.sh/priorty", "koordinator.sh/priority"),
        ("quota.scheduling.koordinator.sh/nme", "quota.scheduling.koordinator.sh/name"),
        ("gang.scheduling.koordinator.sh/min-availble", "gang.scheduling.koordinator.sh/min-available"),
        ("analysis.koordinator.sh/updateMode", "analysis.koordinator.sh/update-mode"),
    ],
)
def test_a_key_that_is_nearly_spelled_right_is_told_with_the_one_that_is_read(key: str, meant: str) -> None:
    assert warned(labels={key: "x"}) == [f"metadata.labels[{key}]: no such key is read; {meant} is"]


@pytest.mark.parametrize("key", ["app", "example.com/qosClass", "koordinator.sh/colocation", "my.koordinator.sh/team"])
def test_keys_of_ones_own_are_left_alone(key: str) -> None:
    assert warned(labels={key: "x"}, annotations={key: "x"}) == []


@given(st.sampled_from(sorted(KNOWN)), st.sampled_from(["Namespace", "ConfigMap"]))
def test_no_key_of_the_protocol_is_called_misspelled(key: str, kind: str) -> None:
    assert not any("no such key" in warning for warning in warned(kind, {key: "x"}, {key: "x"}))


def test_a_key_in_the_other_map_is_told() -> None:
    assert warned(annotations={"koordinator.sh/qosClass": "LS"}) == [
        "metadata.annotations[koordinator.sh/qosClass]: is read as a label only, here it says nothing"
    ]
    assert warned(labels={"gang.scheduling.koordinator.sh/name": "g"}) == [
        "metadata.labels[gang.scheduling.koordinator.sh/name]: is read as an annotation only, here it says nothing"
    ]


def test_what_becomes_a_pods_metadata_is_judged_as_a_pods() -> None:
    wrong = {"koordinator.sh/qosClass": "LSX"}
    template = {"template": {"metadata": {"labels": wrong}}}
    assert warned("Deployment", spec=template)[0].startswith("spec.template.metadata.labels[koordinator.sh/qosClass]")
    assert warned("ClusterColocationProfile", spec={"labels": wrong})[0].startswith("spec.labels[koordinator.sh/qosC")
    assert warned("Deployment", labels=wrong) == []


def test_of_a_map_with_thousands_of_keys_the_first_are_looked_at() -> None:
    many = {f"koordinator.sh/of-my-own-{number}": "x" for number in range(MOST_KEYS - 1)}
    misspelt = {"koordinator.sh/qos-class": "LS"}

    assert len(warned(labels={**many, **misspelt})) == 1
    assert warned(labels={**many, "koordinator.sh/of-my-own": "x", **misspelt}) == []


def test_an_empty_value_counts_as_none() -> None:
    empty = {
        kind: warned(kind, dict.fromkeys(holder.labels, ""), dict.fromkeys(holder.annotations, ""))
        for kind, holder in HOLDERS.items()
    }
    assert {kind: len(warnings) for kind, warnings in empty.items() if warnings} == {"Pod": 1}
    assert "koordinator.sh/priority-class" in empty["Pod"][0]


@pytest.mark.parametrize("document", [None, 7, [], {}, {"metadata": 3}, {"metadata": {"labels": {"a": None}}}])
def test_what_is_no_object_has_no_warnings(document: object) -> None:
    assert list(metadata_warnings(document)) == []
