"""What a user may change in a stored pod."""

from typing import Any

import pytest
from koordcore.protocol.manifests import InvalidManifest, check_update
from koordcore.protocol.objects import PodSpec, object_from_json

Json = dict[str, Any]
GATED: Json = {"schedulingGates": [{"name": "a"}, {"name": "b"}]}
TERM: Json = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "y"]}]}
STRICTER: Json = {"matchExpressions": [*TERM["matchExpressions"], {"key": "disk", "operator": "Exists"}]}
OTHER: Json = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}


def required(*terms: Json, **preferred: Any) -> Json:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}, **preferred}
    return {"affinity": {"nodeAffinity": affinity}}


def refused(old: Json, new: Json) -> list[str]:
    """Return the fields that are refused, without `spec.`."""
    containers = [{"name": "main", "image": "nginx"}]
    before, after = ({"containers": containers, **spec} for spec in (old, new))
    try:
        check_update(object_from_json(after, PodSpec), object_from_json(before, PodSpec))
    except InvalidManifest as error:
        return [violation.path.removeprefix("spec.") for violation in error.violations]
    return []


PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}
ANTI = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
EMPTY: Json = {}
TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        (GATED, {}, []),
        (GATED, {"schedulingGates": [{"name": "b"}]}, []),
        (GATED, {"schedulingGates": [{"name": "b"}, {"name": "a"}]}, []),
        (GATED, {"schedulingGates": [{"name": "a"}, {"name": "c"}]}, ["schedulingGates"]),
        ({}, {"schedulingGates": [{"name": "a"}]}, ["schedulingGates"]),
        (GATED, {**GATED, "nodeSelector": {"zone": "x"}}, []),
        (GATED, {"nodeSelector": {"zone": "x"}}, []),
        ({**GATED, "nodeSelector": {"zone": "x"}}, {**GATED, "nodeSelector": {"zone": "y"}}, ["nodeSelector"]),
        ({**GATED, "nodeSelector": {"zone": "x"}}, GATED, ["nodeSelector"]),
        ({}, {"nodeSelector": {"zone": "x"}}, ["nodeSelector.zone"]),
        (GATED, {**GATED, **required(TERM)}, []),
        ({**GATED, **required(TERM)}, {**GATED, **required(STRICTER)}, []),
        ({**GATED, **required(TERM)}, {**GATED, **required(TERM, **PREFERRED)}, []),
        ({**GATED, **required(TERM)}, {**GATED, **required(OTHER)}, [f"{TERMS}[0]"]),
        ({**GATED, **required(STRICTER)}, {**GATED, **required(TERM)}, [f"{TERMS}[0]"]),
        ({**GATED, **required(TERM)}, {**GATED, **required(TERM, OTHER)}, [TERMS]),
        ({**GATED, **required(TERM)}, GATED, [TERMS]),
        ({**GATED, **required(TERM, EMPTY)}, {**GATED, **required(TERM, TERM)}, [f"{TERMS}[1]"]),
        (required(TERM), required(STRICTER), [TERMS]),
        (GATED, {**GATED, "affinity": ANTI}, ["affinity"]),
        ({**GATED, "affinity": ANTI}, {**GATED, "affinity": {**ANTI, **required(TERM)["affinity"]}}, []),
        ({**GATED, "affinity": {}}, GATED, []),
        (GATED, {"nodeName": "n1"}, ["nodeName"]),
        (GATED, {**GATED, "containers": [{"name": "main", "image": "other"}]}, []),
        (
            GATED,
            {**GATED, "containers": [{"name": "other", "image": "nginx"}]},
            ["containers[main]", "containers[other]"],
        ),
        (GATED, {**GATED, "containers": []}, ["containers[main]"]),
    ],
)
def test_a_gated_pod_may_lose_gates_and_become_stricter(old: Json, new: Json, fields: list[str]) -> None:
    assert refused(old, new) == fields


def test_tolerations_are_added_and_their_seconds_change() -> None:
    own = {"key": "k", "operator": "Exists", "effect": "NoExecute"}

    assert refused({"tolerations": [own]}, {"tolerations": [{"operator": "Exists"}, own]}) == []
    assert refused({"tolerations": [own]}, {"tolerations": [{**own, "tolerationSeconds": 5}]}) == []
    assert refused({"tolerations": [own]}, {"tolerations": [{**own, "key": "other"}]}) == ["tolerations"]


def test_only_a_negative_grace_period_can_change() -> None:
    field = "terminationGracePeriodSeconds"

    assert refused({field: -5}, {field: 1}) == []
    assert refused({field: -5}, {field: 2}) == [field]
    assert refused({field: 30}, {field: 1}) == [field]


def test_each_changed_value_is_named_by_its_path_with_both_values() -> None:
    def containers(**requests: str) -> PodSpec:
        main = {"name": "main", "image": "a", "resources": {"requests": requests}}
        return object_from_json({"containers": [{"name": "side"}, main]}, PodSpec)

    with pytest.raises(InvalidManifest) as refusal:
        check_update(containers(cpu="3", **{"nvidia.com/gpu": "1"}), containers(cpu="2"))
    requests = "spec.containers[main].resources.requests"
    assert [violation.sentence() for violation in refusal.value.violations] == [
        f"{requests}.cpu: must be unchanged ('2'); delete the pod to change it, got '3'",
        f"{requests}[nvidia.com/gpu]: must be unchanged (absent); delete the pod to change it, got '1'",
    ]
