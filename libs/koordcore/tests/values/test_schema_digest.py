"""A snapshot is refused when its fields have changed, and not when their description has."""

import msgspec
from koordcore.values.codec import schema_digest


def struct(doc: str, **fields: type) -> type:
    return msgspec.defstruct("S", [*fields.items()], namespace={"__doc__": doc})


def test_docstring_does_not_change_the_digest_and_a_field_does() -> None:
    one = schema_digest([struct("One.", description=str, n=int)])
    assert schema_digest([struct("Two.", description=str, n=int)]) == one
    assert schema_digest([struct("One.", n=int)]) != one
    assert schema_digest([struct("One.", description=str, n=str)]) != one


def test_other_texts_count_in_any_order() -> None:
    kind = struct("One.", n=int)
    assert schema_digest([kind], ["a", "b"]) == schema_digest([kind], ["b", "a"]) != schema_digest([kind], ["a"])
