"""What a reader of an earlier version does with the facts of a later one (docs/upgrades.md)."""

from collections.abc import Iterator

import msgspec
import pytest
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.objects import PodSpecDeleted
from koordcore.events.registry import UnreadableEvent
from koordcore.values import codec
from msgspec import inspect

DELETED = PodSpecDeleted(namespace="default", name="web")


def stored(type_name: str, schema: int, body: object) -> StoredEvent:
    headers = {"Koord-Type": type_name, "Koord-Schema": str(schema)}
    return StoredEvent(7, AggregateRef("podspec", "u1"), headers, codec.encode(body))


def structs_in(kind: inspect.Type) -> Iterator[type[msgspec.Struct]]:
    """Yield every struct that a type contains, itself included."""
    if isinstance(kind, inspect.StructType):
        yield kind.cls
        for field in kind.fields:
            yield from structs_in(field.type)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from structs_in(each)
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield from structs_in(kind.item_type)
    elif isinstance(kind, inspect.DictType):
        yield from structs_in(kind.value_type)


def test_every_event_may_get_further_fields() -> None:
    models = {model for entry in CATALOGUE for model in structs_in(inspect.type_info(entry.model))}
    assert len(models) > len(list(CATALOGUE))
    assert [model.__name__ for model in models if model.__struct_config__.forbid_unknown_fields] == []


def test_a_field_of_a_later_version_is_ignored() -> None:
    schema = CATALOGUE.of(PodSpecDeleted).schema
    body = {**msgspec.to_builtins(DELETED), "reason": "a field that this code does not know"}
    assert CATALOGUE.read(stored("PodSpecDeleted", schema, body)) == DELETED


def test_a_later_form_and_an_unknown_type_stop_the_reader() -> None:
    newer = CATALOGUE.of(PodSpecDeleted).schema + 1
    with pytest.raises(UnreadableEvent, match=f"schema {newer} is newer than {newer - 1}"):
        CATALOGUE.read(stored("PodSpecDeleted", newer, msgspec.to_builtins(DELETED)))
    with pytest.raises(UnreadableEvent, match="no such event type"):
        CATALOGUE.read(stored("PodTeleported", 1, {}))
