"""Value ids of node labels: equal values have equal ids, and the ids of values that no node has are used again."""

import hypothesis.strategies as st
from hypothesis import given
from koord_scheduler.domain.columns.label_column import NO_VALUE, LabelColumn

ROWS = 4


@given(st.lists(st.tuples(st.integers(0, ROWS - 1), st.sampled_from([None, "a", "b", "c", "d", "e", "f"]))))
def test_ids_stand_for_the_present_values(changes: list[tuple[int, str | None]]) -> None:
    column, expected = LabelColumn(ROWS), dict.fromkeys(range(ROWS))
    for row, text in changes:
        version, before = column.version, expected[row]
        column.put(row, text)
        expected[row] = text
        assert (column.version != version) == (text != before)
        ids = [int(value) for value in column.values]
        assert [column.texts[value] for value in ids] == [expected[each] for each in range(ROWS)]
        assert all((value == NO_VALUE) == (expected[each] is None) for each, value in enumerate(ids))
    assert len(column.texts) <= ROWS + 2  # a new value may need an id before that of the former one is free


def test_hostnames_of_nodes_that_left_need_no_ids() -> None:
    column = LabelColumn(ROWS)
    for life in range(1000):
        column.put(life % ROWS, f"node-{life}")

    assert len(column.texts) <= ROWS + 2
