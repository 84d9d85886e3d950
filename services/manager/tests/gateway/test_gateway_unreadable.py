"""An object that cannot be read is not taken for deleted, and hides no deletion of another one."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec.inspect as shapes
import pytest
from koord_manager.domain.gateway.mirror import Seen, mirrored_ref
from koord_manager.domain.gateway.resources import NODES, PODS, Intake, Mirrored, mirrored_resources
from koord_manager.shell.gateway.listwatch import Complete
from koord_manager.shell.gateway.reading import MODELS, ResourceDecoder
from koordcore.events.envelope import AggregateRef

RESOURCES = mirrored_resources(slo_config=("a", "b"), take_node_metrics=False)
(VOLUMES,) = (each for each in RESOURCES if each.plural == "persistentvolumes")
BROKEN: dict[str, Any] = {"spec": {"priority": "high", "taints": 1, "csi": 1}}


def named(name: str, **rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, **rest}


def test_a_list_tells_deletions_only_when_every_object_in_it_has_a_name() -> None:
    assert Complete(PODS, frozenset()).tells_deletions
    assert not Complete(PODS, frozenset(), unnamed=1).tells_deletions
    assert not Complete(PODS, frozenset(), served=False).tells_deletions


@pytest.mark.parametrize(
    ("resource", "aggregate"),
    [
        (PODS, AggregateRef("podspec", "uid-broken")),
        (NODES, AggregateRef("nodespec", "broken")),
        (VOLUMES, AggregateRef("customspec", "persistentvolumes=broken")),
    ],
    ids=["pods", "nodes", "persistentvolumes"],
)
def test_a_list_names_the_aggregates_of_unreadable_objects(resource: Mirrored, aggregate: AggregateRef) -> None:
    items = [named("good"), named("broken", **BROKEN), {"metadata": {"name": 1}}]
    page: dict[str, Any] = {"metadata": {}, "items": items}
    found = ResourceDecoder(resource).page(json.dumps(page).encode())

    assert len(found.objects) == 1
    assert len(found.unreadable) == 2
    assert found.unreadable_refs(resource) == {aggregate}


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.name)
def test_the_deletion_of_an_unreadable_object_is_known_by_its_names(resource: Mirrored) -> None:
    whole = {"spec": 1, "data": 1, "value": "high"}
    line = json.dumps({"type": "DELETED", "object": named("one", **whole)}).encode()
    change = ResourceDecoder(resource).line(line)

    assert (change.gone, change.unreadable) == (True, None)
    assert change.object is not None
    good = ResourceDecoder(resource).line(json.dumps({"type": "DELETED", "object": named("one")}).encode())
    assert good.object is not None
    assert Seen(resource, change.object).ref == mirrored_ref(resource, good.object)


@pytest.mark.parametrize("intake", [Intake.CUSTOM, Intake.TRIMMED, Intake.KNOWN])
def test_an_object_without_metadata_is_unreadable(intake: Intake) -> None:
    resource = next(each for each in RESOURCES if each.intake is intake)
    change = ResourceDecoder(resource).line(b'{"type": "ADDED", "object": {"spec": {}}}')

    assert change.object is None
    assert change.unreadable is not None


@pytest.mark.parametrize("kind", MODELS)
def test_typed_objects_have_a_depth_that_their_type_limits(kind: str) -> None:
    """So their pages are decoded without a check of the depth."""

    def open_fields(shape: shapes.Type, path: str, around: tuple[type, ...]) -> Iterator[str]:
        match shape:
            case shapes.StructType(cls=cls, fields=fields):
                if cls in around:
                    yield path
                else:
                    for each in fields:
                        yield from open_fields(each.type, f"{path}.{each.name}", (*around, cls))
            case shapes.UnionType(types=types):
                for one in types:
                    yield from open_fields(one, path, around)
            case (
                shapes.ListType(item_type=inner)
                | shapes.VarTupleType(item_type=inner)
                | shapes.DictType(value_type=inner)
            ):
                yield from open_fields(inner, path, around)
            case shapes.StrType() | shapes.IntType() | shapes.BoolType() | shapes.FloatType() | shapes.NoneType():
                pass
            case _:
                yield f"{path}: {shape}"

    assert list(open_fields(shapes.type_info(MODELS[kind]), kind, ())) == []
