"""Pieces joined are the document."""

import json

from hypothesis import given
from hypothesis import strategies as st
from koordcore.values.codec import array_pieces, mapping_pieces, object_pieces

VALUES = st.lists(st.one_of(st.integers(-5, 5), st.text(max_size=3), st.none()), max_size=12)


@given(VALUES, st.integers(1, 5))
def test_array_of_any_length_in_pieces_of_any_size(values: list[object], size: int) -> None:
    pieces = list(array_pieces(values, size))
    assert json.loads(b"".join(pieces)) == values
    assert len(pieces) == -(-len(values) // size) + 1


@given(st.dictionaries(st.text(max_size=4), st.integers(), max_size=450), VALUES)
def test_object_of_objects(items: dict[str, int], values: list[object]) -> None:
    members = {"none": mapping_pieces([]), "items": mapping_pieces(items.items()), 'a"b': array_pieces(values)}
    assert json.loads(b"".join(object_pieces(members))) == {"none": {}, "items": items, 'a"b': values}
    assert b"".join(object_pieces({})) == b"{}"


def test_values_are_taken_when_a_piece_is() -> None:
    values = [1]
    pieces = array_pieces(values)
    values.append(2)
    assert b"".join(pieces) == b"[1,2]"
