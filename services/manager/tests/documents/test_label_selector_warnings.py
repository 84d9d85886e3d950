"""A selector that can match nothing is taken, and told of."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_manager.domain.admission.context.profiles import read_profile
from koord_manager.domain.documents.warnings import document_warnings


def profile(spec: object) -> dict[str, Any]:
    kind = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    return {**kind, "metadata": {"name": "p"}, "spec": spec}


def expression(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


UNREADABLE = [
    (expression("Inn", "a"), "[0].operator: should be one of In, NotIn, Exists, DoesNotExist, got 'Inn'"),
    (expression("In"), "[0].values: should be a non-empty list with operator In, got []"),
    (expression("Exists", "a"), "[0].values: should be empty with operator Exists, got ['a']"),
]


@pytest.mark.parametrize("field", ["selector", "namespaceSelector"])
@pytest.mark.parametrize(("selector", "said"), UNREADABLE)
def test_a_selector_of_a_profile_that_matches_nothing_is_told(field: str, selector: dict[str, Any], said: str) -> None:
    (warning,) = document_warnings(profile({field: selector}))
    assert warning == f"spec.{field}.matchExpressions{said}; the profile matches no pod"


def test_a_label_value_that_no_label_can_have_is_told() -> None:
    (warning,) = document_warnings(profile({"selector": {"matchLabels": {"app": "a b"}}}))
    assert warning.startswith("spec.selector.matchLabels[app].values: should be a label value")


def test_a_node_selector_of_a_quota_profile_is_told() -> None:
    kind = {"apiVersion": "quota.koordinator.sh/v1alpha1", "kind": "ElasticQuotaProfile"}
    document = {**kind, "metadata": {"name": "q"}, "spec": {"quotaName": "q", "nodeSelector": expression("Inn", "a")}}
    (warning,) = document_warnings(document)
    assert warning.endswith("got 'Inn'; no quota is made of the profile")


@given(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Inn", ""]), st.lists(st.sampled_from(["a", "b c"])))
def test_a_profile_is_told_of_exactly_when_its_selector_is_invalid(operator: str, values: list[str]) -> None:
    document = profile({"selector": expression(operator, *values)})
    assert bool(document_warnings(document)) is not read_profile(document).pods.valid


@pytest.mark.parametrize("spec", [None, [], {"selector": 7}, {"selector": None}, {"selector": {"matchExpressions": 1}}])
def test_a_selector_of_another_shape_is_not_judged(spec: object) -> None:
    assert document_warnings(profile(spec)) == ()
