"""Renaming, translation and the annotation for the node, beyond the vectors' cases."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.protocol.resource_names import (
    DEPRECATED,
    parse_replace_resources,
    refresh_extended_resource_spec,
    rename_pod,
    rename_resources,
    replace_resources,
)
from koordcore.values.invalid import InvalidInput


def pod(priority: int, resources: object, annotation: str | None = None, **spec: object) -> Pod:
    annotations = {} if annotation is None else {keys.EXTENDED_RESOURCE_SPEC: annotation}
    containers = [{"name": "c", "resources": resources}]
    return pod_from_json(
        {"metadata": {"annotations": annotations}, "spec": {"priority": priority, "containers": containers, **spec}}
    )


@pytest.mark.parametrize(
    ("present", "written"),
    [
        (None, '{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}}'),
        ('{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"1000"}}}}', None),
        ('{"containers":{"c":{"Requests":{"kubernetes.io/batch-cpu":1000}}},"x":1}', None),
        ("{}", '{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}}'),
    ],
)
def test_annotation_is_written_only_when_its_value_differs(present: str | None, written: str | None) -> None:
    batch = pod(5500, {"requests": {"kubernetes.io/batch-cpu": "1000"}}, present)
    assert refresh_extended_resource_spec(batch) == written


def test_annotation_has_sidecars_and_no_other_init_containers() -> None:
    batch = {"requests": {"kubernetes.io/batch-cpu": "500"}}
    init = [{"name": "side", "restartPolicy": "Always", "resources": batch}, {"name": "init", "resources": batch}]
    text = refresh_extended_resource_spec(pod(5500, batch, initContainers=init))
    assert text == (
        '{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"500"}},'
        '"side":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}'
    )


def test_annotation_without_batch_resources() -> None:
    assert refresh_extended_resource_spec(pod(9500, {})) is None
    assert refresh_extended_resource_spec(pod(9500, {}, "{}")) is None
    assert refresh_extended_resource_spec(pod(9500, {}, '{"containers":{"c":{}}}')) == "{}"
    for malformed in ("", "{bad", "[]", '{"containers":{"c":{"limits":{"kubernetes.io/batch-cpu":"x"}}}}'):
        with pytest.raises(InvalidInput, match="extended-resource-spec"):
            refresh_extended_resource_spec(pod(9500, {}, malformed))


def test_renaming_a_pod_touches_every_list_and_returns_itself_when_nothing_changes() -> None:
    old = {"requests": {"koordinator.sh/batch-cpu": "1"}, "limits": {"kubernetes.io/gpu": "1"}}
    renamed = rename_pod(
        pod(0, old, overhead={"kubernetes.io/rdma": "1"}, initContainers=[{"name": "i", "resources": old}])
    )
    for container in (*renamed.spec.containers, *renamed.spec.init_containers):
        assert container.resources.requests == {"kubernetes.io/batch-cpu": "1"}
        assert container.resources.limits == {"koordinator.sh/gpu": "1"}
    assert renamed.spec.overhead == {"koordinator.sh/rdma": "1"}
    assert rename_pod(renamed) is renamed


def test_replace_annotation_erases_first() -> None:
    wish = parse_replace_resources("a:b,b:")
    assert replace_resources({"a": "1", "b": "2"}, wish) == {"b": "1"}
    assert replace_resources({"cpu": "0.5"}, parse_replace_resources("cpu:x.io/cpu")) == {"x.io/cpu": "500"}
    assert parse_replace_resources("") == parse_replace_resources("a,b:c:d")


@given(st.dictionaries(st.sampled_from([*DEPRECATED, *DEPRECATED.values(), "cpu"]), st.integers(0, 9).map(str)))
def test_renaming_loses_no_amount(resources: dict[str, str | int | float]) -> None:
    renamed = rename_resources(resources, DEPRECATED)
    assert sorted(map(str, renamed.values())) == sorted(map(str, resources.values()))
    assert rename_resources(renamed, DEPRECATED) is renamed
    for old, new in DEPRECATED.items():
        assert (old in renamed) == (old in resources and new in resources)


def test_annotation_text_is_json_with_sorted_keys() -> None:
    both = {"kubernetes.io/batch-memory": "1Gi", "kubernetes.io/batch-cpu": "1500"}
    text = refresh_extended_resource_spec(pod(5500, {"requests": both, "limits": both}))
    assert text is not None
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
