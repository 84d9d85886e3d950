"""Findings of `koord doctor` about old custom resource definitions."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from koordcore.protocol.crd.catalogue import definition_texts
from koordctl.installation.doctor import definition_findings
from koordctl.log.health import Verdict

Json = dict[str, Any]
WANTED: list[Json] = [yaml.load(text, yaml.CSafeLoader) for text in definition_texts().values()]
NAME = "reservations.scheduling.koordinator.sh"


def version_of(definition: Json) -> Json:
    return definition["spec"]["versions"][0]


def fields_of(definition: Json) -> Json:
    return version_of(definition)["schema"]["openAPIV3Schema"]["properties"]


def drop_field(definition: Json) -> None:
    del fields_of(definition)["spec"]["properties"]["owners"]["items"]["properties"]["labelSelector"]


def drop_spec(definition: Json) -> None:
    del fields_of(definition)["spec"]


def stop_serving(definition: Json) -> None:
    version_of(definition)["served"] = False


def drop_status(definition: Json) -> None:
    del version_of(definition)["subresources"]


def test_definitions_of_this_version_and_newer_ones_are_in_order() -> None:
    newer = copy.deepcopy(WANTED)
    for each in newer:
        fields_of(each)["later"] = {"type": "string"}
    for installed in (WANTED, newer):
        (found,) = definition_findings(installed, WANTED)
        assert (found.verdict, found.told) == (Verdict.OK, f"all {len(WANTED)} are of this version")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (drop_field, "v1alpha1.spec.owners[].labelSelector"),
        (drop_spec, "v1alpha1.spec"),
        (stop_serving, "v1alpha1"),
        (drop_status, "v1alpha1 /status"),
    ],
)
def test_an_old_definition_is_named_with_what_it_lacks(change: Callable[[Json], None], told: str) -> None:
    old = copy.deepcopy(WANTED)
    change(next(each for each in old if each["metadata"]["name"] == NAME))
    (found,) = definition_findings(old, WANTED)
    assert (found.check, found.verdict) == (f"CRD {NAME}", Verdict.WARNING)
    assert found.told == f"is of an older version: it lacks {told}"
    assert found.remedy


def test_a_definition_that_is_missing_is_broken() -> None:
    found = list(definition_findings([each for each in WANTED if each["metadata"]["name"] != NAME], WANTED))
    assert [(each.check, each.verdict) for each in found] == [(f"CRD {NAME}", Verdict.BROKEN)]
