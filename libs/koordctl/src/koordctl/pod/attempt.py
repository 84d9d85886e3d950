"""The newest failed attempt of a pending pod as a small table: a row for each thing that a group of nodes lacks. Pure.

The group that is nearest to fitting comes first, as in the sentence above the table (`koordcore.stories.pending`).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from koordcore.events.explanations import Diagnosis
from koordcore.stories.pending import Group, groups_of

from koordctl.render.console import Line, cells

MOST_ROWS: Final = 10
NODES_NAMED: Final = 5
MOST_CAUSES: Final = 2
_WIDEST: Final = 46
"""Largest width of the column with the reasons, unless nodes are named as well."""
_COLUMNS: Final = ("NODES", "WHY", "NEEDS", "MOST FREE", "LARGEST", "REMOVING PODS")
_NUMBERS: Final = (0, 2, 3, 4)
"""Columns that are aligned to the right."""


class _Row(NamedTuple):
    group: Group
    texts: tuple[str, ...]  # As `_COLUMNS`
    is_last: bool  # Whether it is the last row of its group


def attempt_lines(diagnosis: Diagnosis, *, with_nodes: bool) -> Iterator[Line]:
    """The rows of the groups that fit on a screen, and how many nodes the others have.

    Args:
        with_nodes: Whether all rows are shown, each group with its plugin, its nodes, and details about some of them.
    """
    rows = [row for group in groups_of(diagnosis) for row in _rows(group)]
    shown = rows if with_nodes or len(rows) <= MOST_ROWS + 1 else _whole_groups(rows)
    table = [_COLUMNS, *(row.texts for row in shown)]
    if not with_nodes:
        table = [(count, _cut(why), *rest) for count, why, *rest in table]
    widths = [max(map(cells, column)) for column in zip(*table, strict=True)]
    yield Line(_padded(table[0], widths), "bold")
    for row, texts in zip(shown, table[1:], strict=True):
        yield Line(_padded(texts, widths))
        if row.is_last:
            told = _node_lines(row.group) if with_nodes else _causes(row.group) if row.group is shown[0].group else ()
            yield from (Line(f"       {line}") for line in told)
    left = rows[len(shown) :]
    if left:
        nodes = sum(row.group.nodes for row in left if row.is_last)
        yield Line(f"{nodes:>5}  for other reasons: --nodes shows all")


def _rows(group: Group) -> Iterator[_Row]:
    helps = "may help" if group.helps else "does not help"
    if not group.missing:
        yield _Row(group, (f"{group.nodes}", group.reason.removeprefix("node(s) "), "", "", "", helps), is_last=True)
    last = len(group.missing) - 1
    for number, each in enumerate(group.missing):
        count, helped = ("", "") if number else (f"{group.nodes}", helps)
        yield _Row(group, (count, f"lack {each.what}", each.needs, each.most, each.largest, helped), number == last)


def _whole_groups(rows: Sequence[_Row]) -> Sequence[_Row]:
    """The first rows up to the end of a group; at least the first `MOST_ROWS` if a group is larger."""
    ends = [number for number, row in enumerate(rows[:MOST_ROWS], 1) if row.is_last]
    return rows[: ends[-1] if ends else MOST_ROWS]


def _node_lines(group: Group) -> Iterator[str]:
    failure = group.failure
    names = ", ".join(failure.nodes[:NODES_NAMED])
    more = f" and {failure.count - NODES_NAMED} more" if failure.count > NODES_NAMED else ""
    yield f"{group.plugin}: {group.reason}"
    yield f"nodes {names}{more}"
    yield from (f"  {detail}" for detail in failure.details)


def _causes(group: Group) -> list[str]:
    """Details that do not tell of single nodes, such as the claims that no volume suits."""
    own = tuple(f"{name}: " for name in group.failure.nodes)
    return [detail for detail in group.failure.details if not detail.startswith(own)][:MOST_CAUSES]


def _cut(text: str) -> str:
    return text if cells(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _padded(texts: Sequence[str], widths: Sequence[int]) -> str:
    padded: list[str] = []
    for number, (text, width) in enumerate(zip(texts, widths, strict=True)):
        spaces = " " * (width - cells(text))
        padded.append(f"{spaces}{text}" if number in _NUMBERS else f"{text}{spaces}")
    return "  ".join(padded).rstrip()
